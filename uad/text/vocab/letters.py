"""Names of markers that stand in text, as letters: llama.cpp would make the ids of them that only templates may write.

It searches all text for user-defined tokens, system and user text alike. A name is cut in two, so that there is nothing
to find, at a place where nothing depends on the other side. Knows no templates.
"""

from __future__ import annotations

import re

from uad.text.vocab.boundary import Boundaries
from uad.text.vocab.markers import longest_of
from uad.text.vocab.table import Tokenize, VocabTable


def lettered(tokenize: Tokenize, vocab: VocabTable) -> Tokenize:
    """tokenize, which may write ids of markers (`vocab.shown`), made to spell them."""
    names = [name.decode() for name in vocab.shown.values()]
    if not names:
        return tokenize
    boundaries = Boundaries(vocab)
    cut_in = {name.encode(): _place(name, boundaries) for name in names}
    search = re.compile(longest_of(names).encode()).search

    def spell(data: bytes) -> list[int]:
        found = search(data)
        if found is None:
            return tokenize(data)
        known: dict[bytes, list[int]] = {}
        ids: list[int] = []
        start = 0
        while found is not None:
            end = found.start() + cut_in[found.group()]
            piece = data[start:end]
            if piece not in known:
                known[piece] = spell(piece)  # a shorter name may be left in it
            ids += known[piece]
            start = end
            found = search(data, start)
        return ids + tokenize(data[start:])

    return spell


def _place(name: str, boundaries: Boundaries) -> int:
    """Where the name is cut: at its first safe boundary, so that the letters are those of a vocabulary without it; else
    before its end.
    """
    return next(iter(boundaries.cuts(name.encode())), len(name[:-1].encode()))
