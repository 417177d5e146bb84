"""The draft's own tokenization of the committed stream, with what it guessed beyond. Pure book-keeping: bytes, ids,
offsets; no model.

Offsets count bytes of the draft's stream (after template rules). Draft specials have no bytes: they end where they
begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from uad.vocab.encode import Encoder

_MAX_TAKEN_BACK = 8
# bytes before the edge in which a safe boundary is looked for: in text without any, a round's work follows the new
# bytes, too
_REACH = 512
_CHARACTER = 4  # bytes of the longest one: what a boundary is judged by lies before it


@dataclass(slots=True)
class Mirror:
    """Draft ids of one sequence. ids[skip:n_kv] are in the draft's KV; ends[i] is the offset at which ids[i] ends.

    `data` is the committed stream; ids may reach beyond it: those are guesses that still agree with all that was
    committed. p[i] is the draft's probability of ids[i], 1 for what was committed. ids[:skip] lie before the window
    that the model reads. `floor` is the offset after the last special, where every tokenization starts again.
    ids[:n_known] are as they were when that was set.
    """

    encoder: Encoder
    heal: bool = True
    ids: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    p: list[float] = field(default_factory=list)
    n_kv: int = 0
    n_known: int = 0
    skip: int = 0
    data: bytearray = field(default_factory=bytearray)
    floor: int = 0
    floor_ids: int = 0
    tentative: bytes = b""

    @property
    def edge(self) -> int:
        """Offset at which new guesses begin: all that is committed, and what a rule still holds back."""
        return len(self.data) + len(self.tentative)

    def piece(self, i: int) -> bytes:
        """The bytes of ids[i]."""
        return self.encoder.vocab.pieces[self.ids[i]]

    def extend(self, items: Iterable[bytes | int], tentative: bytes = b"") -> None:
        """Committed stream goes on. Guessed ids stay as far as they agree with it."""
        for item in items:
            if isinstance(item, int):
                self._extend_special(item)
            else:
                self._extend_bytes(item)
        self.tentative = tentative
        if tentative:
            self._drop_wrong(tentative)

    def _extend_bytes(self, data: bytes) -> None:
        self._drop_wrong(data)
        self.data += data

    def _drop_wrong(self, data: bytes) -> None:
        """Drop the guesses from where they disagree with data, which begins at the committed end."""
        agreed = self._agreement(data)
        if agreed < len(data):
            self._keep(len(self.data) + agreed)

    def _extend_special(self, special: int) -> None:
        edge = len(self.data)
        k = self._index(edge)
        if not (k < len(self.ids) and self.ids[k] == special and self._begin(k) == edge):
            self._cut(k)
            self._cover(edge)
            k = len(self.ids)
            self._append(special, edge)
        self.floor = edge
        self.floor_ids = k + 1

    def _agreement(self, data: bytes) -> int:
        """How many bytes of data, beginning at the committed end, the ids beyond it already hold."""
        ahead = self.ahead(len(self.data))
        n = min(len(ahead), len(data))
        if ahead[:n] == data[:n]:
            return n
        return next(i for i in range(n) if ahead[i] != data[i])

    def ahead(self, offset: int) -> bytes:
        """The guessed bytes from offset on, up to a guessed special."""
        if not self.ends or self.ends[-1] <= offset:
            return b""
        k = self._index(offset)
        text = b""
        for i in range(k, len(self.ids)):
            piece = self.piece(i)
            if not piece:
                break
            text += piece
        return text[offset - self._begin(k) :]

    def _index(self, offset: int) -> int:
        """The number of ids that end at or before offset and begin before it, or belong to the floor: the first that
        may reach beyond.
        """
        k = len(self.ids)
        while k > self.floor_ids and self._begin(k - 1) >= offset:
            k -= 1
        if k > self.floor_ids and self.ends[k - 1] > offset:
            k -= 1
        return k

    def _begin(self, i: int) -> int:
        return self.ends[i - 1] if i else 0

    def _keep(self, offset: int) -> None:
        """Drop ids that reach beyond offset."""
        self._cut(self._index(offset))

    def _cut(self, k: int) -> None:
        del self.ids[k:], self.ends[k:], self.p[k:]
        self.n_kv = min(self.n_kv, k)
        self.skip = min(self.skip, k)
        self.n_known = min(self.n_known, k)

    def _append(self, id_: int, end: int, p: float = 1.0) -> None:
        self.ids.append(id_)
        self.ends.append(end)
        self.p.append(p)

    def guess(self, id_: int, p: float) -> None:
        """The draft goes on with id_, which it gives the probability p."""
        self._append(id_, self._begin(len(self.ids)) + len(self.encoder.vocab.pieces[id_]), p)

    def drop_guesses(self) -> None:
        """Keep what is committed, and what a rule still holds back."""
        self._keep(self.edge)

    def retract(self, k: int) -> None:
        """Take back ids[k:]; the caller has other ones for their bytes."""
        self._cut(k)

    def sync(self) -> int:
        """Make ids cover the stream up to the edge. Returns the index of the first id that the draft should choose
        again (healing); len(ids) where nothing is to be chosen again because the draft's own ids, or a special, end at
        the edge.
        """
        edge = self.edge
        if self._begin(len(self.ids)) >= edge:
            return len(self.ids)
        self._cover(edge)
        if not self.heal:
            return len(self.ids)
        lowest = self._begin(max(len(self.ids) - _MAX_TAKEN_BACK, self.floor_ids))
        safe = self._last_cut(edge - 1, max(lowest, self.floor))
        k = len(self.ids)
        while k > self.floor_ids and self._begin(k - 1) >= safe and len(self.ids) - k < _MAX_TAKEN_BACK:
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
        covered = max(self._begin(len(self.ids)), self.floor)
        if covered < edge:
            k, start = self._restart(covered)
            self._replace(k, self.encoder.encode(self.bytes_from(start)[: edge - start]), start, edge)

    def _restart(self, covered: int) -> tuple[int, int]:
        """The first id to encode again, and where it begins: at the last safe boundary at which an id ends.

        Where none is within reach, the ids before it stay as they are, though the whole text might be cut otherwise.
        """
        lowest = max(covered - _REACH, self.floor)
        start = self._last_cut(covered, lowest)
        while start > lowest:
            k = self._index(start)
            if k > 0 and self.ends[k - 1] == start:
                return k, start
            start = self._last_cut(start - 1, lowest)
        k = self._index(lowest) if lowest > self.floor else self.floor_ids
        return (k, self._begin(k)) if k > self.floor_ids else (self.floor_ids, self.floor)

    def _last_cut(self, limit: int, lowest: int) -> int:
        """The last safe boundary of the stream in lowest < offset <= limit; lowest where there is none."""
        if not self.tentative:
            return self.encoder.boundaries.last(self.data, limit, lowest)
        begin = max(lowest - _CHARACTER, 0)
        return begin + self.encoder.boundaries.last(self.data[begin:] + self.tentative, limit - begin, lowest - begin)

    def _replace(self, k: int, ids: list[int], start: int, edge: int) -> None:
        n = 0
        while n < len(ids) and k + n < len(self.ids) and self.ids[k + n] == ids[n]:
            n += 1
        self._cut(k + n)
        pieces = self.encoder.vocab.pieces
        at = start + sum(len(pieces[id_]) for id_ in ids[:n])
        for id_ in ids[n:]:
            at += len(pieces[id_])
            self._append(id_, at)
        if self.ends and self.ends[-1] < edge:  # bytes that the draft has no token for: it reads on after them
            self.ends[-1] = edge

    @property
    def n_unread(self) -> int:
        """How many ids the draft's KV lacks."""
        return len(self.ids) - self.n_kv

    def read_last(self, n: int) -> None:
        """The model reads the last n ids only; its KV holds none of them yet."""
        self.skip = self.n_kv = max(len(self.ids) - n, 0)

    def n_within(self) -> int:
        """How many ids are wholly within what is committed."""
        return self._index(self.edge)

    def guesses(self) -> list[tuple[int, float]]:
        """(offset at which it begins to reach beyond the edge, probability) of every id that reaches beyond it,
        specials left out.
        """
        edge = self.edge
        first = self._index(edge)
        return [(max(self._begin(i), edge), self.p[i]) for i in range(first, len(self.ids)) if self.ends[i] > edge]

    def last_guess(self) -> int | None:
        """The last id if it lies beyond the edge."""
        return self.ids[-1] if len(self.ids) > self._index(self.edge) else None
