"""Chat formats of a pair: whether a draft gets conversations in a format that it knows. By the rules of mappings, and
by the headers of files alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile
from uad.pairs.header import ByStamp, Stamp
from uad.text.mapping.families import Family, bundled_mappings, load_families
from uad.text.mapping.pairs import Pair, load_pairs, matching
from uad.text.mapping.plan import format_of
from uad.text.mapping.recognise import Recognition, Side
from uad.text.vocab.table import VocabTable

_TOKENS, _TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_UNKNOWN, _CONTROL, _USER_DEFINED = _MARKED = 2, 3, 4
"""Types of tokens that are no plain text, as llama.cpp numbers them."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The format of one model, as far as it is known."""

    side: Side
    recognised: Recognition


def reads_chats(target: ChatFormat, draft: ChatFormat) -> bool:
    """Whether rules turn the target's conversations into the draft's format. Where they do not, the draft reads plain
    text, and was not trained to go on with that as with an answer.
    """
    if not target.side.chat_template or target.side.chat_template == draft.side.chat_template:
        return True
    if matching(_mappings()[1].values(), (target.side, target.recognised), (draft.side, draft.recognised)):
        return True
    return target.recognised.family is not None and draft.recognised.family is not None


@ByStamp
def chat_format(path: Path, of: Stamp) -> ChatFormat:
    """The format of a model's file; `of` is the stamp of its files, for which the answer holds. Takes a tenth of a
    second: for worker threads.
    """
    try:
        with GgufFile(path) as file:
            side = _side(file)
    except ModelLoadError:
        side = Side(_table(path.name, {}), None, path.name)
    return ChatFormat(side, format_of(side, _mappings()[0]))


def _side(file: GgufFile) -> Side:
    """The model as rules see it, without the bytes of its tokens."""
    name = file.text("general.name") or file.path.stem
    template = file.text("tokenizer.chat_template")
    kinds = enumerate(zip(file.raw_texts(_TOKENS), file.numbers(_TYPES), strict=False))
    marked = [(id_, raw.decode(errors="replace"), kind) for id_, (raw, kind) in kinds if kind in _MARKED]
    specials = {word: id_ for id_, word, kind in marked if kind != _USER_DEFINED or word in (template or "")}
    bos, eos = (file.whole(f"tokenizer.ggml.{end}_token_id") for end in ("bos", "eos"))
    return Side(_table(name, specials, bos, eos), template, name)


def _table(name: str, specials: dict[str, int], bos: int | None = None, eos: int | None = None) -> VocabTable:
    return VocabTable(
        name,
        pieces=(),
        specials=specials,
        tokenize=lambda text: [],  # formats are recognised by names of specials and by rendered text
        bos=bos,
        eos=eos,
    )


@cache
def _mappings() -> tuple[dict[str, Family], dict[str, Pair]]:
    """The bundled families and pairs."""
    return load_families((bundled_mappings(),)), load_pairs((bundled_mappings(),))
