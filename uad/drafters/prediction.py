"""prediction: what a request says that its answer will be, drafted from where the answer is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.drafters.protocol import Pace
from uad.lookup.history import BELIEFS
from uad.lookup.predicted import PredictedAnswer, PredictedPlace, Trust
from uad.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams
from uad.vocab.encode import Encoder

_KINDS: Final = {
    Trust.FOLLOWED: str(Origin.PREDICTION),
    Trust.RESUMED: f"{Origin.PREDICTION}/resumed",
    Trust.GUESSED: f"{Origin.PREDICTION}/guessed",
}
_NOTHING: Final = Draft(origin=Origin.PREDICTION, kind=Origin.PREDICTION)
_FREE: Final = 12
"""Ids drafted beyond twice the length of what agreed."""
_BYTES: Final = 8
"""Of the prediction that are encoded for each id."""
_UNSURE: Final = 2
"""Last ids that the cut may have changed, where there is no safe boundary."""
_MOST_LENGTH: Final = len(BELIEFS) // 2
"""Longer copies are not surer."""
_PROMPT: Final = 16
"""Ids at the end of a prompt that may decide how the first bytes are cut."""


@dataclass(slots=True)
class _PredictedSlot:
    """A sequence: the end of its prompt, and its answer where that is predicted."""

    prompt: list[int] = field(default_factory=list)
    answer: PredictedAnswer | None = None


class PredictionDrafter:
    """A `Drafter` for requests that bring a prediction; `predict` tells it.

    What remains of it is cut as the target would cut it behind the bytes that are written. n_max: most ids of a draft.
    """

    origin = Origin.PREDICTION

    def __init__(self, encoder: Encoder, n_max: int) -> None:
        self._encoder = encoder
        self._texts = encoder.vocab.texts
        self._n_max = n_max
        self._slots: dict[int, _PredictedSlot] = {}

    @property
    def memory(self) -> int:
        """Bytes that predictions take, of all slots."""
        return sum(len(slot.answer.text) for slot in self._slots.values() if slot.answer is not None)

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """A sequence starts (again); nothing is predicted of it yet."""
        self._slots[seq] = _PredictedSlot(list(prompt[-_PROMPT:]))

    def predict(self, seq: int, text: bytes) -> None:
        """What the answer of a sequence that has just begun is expected to be."""
        slot, before = self._slots[seq], b""
        for id_ in slot.prompt:
            before = before + self._texts[id_] if self._texts[id_] else b""
        slot.answer = PredictedAnswer(text, before)

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        slot = self._slots.get(ask.seq)
        place = slot.answer.place() if slot is not None and slot.answer is not None else None
        if slot is None or slot.answer is None or place is None:
            return _NOTHING
        n = min(ask.n_max, self._n_max, _FREE + 2 * place.length)
        ids = tuple(self._ids(slot.answer, place, n)[:n]) if n > 0 else ()
        if len(ids) < max(ask.n_min, 1):
            return _NOTHING
        length = min(place.length, _MOST_LENGTH)
        return Draft(ids, BELIEFS[length : length + len(ids)], Origin.PREDICTION, kind=_KINDS[place.trust])

    def _ids(self, answer: PredictedAnswer, place: PredictedPlace, n: int) -> list[int]:
        """At most n ids, or a few more: what remains, cut from the last safe boundary of what is written. Where an id
        would begin in that and end behind it, the target has cut there already, and what remains is cut by itself.
        """
        encode, boundaries, text = self._encoder.encode, self._encoder.boundaries, answer.text
        left, stop = answer.left, min(place.at + _BYTES * n, len(text))
        data, edge = left + text[place.at : stop], len(left)
        end, n_unsure = len(data), 0
        if stop < len(text):
            end = boundaries.last(data, len(data) - 1, edge)
            if end == edge:
                end, n_unsure = len(data), _UNSURE
        start = boundaries.last(data, edge) if edge else 0
        ids = encode(data[start:end])
        n_written = self._n_covering(ids, edge - start)
        ids = encode(data[edge:end]) if n_written < 0 else ids[n_written:]
        return ids[: len(ids) - n_unsure]

    def _n_covering(self, ids: Sequence[int], n_bytes: int) -> int:
        """How many of the first ids stand for exactly so many bytes; -1 where none do."""
        pieces, n = self._encoder.vocab.pieces, 0
        for i, id_ in enumerate(ids):
            if n >= n_bytes:
                return i if n == n_bytes else -1
            n += len(pieces[id_])
        return len(ids) if n == n_bytes else -1

    def observe(self, commit: Commit) -> None:
        slot = self._slots.get(commit.seq)
        if slot is not None and slot.answer is not None:
            for id_ in commit.ids:
                slot.answer.write(self._texts[id_])

    def end(self, seq: int) -> None:
        """A prediction is of one answer."""
        self._slots.pop(seq, None)

    def reset(self) -> None:
        self._slots.clear()

    def close(self) -> None:
        """Nothing is kept in files."""


def drafter(encoder: Encoder, n_max: int = 128) -> PredictionDrafter:
    """Drafts what requests predict; encoder: the target's."""
    return PredictionDrafter(encoder, n_max)
