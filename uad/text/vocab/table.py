"""A vocabulary as plain data: the bytes of every id, and which are specials. Must not know where it was read from."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from uad.base.types import NO_FIM, FimTokens
from uad.text.vocab.markers import longest_of

_AT_ONCE = 4096
Tokenize = Callable[[bytes], list[int]]
"""llama.cpp's own tokenization of valid UTF-8 text, without specials, BOS or an added space."""


def is_text(data: bytes) -> bool:
    """Whether data is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def partial_length(data: bytes) -> int:
    """How many bytes at the end of data belong to a UTF-8 character that is not whole."""
    for n in range(1, min(4, len(data)) + 1):
        byte = data[-n]
        if byte & 0xC0 != 0x80:
            return n if n < character_length(byte) else 0
    return 0


def character_length(lead: int) -> int:
    """How many bytes a character has in UTF-8, by its first one."""
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@dataclass(frozen=True)
class VocabTable:
    """One vocabulary."""

    name: str
    pieces: tuple[bytes, ...]
    """The bytes that each id stands for; b"" for specials, which text never becomes: control tokens, and markers, which
    are user-defined tokens that structure a conversation (`<think>`).
    """
    specials: dict[str, int]
    """The id of each special, by its name as chat templates write it."""
    tokenize: Tokenize
    """Turns text into ids, which stay llama.cpp's own decision."""
    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    eog: frozenset[int] = frozenset()
    add_bos: bool = False
    add_space_prefix: bool = False
    """The model was trained with a space put before text that starts the prompt or follows a special."""
    lstrip: frozenset[int] = frozenset()
    """Specials that swallow white space before them in a template."""
    rstrip: frozenset[int] = frozenset()
    """Specials that swallow white space after them in a template."""
    shown: Mapping[int, bytes] = field(default_factory=dict)
    """The bytes that a marker shows in an answer, by id."""
    fim: FimTokens = NO_FIM
    """The ids of prompts that fill in the middle."""

    @property
    def n_vocab(self) -> int:
        """Number of ids."""
        return len(self.pieces)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all specials."""
        return frozenset(self.specials.values())

    @cached_property
    def special_names(self) -> dict[int, str]:
        """The name of each special by its id; of several names of one id, the last."""
        return {id_: name for name, id_ in self.specials.items()}

    @cached_property
    def texts(self) -> tuple[bytes, ...]:
        """The bytes that each id shows in an answer: its own, for a marker its name, for other specials nothing."""
        return tuple(self.shown.get(id_, piece) for id_, piece in enumerate(self.pieces)) if self.shown else self.pieces

    @cached_property
    def names(self) -> re.Pattern[str] | None:
        """Matches the longest name of a special that begins at a place; None where there are no specials."""
        return re.compile(longest_of(self.specials)) if any(self.specials) else None

    def is_special(self, id_: int) -> bool:
        """Whether the id is a special; false for ids outside the vocabulary, too."""
        return id_ in self.special_ids

    @cached_property
    def longest(self) -> int:
        """The most bytes of text that one id can stand for, names of specials included; at least 1."""
        return max((len(text) for text in (*self.pieces, *map(str.encode, self.specials))), default=1) or 1

    def join(self, ids: list[int] | tuple[int, ...]) -> bytes:
        """The bytes of ids; specials contribute none. Many are joined in steps: one join of a million stops all
        threads.
        """
        pieces = self.pieces
        if len(ids) <= _AT_ONCE:
            return b"".join([pieces[i] for i in ids])
        return b"".join([self.join(ids[start : start + _AT_ONCE]) for start in range(0, len(ids), _AT_ONCE)])

    @cached_property
    def by_bytes(self) -> dict[bytes, int]:
        """The id of each byte string. Of several ids with the same bytes, the one that llama.cpp writes for that text,
        else the lowest.
        """
        table: dict[bytes, int] = {}
        twins: set[bytes] = set()
        for id_, piece in enumerate(self.pieces):
            if piece and table.setdefault(piece, id_) != id_:
                twins.add(piece)
        for piece in filter(is_text, twins):
            ids = self.tokenize(piece)
            if len(ids) == 1 and self.pieces[ids[0]] == piece:
                table[piece] = ids[0]
        return table

    @cached_property
    def sorted_pieces(self) -> tuple[list[bytes], list[int]]:
        """All non-empty pieces in byte order, and their ids: the tokens that start with given bytes are one range of
        it.
        """
        order = sorted((piece, id_) for id_, piece in enumerate(self.pieces) if piece)
        return [piece for piece, _ in order], [id_ for _, id_ in order]

    def range_of(self, prefix: bytes) -> tuple[int, int]:
        """The half-open range in `sorted_pieces` of tokens whose bytes start with prefix."""
        # Pieces that begin with "ab" stand before "ac"; with "a\xff", before "b"; with "\xff" alone, up to the end.
        pieces, _ = self.sorted_pieces
        after = prefix
        while after and after[-1] == 0xFF:
            after = after[:-1]
        hi = bisect_left(pieces, after[:-1] + bytes([after[-1] + 1])) if after else len(pieces)
        return bisect_left(pieces, prefix), hi
