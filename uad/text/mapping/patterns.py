"""Text with names of specials in it, resolved against one vocabulary into bytes and ids; prompts among them, whose
specials count only where they are trusted. Must not know families or files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from uad.base.common.names import nearest
from uad.base.errors import InvalidRequestError, MappingError
from uad.text.templates.seams import Part, merge
from uad.text.vocab.table import VocabTable

Item = bytes | int
"""A piece of a stream: text bytes, or the id of a special."""
Items = tuple[Item, ...]

Encode = Callable[[bytes], list[int]]
"""Text bytes to ids, never specials, no BOS, no added space."""

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "\\<": "<", "\\[": "["}
_ESCAPE = r"\\[nt\\<\[]"
_LOOKS_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|</?[A-Za-z_][\w:./-]*>|\[/?[A-Z][A-Z_]+\]")
_WHITE = b" \t\n\v\f\r"


def split_specials(text: str, vocab: VocabTable) -> Iterator[str | int]:
    """The parts of text in order: ids where a special's name stands (the longest where several fit), text otherwise."""
    start = 0
    for match in vocab.names.finditer(text) if vocab.names else ():
        if match.start() > start:
            yield text[start : match.start()]
        yield vocab.specials[match.group()]
        start = match.end()
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
    match = _LOOKS_SPECIAL.search(piece)
    if match is None:
        return
    near = nearest(match.group(), vocab.specials)
    hint = f"; the nearest that it has is {near}" if near else ""
    letters = "\\" + match.group()
    raise MappingError(
        f"{where}: the rule {rule!r} names the special {match.group()}, which the vocabulary of {vocab.name} does not "
        f"have{hint}. "
        f"If letters are meant, write {letters}"
    )


def strip_white(items: list[Item], vocab: VocabTable) -> Items:
    """Items without the white space that specials of this vocabulary swallow on their left or right."""
    # Phi's <|end|> swallows what is right of it: of "<|end|>\n<|user|>\n" the model's tokenizer makes the two specials
    # alone. So no stream of this model ever has the line ends, and a pattern with them would never match.
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


def items_of(ids: Iterable[int], vocab: VocabTable) -> list[Item]:
    """A stream of ids with the bytes of those that are text."""
    return normalise(id_ if vocab.is_special(id_) else vocab.pieces[id_] for id_ in ids)


def named(items: Iterable[Item], vocab: VocabTable) -> str:
    """Items as one text, specials by name."""
    names = vocab.special_names
    return "".join(
        item.decode(errors="replace") if isinstance(item, bytes) else names.get(item, f"<{item}>")
        for item in normalise(items)
    )


def show(items: Iterable[Item], vocab: VocabTable) -> str:
    """Items as a person reads them, in quotes."""
    return repr(named(items, vocab))


def is_white(items: Items) -> bool:
    """Whether there is nothing but white space."""
    return all(isinstance(item, bytes) and not item.strip() for item in items)


def bare(items: Items) -> Items:
    """A marker up to its last special: what is there when the text after it has not come."""
    n = max((at + 1 for at, item in enumerate(items) if isinstance(item, int)), default=0)
    return items[:n]


def rest_of(items: Items, opening: Items) -> Items:
    """Items without the opening that they begin with; nothing if they do not begin with it."""
    # Of (7, b"assistant\n<think>\n") and the opening (7, b"assistant\n") it is (b"<think>\n",): all but the opening's
    # last item must be equal, and that one may be the beginning of a longer text.
    n = max(len(opening) - 1, 0)
    if items[:n] != opening[:n] or len(items) < len(opening):
        return ()
    if not opening or items[n] == opening[n]:
        return items[len(opening) :]
    whole, part = items[n], opening[n]
    if isinstance(whole, bytes) and isinstance(part, bytes) and whole.startswith(part):
        return (whole[len(part) :], *items[n + 1 :])
    return ()


# --- prompts


def encode_parts(parts: Iterable[Part], vocab: VocabTable, encode: Encode, *, add_bos: bool = True) -> list[int]:
    """The ids of a prompt. `add_bos` puts the vocabulary's BOS in front where the model wants one and none is there."""
    items: list[Item] = []
    for part in merge(parts):
        pieces = split_specials(part.text, vocab) if part.trusted else [part.text]
        try:
            items += [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        except UnicodeEncodeError:
            raise InvalidRequestError(
                "the text holds half of a surrogate pair, which is no character", "messages"
            ) from None
    ids: list[int] = []
    after_special = True
    for item in strip_white(normalise(items), vocab):
        if isinstance(item, int):
            ids.append(item)
        else:
            ids += encode(b" " + item if vocab.add_space_prefix and after_special else item)
        after_special = isinstance(item, int)
    if add_bos and vocab.add_bos and vocab.bos is not None and ids[:1] != [vocab.bos]:
        ids.insert(0, vocab.bos)
    return ids


def encode_text(text: str, vocab: VocabTable, encode: Encode, *, add_special: bool, parse_special: bool) -> list[int]:
    """The ids of a plain text, as `/tokenize` and `/completion` mean it. add_special: with BOS in front, where the
    model wants one; as in llama-server, one that the text begins with is one more.
    """
    ids = encode_parts([Part(text, trusted=parse_special)], vocab, encode, add_bos=False)
    return [vocab.bos, *ids] if add_special and vocab.add_bos and vocab.bos is not None else ids
