"""A vocabulary as plain bytes of a Hugging Face tokenizer alone, for targets that have no GGUF file."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from uad.base.errors import ConfigError
from uad.text.vocab.bounded import lettered
from uad.text.vocab.hf import build, bytes_of, parts_of, stand_ins
from uad.text.vocab.markers import is_marker
from uad.text.vocab.table import VocabTable


@dataclass(frozen=True, slots=True)
class HfVocab:
    """Facts about a vocabulary beside its tokenizer.json, `spec`.

    name: for messages. n_vocab: rows of the model's output, which may be more than there are tokens. bos, eos: ids, if
    there are any; eog: ids that end answers. template: the chat template, or empty.
    """

    name: str
    spec: str
    n_vocab: int = 0
    bos: int | None = None
    eos: int | None = None
    eog: frozenset[int] = frozenset()
    template: str = ""


def hf_table(source: HfVocab) -> VocabTable:
    """The same table as of the model's GGUF file. Raises ConfigError for what is no tokenizer.json.

    Specials are added tokens that the file calls special, and others that are markers; the rest stands for its bytes.
    """
    try:
        spec = json.loads(source.spec)
    except ValueError as error:
        raise ConfigError(f"tokenizer of {source.name}: not JSON ({error})") from None
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict):
        raise ConfigError(f"tokenizer of {source.name}: has no model, so it says nothing of the bytes of tokens")
    tokenizer = build(f"of {source.name}", spec)
    added = tokenizer.get_added_tokens_decoder()
    markers = {id_ for id_, token in added.items() if not token.special and is_marker(token.content, source.template)}
    special = {id_ for id_, token in added.items() if token.special} | markers
    ids = {id_: text for text, id_ in tokenizer.get_vocab(with_added_tokens=True).items()}
    pieces = _pieces(spec, ids, {id_: token.content for id_, token in added.items()}, special)
    n_vocab = max(source.n_vocab, max(ids, default=-1) + 1)
    specials: dict[str, int] = {}
    for id_ in sorted(special):
        specials.setdefault(added[id_].content, id_)

    def encode(data: bytes) -> list[int]:
        ids: list[int] = tokenizer.encode(data.decode(), add_special_tokens=False).ids
        return ids

    table = VocabTable(
        name=source.name,
        pieces=tuple(pieces.get(id_, b"") for id_ in range(n_vocab)),
        specials=specials,
        tokenize=encode,
        bos=_among(source.bos, special),
        eos=_among(source.eos, special),
        eog=frozenset(source.eog & special),
        add_space_prefix=_prefixes(spec),
        lstrip=frozenset(id_ for id_ in special if added[id_].lstrip),
        rstrip=frozenset(id_ for id_ in special if added[id_].rstrip),
        shown={id_: added[id_].content.encode() for id_ in sorted(markers)},
    )
    return replace(table, tokenize=lettered(encode, table))


def _pieces(
    spec: dict[str, Any], ids: dict[int, str], added: dict[int, str], special: Collection[int]
) -> dict[int, bytes]:
    parts = [part for name in ("decoder", "pre_tokenizer") for part in parts_of(spec.get(name))]
    is_byte_level = any(part.get("type") == "ByteLevel" for part in parts)
    to_byte = {character: byte for byte, character in stand_ins()}
    return {
        id_: b"" if id_ in special else bytes_of(text, added.get(id_), is_byte_level, to_byte)[0]
        for id_, text in ids.items()
    }


def _among(id_: int | None, special: Collection[int]) -> int | None:
    return id_ if id_ in special else None


def _prefixes(spec: dict[str, Any]) -> bool:
    """Whether a space is put before text that starts a prompt."""
    parts = [part for name in ("normalizer", "pre_tokenizer") for part in _all(spec.get(name))]
    return any(
        part.get("type") == "Prepend"
        or part.get("prepend_scheme") in ("first", "always")
        or part.get("add_prefix_space")
        for part in parts
    )


def _all(part: Any) -> list[dict[str, Any]]:
    """A part, and those that it consists of, normalizers too."""
    if not isinstance(part, dict):
        return []
    inner = part.get("normalizers") or part.get("pretokenizers") or ()
    return [part, *(below for part_of_it in inner for below in _all(part_of_it))]
