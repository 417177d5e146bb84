"""A Hugging Face tokenizer.json in the place of llama.cpp's tokenizer, where a GGUF's own pre-tokenizer is known to be
wrong.

Text to ids only; what ids stand for stays the GGUF's word, and both must agree on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from uad.base.common.files import read_text
from uad.base.errors import ConfigError
from uad.text.vocab.bounded import lettered
from uad.text.vocab.table import Tokenize, VocabTable

_MOST_BYTES = 1 << 28


def hf_tokenize(path: Path, vocab: VocabTable) -> Tokenize:
    """Text to ids by the tokenizer.json at path. ConfigError if it cannot be read, or names the first token on which
    vocab disagrees.

    Specials typed as text are text, and nothing is put in front. Text that the tokenizer would change (normalise) is
    left to llama.cpp's tokenizer.
    """
    spec = _read(path)
    tokenizer = build(path, spec)
    parts = (part for name in ("decoder", "pre_tokenizer") for part in parts_of(spec.get(name)))
    is_byte_level = any(part.get("type") == "ByteLevel" for part in parts)
    _check(path, tokenizer, vocab, is_byte_level=is_byte_level)
    fall_back = vocab.tokenize

    def encode(data: bytes) -> list[int]:
        ids: list[int] = tokenizer.encode(data.decode(), add_special_tokens=False).ids
        return ids

    spell = lettered(encode, vocab)

    def tokenize(data: bytes) -> list[int]:
        ids = spell(data)
        return ids if vocab.join(ids) == data else fall_back(data)

    return tokenize


def _read(path: Path) -> dict[str, Any]:
    try:
        spec = json.loads(read_text(path, _MOST_BYTES))
    except ValueError as error:
        raise ConfigError(f"tokenizer {path}: not JSON ({error}); give a Hugging Face tokenizer.json") from None
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict):
        raise ConfigError(
            f"tokenizer {path}: has no model; give a Hugging Face tokenizer.json (not tokenizer_config.json)"
        )
    return spec


def build(path: Path | str, spec: dict[str, Any]) -> Tokenizer:
    """The tokenizer of this specification, for text in mid-sentence. path: what errors name. Raises ConfigError."""
    try:
        tokenizer = Tokenizer.from_str(json.dumps(_without_prefix(spec)))
    except Exception as error:  # the library raises nothing more specific
        raise ConfigError(f"tokenizer {path}: not understood by the tokenizers library ({error})") from None
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _without_prefix(spec: Any) -> Any:
    """The specification without the parts that put a space before text: pieces are encoded in mid-sentence."""
    if isinstance(spec, list):
        return [
            _without_prefix(part) for part in spec if not (isinstance(part, dict) and part.get("type") == "Prepend")
        ]
    if not isinstance(spec, dict) or spec.get("type") == "Prepend":
        return spec if not isinstance(spec, dict) else None
    out = {
        name: value if name in ("vocab", "merges", "added_tokens") else _without_prefix(value)
        for name, value in spec.items()
    }
    if "add_prefix_space" in out:
        out["add_prefix_space"] = False
    if "prepend_scheme" in out:
        out["prepend_scheme"] = "never"
    return out


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """A part of a specification, and those that it consists of."""
    if isinstance(part, dict):
        yield part
        for inner in part.get("decoders") or part.get("pretokenizers") or ():
            yield from parts_of(inner)


def _check(path: Path, tokenizer: Tokenizer, vocab: VocabTable, is_byte_level: bool) -> None:
    """Every token must be the same on both sides. A GGUF may have more at its end, to fill up a matrix."""
    added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
    to_byte = {character: byte for byte, character in stand_ins()}
    for text, id_ in sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1]):
        if id_ >= vocab.n_vocab:
            raise _differ(path, vocab, id_, text, "not there")
        if vocab.is_special(id_):
            if text != vocab.special_names.get(id_, text):
                raise _differ(path, vocab, id_, text, repr(vocab.special_names[id_]))
        elif vocab.pieces[id_] not in bytes_of(text, added.get(id_), is_byte_level, to_byte):
            raise _differ(path, vocab, id_, text, repr(vocab.pieces[id_]))


def _differ(path: Path, vocab: VocabTable, id_: int, text: str, ours: str) -> ConfigError:
    return ConfigError(
        f"tokenizer {path} is not {vocab.name}'s: token {id_} is {text!r} there and {ours} in the model; "
        "take the tokenizer.json of the same model"
    )


def bytes_of(text: str, added: str | None, is_byte_level: bool, to_byte: dict[str, int]) -> tuple[bytes, ...]:
    """Bytes that a token may stand for. Tokens added later are written as they are, or like the others."""
    if added is not None:
        return added.encode(), added.replace("▁", " ").encode()
    if is_byte_level:
        return (
            bytes(to_byte[character] for character in text)
            if all(character in to_byte for character in text)
            else text.encode(),
        )
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes.fromhex(text[3:5]), text.encode()
    return (text.replace("▁", " ").encode(),)


def stand_ins() -> Iterator[tuple[int, str]]:
    """The printable characters that byte-level vocabularies write for bytes: those that are printable stand for
    themselves.
    """
    n_others = 0
    for byte in range(256):
        if 33 <= byte <= 126 or (161 <= byte <= 255 and byte != 173):
            yield byte, chr(byte)
        else:
            yield byte, chr(256 + n_others)
            n_others += 1
