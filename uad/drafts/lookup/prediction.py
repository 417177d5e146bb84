"""prediction: what a request says that its answer will be, drafted from where the answer is in it.

A copy is followed through edits as any other (`aligner`). A place in the prediction is found by bytes (`predicted`), so
that it may come from anywhere, and is cut into ids from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, NamedTuple

from uad.base.types import GREEDY, Commit, Draft, Origin, SamplingParams
from uad.drafts.lookup import predicted
from uad.drafts.lookup.aligner import Guess
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.predicted import TAIL_BYTES, PredictedPlace
from uad.drafts.lookup.sources import Located, TableWalk, WalkSource
from uad.text.vocab.encode import Encoder

_SURE: Final = 4
"""Ids in a row that agree, from which on a place is no guess any more."""
_CLEAR: Final = 12
"""Score of a place from which on it is followed, though the answer may still come back to where it left."""
_BYTES_PER_ID: Final = 3
_FREE_IDS: Final = 16
"""Ids drafted beyond twice the length of what agreed."""
_SURER: Final = 4
"""Ids of a copy elsewhere that one counts as which agrees with a prediction: few answers do by chance."""
_PIECE_BYTES: Final = 256
"""Bytes of the prediction that are encoded at once."""
_UNSURE_IDS: Final = 2
"""Last ids that the cut may have changed, where there is no safe boundary."""
_PROMPT_IDS: Final = 16
"""Ids at the end of a prompt that may decide how the first bytes are cut."""
_NOTHING_BEFORE: Final = -1


class PredictionDrafter(LookupDrafter):
    """The drafter of all slots; `predict` gives it a request's prediction. Requests without one cost it nothing."""

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """A sequence starts (again); nothing is predicted of it yet."""
        super().begin(seq, prompt[-_PROMPT_IDS:], sampling)

    def predict(self, seq: int, text: bytes) -> None:
        """Set the answer expected of a sequence that has just begun."""
        self._of(seq).predict(text)

    def observe(self, commit: Commit) -> None:
        if self._of(commit.seq).predicted:
            super().observe(commit)

    def end(self, seq: int) -> None:
        """A prediction is of one answer: nothing of it is kept."""
        self._slots.pop(seq, None)

    def _of(self, seq: int) -> PredictionLookup:
        lookup = self._slots[seq][1]
        assert isinstance(lookup, PredictionLookup)
        return lookup


class _PredictedWalk(NamedTuple):
    """The ids of the prediction from a place on, after the text's last one, and at which byte each of them ends."""

    ids: TableWalk
    ends: list[int]

    def left(self, copy: Located | None) -> int | None:
        """The byte at which the answer left this walk, if it had surely followed it."""
        if copy is None or copy.length < _SURE:
            return None
        source = copy.source
        return self.ends[source.place] if isinstance(source, WalkSource) and source.walk is self.ids else None


class PredictionLookup:
    """One slot. `predicted`: what its answer is expected to be, empty where nothing is."""

    def __init__(self, text: SlotText, encoder: Encoder, n_max: int) -> None:
        self.predicted = b""
        self._text = text
        self._encoder = encoder
        self._n_max = n_max
        self._followed = _PredictedWalk(TableWalk([], lambda _: None), [])
        self._left = 0  # the byte at which the answer left the prediction
        self._n_then = 0  # ids of the text when that was seen

    @property
    def memory(self) -> int:
        return len(self.predicted)

    def begin(self, n_kept: int) -> None:
        self.predicted, self._left = b"", 0

    def predict(self, data: bytes) -> None:
        """The answer, of which nothing is written yet, is expected to be this: it is followed from its beginning."""
        self.predicted, self._n_then = data, len(self._text.ids)
        self._follow(self._walk(0, self._tail()[1]), 0, 1)

    def end(self) -> None:
        """The drafter gives up the slot."""

    def draft(self, n: int) -> Draft | None:
        n, aligner = min(n, self._n_max), self._text.aligner
        guess = self._guess(n) if self.predicted and n > 0 else None
        if guess is None:
            return None
        before = aligner.left.length // 2 if aligner.left is not None and guess.length >= _SURE else 0
        surer = _SURER if guess.length >= _SURE else 1
        draft = guess.draft(min(n, _FREE_IDS + 2 * max(guess.length, before)), self._text.origin, _SURE, surer)
        return draft if guess.length else replace(draft, kind=f"{draft.origin}/guessed")

    def _guess(self, n: int) -> Guess | None:
        """How the copy goes on; after a difference what is clear, then what the aligner expects, then what is found
        by a few bytes: the answer may soon be where the aligner still looks for it.
        """
        aligner = self._text.aligner
        if aligner.is_copying:
            return aligner.guess(n)
        tail, joined = self._tail()
        place = self._find(tail)
        may_return = aligner.n_since > 0 and (place is None or place.score < _CLEAR)
        if may_return and (guess := aligner.guess(n)) is not None:
            return guess
        if place is None:
            return None
        walk = self._walk(place.at, joined)
        length = -(-place.score // _BYTES_PER_ID)
        if may_return:
            return aligner.glance(WalkSource(walk.ids, 0), length, n)
        return self._follow(walk, length, n)

    def _follow(self, walk: _PredictedWalk, length: int, n: int) -> Guess:
        self._followed = walk
        return self._text.aligner.start(WalkSource(walk.ids, 0), length, n)

    # --- where the answer is

    def _tail(self) -> tuple[bytes, bytes]:
        """The last bytes of the text, and those of them by which the next id may be cut: after an id without bytes."""
        pieces = [self._encoder.vocab.texts[id_] for id_ in self._text.ids[-TAIL_BYTES:]]
        n = next((n for n, piece in enumerate(reversed(pieces)) if not piece), len(pieces))
        return b"".join(pieces)[-TAIL_BYTES:], b"".join(pieces[len(pieces) - n :])[-TAIL_BYTES:]

    def _find(self, tail: bytes) -> PredictedPlace | None:
        n_ids = len(self._text.ids)
        at = self._followed.left(self._text.aligner.left)
        if at is not None and at != self._left:
            self._left, self._n_then = at, n_ids - self._text.aligner.n_since
        n_since = n_ids - self._n_then
        place = predicted.find(self.predicted, tail, self._left, _BYTES_PER_ID * n_since)
        return place or self._cut_elsewhere(n_since)

    def _cut_elsewhere(self, n_since: int) -> PredictedPlace | None:
        """After what was written since the difference, where only its cut differs."""
        if not 0 < n_since < TAIL_BYTES:
            return None
        data = self._encoder.vocab.join(self._text.ids[-n_since:])
        at = self._left + len(data)
        return PredictedPlace(at) if self.predicted.startswith(data, self._left) and at < len(self.predicted) else None

    # --- how the prediction is cut

    def _walk(self, at: int, before: bytes) -> _PredictedWalk:
        """From a byte on, after the last id of the text and the bytes before."""
        ids, pieces, ends = self._ids(at, before), self._encoder.vocab.pieces, [at]

        def step(_: list[int]) -> tuple[int, float] | None:
            id_ = next(ids, None)
            if id_ is None:
                return None
            ends.append(ends[-1] + len(pieces[id_]))
            return id_, 1.0

        return _PredictedWalk(TableWalk(self._text.ids[-1:] or [_NOTHING_BEFORE], step), ends)

    def _ids(self, at: int, before: bytes) -> Iterator[int]:
        """Piece by piece, as far as they are asked for."""
        while at < len(self.predicted):
            ids, at = self._cut(at, before)
            if not ids:
                return
            yield from ids
            before = b""

    def _cut(self, at: int, before: bytes) -> tuple[list[int], int]:
        """The ids of a piece, and where it ends: at a safe boundary, if there is one.

        It is cut from the last safe boundary of what is before. Where an id would begin in that and end after it, the
        target has cut there already, and the piece is cut by itself.
        """
        encode, boundaries, pieces = self._encoder.encode, self._encoder.boundaries, self._encoder.vocab.pieces
        data, edge = before + self.predicted[at : at + _PIECE_BYTES], len(before)
        is_last = at + _PIECE_BYTES >= len(self.predicted)
        safe = len(data) if is_last else boundaries.last(data, len(data) - 1, edge)
        end = safe if safe > edge else len(data)
        start = boundaries.last(data, edge) if edge else 0
        ids = encode(data[start:end])
        ends = list(accumulate([len(pieces[id_]) for id_ in ids], initial=0))
        ids = ids[ends.index(edge - start) :] if edge - start in ends else encode(data[edge:end])
        if safe == edge:
            end -= sum(len(pieces[id_]) for id_ in ids[-_UNSURE_IDS:])
            del ids[-_UNSURE_IDS:]
        return ids, at + end - edge


def drafter(encoder: Encoder, n_max: int = 128) -> PredictionDrafter:
    """Drafts what requests predict; encoder: the target's."""
    return PredictionDrafter(Origin.PREDICTION, lambda text: PredictionLookup(text, encoder, n_max))
