"""The draft's own tokenization of the committed stream, with what it guessed beyond. Pure book-keeping: bytes, ids,
offsets; no model.

Offsets count bytes of the draft's stream (after template rules). Draft specials have no bytes: they end where they
begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from uad.base.common.sequences import common_prefix
from uad.text.vocab.encode import Encoder

_MAX_TAKEN_BACK = 8
# bytes before the edge in which a safe boundary is looked for: in text without any, a round's work follows the new
# bytes, too
_REACH_BYTES = 512
_CHARACTER_BYTES = 4  # bytes of the longest one: what a boundary is judged by lies before it


@dataclass(slots=True)
class DraftIds:
    """Draft ids of one sequence, where each of them ends, and how many of them the draft's KV holds."""

    encoder: Encoder
    ids: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """ends[i] is the offset at which ids[i] ends."""
    p: list[float] = field(default_factory=list)
    """p[i] is the draft's probability of ids[i], 1 for what was committed."""
    n_kv: int = 0
    """ids[skip:n_kv] are in the draft's KV."""
    skip: int = 0
    """ids[:skip] lie before the window that the model reads."""
    n_known: int = 0
    """ids[:n_known] are as they were when that was set."""
    floor_ids: int = 0
    """ids[:floor_ids] end at or before the last special, where every tokenization starts again."""

    def piece(self, i: int) -> bytes:
        """The bytes of ids[i]."""
        return self.encoder.vocab.pieces[self.ids[i]]

    def begin(self, i: int) -> int:
        """The offset at which ids[i] begins."""
        return self.ends[i - 1] if i else 0

    def append(self, id_: int, end: int, p: float = 1.0) -> None:
        """The next id, which ends there."""
        self.ids.append(id_)
        self.ends.append(end)
        self.p.append(p)

    def retract(self, k: int) -> None:
        """Take back ids[k:]."""
        del self.ids[k:], self.ends[k:], self.p[k:]
        self.n_kv, self.skip, self.n_known = min(self.n_kv, k), min(self.skip, k), min(self.n_known, k)

    def index(self, offset: int) -> int:
        """The number of ids that end at or before offset and begin before it, or belong to the floor: the first that
        may reach beyond.

        Of "a", " qu", "ick", which end at 1, 4 and 7, it is 2 for the offset 4, where "ick" begins; 2 for 5, too, since
        "ick" reaches beyond; and 3 for 7, or any later one.
        """
        ends, k, floor = self.ends, len(self.ids), self.floor_ids
        while k > floor and (ends[k - 2] if k > 1 else 0) >= offset:
            k -= 1
        if k > floor and ends[k - 1] > offset:
            k -= 1
        return k

    def ahead(self, offset: int) -> bytes:
        """The guessed bytes from offset on, up to a guessed special."""
        if not self.ends or self.ends[-1] <= offset:
            return b""
        k, pieces, texts = self.index(offset), self.encoder.vocab.pieces, list[bytes]()
        for id_ in self.ids[k:]:
            piece = pieces[id_]
            if not piece:
                break
            texts.append(piece)
        return b"".join(texts)[offset - self.begin(k) :]

    @property
    def n_unread(self) -> int:
        """How many ids the draft's KV lacks."""
        return len(self.ids) - self.n_kv

    def read_last(self, n: int) -> None:
        """The model reads the last n ids only; its KV holds none of them yet."""
        self.skip = self.n_kv = max(len(self.ids) - n, 0)


@dataclass(slots=True)
class Mirror(DraftIds):
    """Draft ids that cover the committed stream, and may reach beyond it: those are guesses that still agree with all
    that was committed.

    A round, by example. Committed is "the qu", as "the", " qu"; the draft guesses "ick", " fox". The target writes
    "ickly": `extend` keeps "ick" and drops " fox", which does not go on with "ly". `sync` covers the rest: it encodes
    again from the last safe boundary, the blank, and finds " quick", "ly". The ids before that stay, KV and all.
    """

    heal: bool = True
    data: bytearray = field(default_factory=bytearray)
    """The committed stream."""
    floor: int = 0
    """The offset after the last special."""
    tentative: bytes = b""
    """Bytes that a rule still holds back."""

    @property
    def edge(self) -> int:
        """Offset at which new guesses begin: all that is committed, and what a rule still holds back."""
        return len(self.data) + len(self.tentative)

    def extend(self, items: Iterable[bytes | int], tentative: bytes = b"") -> None:
        """Committed stream goes on. Guessed ids stay as far as they agree with it."""
        for item in items:
            if isinstance(item, int):
                self._extend_special(item)
            else:
                self._drop_wrong(item)
                self.data += item
        self.tentative = tentative
        if tentative:
            self._drop_wrong(tentative)

    def _drop_wrong(self, data: bytes) -> None:
        """Drop the guesses from where they disagree with data, which begins at the committed end."""
        ahead = self.ahead(len(self.data))
        n_agreed = len(data) if ahead.startswith(data) else common_prefix(ahead, data)
        if n_agreed < len(data):
            self.retract(self.index(len(self.data) + n_agreed))

    def _extend_special(self, special: int) -> None:
        edge = len(self.data)
        k = self.index(edge)
        if not (k < len(self.ids) and self.ids[k] == special and self.begin(k) == edge):
            self.retract(k)
            self._cover(edge)
            k = len(self.ids)
            self.append(special, edge)
        self.floor = edge
        self.floor_ids = k + 1

    def guess(self, id_: int, p: float) -> None:
        """The draft goes on with id_, which it gives the probability p."""
        self.append(id_, self.begin(len(self.ids)) + len(self.encoder.vocab.pieces[id_]), p)

    def sync(self) -> int:
        """Make ids cover the stream up to the edge. Returns the index of the first id that the draft should choose
        again (healing); len(ids) where nothing is to be chosen again because the draft's own ids, or a special, end at
        the edge.
        """
        edge = self.edge
        if self.begin(len(self.ids)) >= edge:
            return len(self.ids)
        self._cover(edge)
        if not self.heal:
            return len(self.ids)
        lowest = self.begin(max(len(self.ids) - _MAX_TAKEN_BACK, self.floor_ids))
        safe = self._last_cut(edge - 1, max(lowest, self.floor))
        k = len(self.ids)
        while k > self.floor_ids and self.begin(k - 1) >= safe and len(self.ids) - k < _MAX_TAKEN_BACK:
            k -= 1
        return max(k, 1) if self.ids else k

    def bytes_from(self, offset: int) -> bytes:
        """The stream from offset up to the edge, what a rule still holds back included."""
        return (
            bytes(self.data[offset:]) + self.tentative
            if offset < len(self.data)
            else self.tentative[offset - len(self.data) :]
        )

    def _cover(self, edge: int) -> None:
        """Encode the uncovered bytes from the last safe boundary; what is already there and right stays, KV and all."""
        covered = max(self.begin(len(self.ids)), self.floor)
        if covered >= edge:
            return
        k, start = self._restart(covered)
        ids = self.encoder.encode(self.bytes_from(start)[: edge - start])
        n = common_prefix(ids, self.ids[k : k + len(ids)])
        self.retract(k + n)
        pieces = self.encoder.vocab.pieces
        ends = [*accumulate([len(pieces[id_]) for id_ in ids], initial=start)][1:]
        for id_, end in zip(ids[n:], ends[n:], strict=True):
            self.append(id_, end)
        if self.ends and self.ends[-1] < edge:  # bytes that the draft has no token for: it reads on after them
            self.ends[-1] = edge

    def _restart(self, covered: int) -> tuple[int, int]:
        """The first id to encode again, and where it begins: at the last safe boundary at which an id ends.

        Where none is within reach, the ids before it stay as they are, though the whole text might be cut otherwise.

        Covered is "let foo", as "let", " foo", and the stream goes on with "bar": " foobar" may be one id. The last
        safe boundary is before " foo", and an id ends there, so " foo" is encoded again with what follows. A guess may
        reach over a boundary ("; let" as one id): then the next earlier one is looked for.
        """
        lowest = max(covered - _REACH_BYTES, self.floor)
        start = self._last_cut(covered, lowest)
        while start > lowest:
            k = self.index(start)
            if k > 0 and self.ends[k - 1] == start:
                return k, start
            start = self._last_cut(start - 1, lowest)
        k = self.index(lowest) if lowest > self.floor else self.floor_ids
        return (k, self.begin(k)) if k > self.floor_ids else (self.floor_ids, self.floor)

    def _last_cut(self, limit: int, lowest: int) -> int:
        """The last safe boundary of the stream in lowest < offset <= limit; lowest if there is no such boundary."""
        if not self.tentative:
            return self.encoder.boundaries.last(self.data, limit, lowest)
        begin = max(lowest - _CHARACTER_BYTES, 0)
        return begin + self.encoder.boundaries.last(self.data[begin:] + self.tentative, limit - begin, lowest - begin)

    def n_within(self) -> int:
        """How many ids are wholly within what is committed; the others are guesses."""
        return self.index(self.edge)

    def guesses(self) -> list[tuple[int, float]]:
        """(offset at which it begins to reach beyond the edge, probability) of every id that reaches beyond it,
        specials left out.
        """
        edge = self.edge
        first = self.index(edge)
        return [(max(self.begin(i), edge), self.p[i]) for i in range(first, len(self.ids)) if self.ends[i] > edge]
