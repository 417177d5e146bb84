"""Toy vocabularies for the tests of the templates room: scripted ones, and the three bundled models' read from their
GGUF headers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from kit.greedy import greedy
from uad.text.mapping.families import Family
from uad.text.mapping.patterns import Item, normalise
from uad.text.mapping.plan import Side
from uad.text.vocab.table import VocabTable

SAMPLES = Path(__file__).parents[2] / "samples"
FAMILY_SPECIALS = {
    "chatml": ("<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    "gemma": ("<bos>", "<end_of_turn>", "<start_of_turn>", "<eos>"),
    "zephyr": ("<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"),
    "phi-3": ("<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
    "phi-4": ("<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|im_sep|>"),
    "mistral-v1": ("<s>", "</s>"),
    "mistral-v3": ("<s>", "</s>", "[INST]", "[/INST]"),
    "mistral-v3-tekken": ("<s>", "</s>", "[INST]", "[/INST]"),
    "mistral-v7": ("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "mistral-v7-tekken": ("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "plain": ("<|endoftext|>",),
}
"""Per family: BOS, then EOS (the same where there is only one), then the other specials."""

FAMILY_FILE = """\
family: mine
title: My format
specials: ["<u>"]
roles:
  system: {start: "<s>", end: "\\n"}
  user: {start: "<u>", end: "\\n"}
  assistant: {start: "<a>", end: "\\n"}
"""
"""A file of a family, without an example."""

WORDS = (
    b"us",
    b"user\n",
    b"assist",
    b"ant",
    b"\n\n",
    b"\nH",
    b" the",
    b"Hello",
    b"[I",
    b"NST]",
    b"<|",
    b"im_",
    b"end|>",
    b"  ",
    b"\xc3\xa9",
)


def toy(name: str, specials: tuple[str, ...], **options: object) -> VocabTable:
    """All single bytes, some words, then the specials; specials[0] is BOS and specials[1] EOS if there are as many."""
    pieces = [bytes([byte]) for byte in range(256)] + list(WORDS)
    ids = {special: len(pieces) + at for at, special in enumerate(specials)}
    eos = ids[specials[min(1, len(specials) - 1)]] if specials else None
    values: dict[str, object] = {
        "bos": ids[specials[0]] if specials else None,
        "eos": eos,
        "eog": frozenset({eos} - {None}),
    }
    all_pieces = (*pieces, *(b"" for _ in specials))
    return VocabTable(name=name, pieces=all_pieces, specials=ids, tokenize=greedy(all_pieces), **(values | options))  # type: ignore[arg-type]


def family_vocab(family: str, **options: object) -> VocabTable:
    add_bos = family in ("llama-3", "gemma", "phi-3") or family.startswith("mistral")
    return toy(f"toy-{family}", FAMILY_SPECIALS[family], **({"add_bos": add_bos} | options))


_MARKER_NAMES = re.compile(
    r"<\|[^<>|]+\|>|<｜[^<>｜]+｜>|</?[\w:|.]+>|<[\w|]+>|〈\|\w+\|〉|\[/?[A-Z][A-Z_]+\]|\[gMASK\]|\]~!?b[\]\[]|\[e~\[|\[\|\w+\|\]"
)
LETTERS = ("mistral-v1", "llama-2", "deepseek-v2", "alpaca", "vicuna", "rwkv-world")
"""Families whose users can type a marker: it is letters for the model as well."""


def vocab_of(family: Family) -> VocabTable:
    """A toy vocabulary for any family: every name in its markers is a special, unless the family's markers are
    letters.
    """
    wraps = [wrap for wrap in (family.reasoning, family.tool_call) if wrap]
    markers = [family.begin, family.no_system, family.prompt or ""]
    markers += [text for turn in (*family.roles.values(), *wraps) for text in (turn.start, turn.end)]
    names = () if family.name in LETTERS else tuple(dict.fromkeys(_MARKER_NAMES.findall("".join(markers))))
    return toy(f"toy-{family.name}", ("<bos>", "<eos>", *names), add_bos=family.begin.startswith("{bos}"))


def named(items: list[Item], vocab: VocabTable) -> str:
    """A stream as text, specials by name."""
    return "".join(item.decode() if isinstance(item, bytes) else vocab.special_names[item] for item in normalise(items))


def items_of(ids: list[int], vocab: VocabTable) -> list[Item]:
    """Ids as a stream of text bytes and specials."""
    return normalise(id_ if vocab.is_special(id_) else vocab.pieces[id_] for id_ in ids)


@lru_cache
def sample(name: str) -> Side:
    """A bundled model's vocabulary (greedy tokenization) and chat template, from the header of its GGUF."""
    from gguf import GGUFReader

    fields = GGUFReader(SAMPLES / f"{name}.gguf").fields

    def get(key: str, default: object = None) -> Any:
        return fields[f"tokenizer.{key}"].contents() if f"tokenizer.{key}" in fields else default

    kinds = get("ggml.token_type")
    decode = _byte_level if get("ggml.model") == "gpt2" else _sentencepiece
    specials = {
        token: id_ for id_, (token, kind) in enumerate(zip(get("ggml.tokens"), kinds, strict=True)) if kind in (2, 3)
    }
    pieces = tuple(
        b"" if token in specials else decode(token, kind) for token, kind in zip(get("ggml.tokens"), kinds, strict=True)
    )
    eos = get("ggml.eos_token_id")
    vocab = VocabTable(
        name=name,
        pieces=pieces,
        specials=specials,
        tokenize=greedy(pieces),
        bos=get("ggml.bos_token_id"),
        eos=eos,
        eot=get("ggml.eot_token_id"),
        eog=frozenset({eos}),
        add_bos=bool(get("ggml.add_bos_token", False)),
    )
    return Side(vocab, get("chat_template"), name)


def _byte_level(token: str, kind: int) -> bytes:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}
    return bytes(table[character] for character in token)


def _sentencepiece(token: str, kind: int) -> bytes:
    return bytes([int(token[3:5], 16)]) if kind == 6 else token.replace("▁", " ").encode()
