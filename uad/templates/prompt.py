"""From rendered parts to ids of one vocabulary: specials only where text is trusted, everything else in byte runs as
long as they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uad.errors import InvalidRequestError
from uad.mapping.patterns import Item, normalise, split_specials, strip_white
from uad.templates.seams import Part
from uad.vocab.table import VocabTable

Encode = Callable[[bytes], list[int]]
"""Text bytes to ids, never specials, no BOS, no added space."""


def encode_parts(parts: Iterable[Part], vocab: VocabTable, encode: Encode, *, add_bos: bool = True) -> list[int]:
    """The ids of a prompt. `add_bos` puts the vocabulary's BOS in front where the model wants one and none is there."""
    items: list[Item] = []
    for part in _joined(parts):
        pieces = split_specials(part.text, vocab) if part.trusted else [part.text]
        items += [_utf8(piece) if isinstance(piece, str) else piece for piece in pieces]
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
    """The ids of a plain text, as `/tokenize` and `/completion` mean it. A BOS that the text already starts with is not
    doubled.
    """
    return encode_parts([Part(text, trusted=parse_special)], vocab, encode, add_bos=add_special)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Neighbouring parts of the same trust as one, so that a special may lie across them."""
    out: list[Part] = []
    for part in parts:
        if out and out[-1].trusted == part.trusted:
            out[-1] = Part(out[-1].text + part.text, part.trusted)
        elif part.text:
            out.append(part)
    return out


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            "the text holds half of a surrogate pair, which is no character", "messages"
        ) from None
