"""The vocabulary of a draft as its file has it, and what is never cut out of it. Must not know how text becomes
tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import GgufFile

BPE, SPM = "gpt2", "llama"
"""Kinds of tokenizers, as `tokenizer.ggml.model` names them: byte-level merges in a list, and pieces merged by their
scores.
"""

MODEL = "tokenizer.ggml.model"
TOKENS, TYPES, SCORES, MERGES = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "scores", "merges"))
_ID_KEY = re.compile(r"tokenizer\.ggml\.\w+_token_ids?")
_OTHER_KINDS = {"t5": "unigram", "bert": "WordPiece"}
_NORMAL, _UNDEFINED, _UNUSED = 1, 0, 5
_DEFAULT_IDS = {BPE: 12, SPM: 3}
"""Below it are the ids that llama.cpp takes for beginning, end and unknown where a file names none."""


@dataclass(frozen=True)
class Vocabulary:
    """Texts, types and scores by id; the merges in their order, each as its two parts; `named` are the ids that keys of
    the file name.
    """

    kind: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    named: frozenset[int]

    @cached_property
    def by_text(self) -> dict[str, int]:
        """The id of each text. Of several with the same text it is the last, as in llama.cpp."""
        return {text: id_ for id_, text in enumerate(self.tokens)}

    @cached_property
    def always(self) -> frozenset[int]:
        """Ids that stay whatever the corpus uses: bytes, all that are not ordinary text, and those that are named or
        taken by default.
        """
        types = {id_ for id_, kind in enumerate(self.types) if kind not in (_UNDEFINED, _NORMAL, _UNUSED)}
        default = range(min(_DEFAULT_IDS[self.kind], len(self.tokens)))
        return frozenset(types | self.named | set(default) | set(self._bytes()))

    def _bytes(self) -> Iterator[int]:
        letters = byte_letters() if self.kind == BPE else [f"<0x{byte:02X}>" for byte in range(256)]
        yield from (self.by_text[letter] for letter in letters if letter in self.by_text)


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """Raises ConfigError for a tokenizer whose vocabulary cannot be cut, ModelLoadError for a damaged one."""
    kind = file.text(MODEL)
    if kind not in (BPE, SPM):
        raise ConfigError(_refusal(file, kind))
    tokens = tuple(file.texts(TOKENS, "surrogateescape"))
    if not tokens:
        raise ModelLoadError(f"{file.path}: the file has no vocabulary; choose a language model")
    return Vocabulary(
        kind=kind,
        tokens=tokens,
        types=tuple(int(type_) for type_ in _column(file, TYPES, len(tokens), _NORMAL)),
        scores=tuple(_column(file, SCORES, len(tokens), 0.0)),
        merges=tuple(_parts(merge) for merge in file.texts(MERGES, "surrogateescape")),
        named=frozenset(id_ for key in id_keys(file) for id_ in ids_under(file, key) if 0 <= id_ < len(tokens)),
    )


def _refusal(file: GgufFile, kind: str | None) -> str:
    if kind is None or kind in ("none", "no_vocab"):
        return f"{file.path}: the file has no vocabulary, so none can be made smaller; choose a language model"
    name = f"{_OTHER_KINDS[kind]} ({kind})" if kind in _OTHER_KINDS else f"of the kind {kind!r}"
    return (
        f"{file.path}: its tokenizer is {name}, and only byte-level BPE (gpt2) and SentencePiece with merges (llama) "
        "can be trimmed; "
        "choose another draft, or use this one as it is"
    )


def _column(file: GgufFile, key: str, n: int, default: float) -> list[int | float]:
    numbers = file.numbers(key) if key in file.values else [default] * n
    if len(numbers) != n:
        raise ModelLoadError(f"{file.path}: {key} has {len(numbers)} entries for {n} tokens; the file is damaged")
    if isinstance(default, int) and key in file.values and not file.values[key].is_whole:
        raise ModelLoadError(f"{file.path}: {key} are no whole numbers; the file is damaged")
    return numbers


def _parts(merge: str) -> tuple[str, str]:
    at = merge.find(" ", 1)  # as llama.cpp does: the first part may begin with a space
    return (merge[:at], merge[at + 1 :]) if at > 0 else (merge, "")


def id_keys(file: GgufFile) -> list[str]:
    """The keys of a file whose values are ids of tokens."""
    return [key for key, value in file.values.items() if _ID_KEY.fullmatch(key) and value.is_whole]


def ids_under(file: GgufFile, key: str) -> list[int]:
    """The id or the ids under a key."""
    single = file.whole(key)
    return [int(id_) for id_ in ([single] if single is not None else file.numbers(key))]


def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE: printable bytes as they are, the others from U+0100
    on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
