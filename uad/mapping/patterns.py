"""Text with names of specials in it, resolved against one vocabulary into bytes and ids. Must not know families or
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from uad.common.names import nearest
from uad.errors import MappingError
from uad.vocab.table import VocabTable

Item = bytes | int
"""A piece of a stream: text bytes, or the id of a special."""
Items = tuple[Item, ...]

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "\\<": "<", "\\[": "["}
_ESCAPE = r"\\[nt\\<\[]"
_LOOKS_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|</?[A-Za-z_][\w:./-]*>|\[/?[A-Z][A-Z_]+\]")
_WHITE = b" \t\n\v\f\r"


def split_specials(text: str, vocab: VocabTable) -> Iterator[str | int]:
    """The parts of text in order: ids where a special's name stands (the longest where several fit), text otherwise."""
    start = 0
    for found in vocab.names.finditer(text) if vocab.names else ():
        if found.start() > start:
            yield text[start : found.start()]
        yield vocab.specials[found.group()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def normalise(items: Iterable[Item]) -> list[Item]:
    """The same stream with neighbouring bytes joined and empty ones left out."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, bytes):
            if not item:
                continue
            if out and isinstance(out[-1], bytes):
                out[-1] += item
                continue
        out.append(item)
    return out


def parse_marker(text: str, vocab: VocabTable) -> Items:
    """A marker of a family: `{bos}` and `{eos}` are the vocabulary's own, names that it lacks stay letters."""
    items: list[Item] = []
    for part in re.split(r"(\{bos\}|\{eos\})", text):
        if part in ("{bos}", "{eos}"):
            id_ = vocab.bos if part == "{bos}" else vocab.eos
            items += [] if id_ is None else [id_]
        else:
            items += [part.encode() if isinstance(part, str) else part for part in split_specials(part, vocab)]
    return strip_white(normalise(items), vocab)


def parse_rule(text: str, vocab: VocabTable, where: str) -> Items:
    """One side of a replacement. A backslash before `<` or `[` makes letters of what looks like a special; `\\n`,
    `\\t`, `\\\\` as usual.

    Raises MappingError for a special that the vocabulary lacks, with the nearest that it has.
    """
    items: list[Item] = []
    for part in re.split(f"({_ESCAPE})", text):
        if part in _ESCAPES:
            items.append(_ESCAPES[part].encode())
            continue
        for piece in split_specials(part, vocab):
            if isinstance(piece, str):
                _refuse_unknown(piece, text, vocab, where)
            items.append(piece.encode() if isinstance(piece, str) else piece)
    return strip_white(normalise(items), vocab)


def _refuse_unknown(piece: str, rule: str, vocab: VocabTable, where: str) -> None:
    found = _LOOKS_SPECIAL.search(piece)
    if found is None:
        return
    near = nearest(found.group(), vocab.specials)
    hint = f"; the nearest that it has is {near}" if near else ""
    letters = "\\" + found.group()
    raise MappingError(
        f"{where}: the rule {rule!r} names the special {found.group()}, which the vocabulary of {vocab.name} does not "
        f"have{hint}. "
        f"If letters are meant, write {letters}"
    )


def strip_white(items: list[Item], vocab: VocabTable) -> Items:
    """Items without the white space that specials of this vocabulary swallow on their left or right."""
    out = list(items)
    for at, item in enumerate(out):
        if not isinstance(item, bytes):
            continue
        before, after = out[at - 1] if at else None, out[at + 1] if at + 1 < len(out) else None
        if before in vocab.rstrip:
            item = item.lstrip(_WHITE)
        if after in vocab.lstrip:
            item = item.rstrip(_WHITE)
        out[at] = item
    return tuple(normalise(out))


def show(items: Iterable[Item], vocab: VocabTable) -> str:
    """Items as a person reads them, specials by name, in quotes."""
    names = vocab.special_names
    return repr(
        "".join(
            item.decode(errors="replace") if isinstance(item, bytes) else names.get(item, f"<{item}>") for item in items
        )
    )
