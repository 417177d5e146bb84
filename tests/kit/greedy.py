"""A tokenizer of toy vocabularies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def greedy(pieces: Sequence[bytes]) -> Callable[[bytes], list[int]]:
    """Longest match first: no real tokenizer, but one that merges across whatever seams a test has. The pieces cover
    all bytes that it is used for.
    """
    ids = {piece: id_ for id_, piece in enumerate(pieces) if piece}
    longest_first = re.compile(b"|".join(map(re.escape, sorted(ids, key=len, reverse=True))))

    def tokenize(data: bytes) -> list[int]:
        found = longest_first.findall(data)
        assert sum(map(len, found)) == len(data)
        return [ids[piece] for piece in found]

    return tokenize
