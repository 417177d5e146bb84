"""Which draft a target gets by itself: `--draft auto`."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uad.pairs.conditions import Conditions
from uad.pairs.costs import Curve, measured, stored
from uad.pairs.formats import chat_format, reads_chats
from uad.pairs.header import HeaderFacts, Stamp, facts, n_bytes, stamp
from uad.pairs.predict import Prediction, coverage, predicted
from uad.pairs.records import NO_RECORD, PairRecord, TargetRecord, record_of

LEAST_GAIN = 1.02
"""Below that no draft is loaded: it takes memory."""
N_TRIED = 3
"""Candidates that are measured, the best by prediction first."""
_MOST_SHARE = 0.5
"""The share of the target's bytes that a draft may have."""


@dataclass(frozen=True, slots=True)
class PairView:
    """Facts about one candidate for one target."""

    draft: Path
    facts: HeaderFacts
    prediction: Prediction
    record: PairRecord = NO_RECORD
    holds: bool = True
    """Whether the record still counts."""

    @property
    def measured(self) -> float | None:
        """The gain as it was measured, as long as that counts."""
        return self.record.gain if self.holds else None

    @property
    def expected(self) -> float:
        """The gain as it was measured, until then as it is predicted."""
        return self.prediction.gain if self.measured is None else self.measured

    @property
    def rank(self) -> tuple[float, str]:
        """The best by prediction first."""
        return -self.prediction.gain, self.draft.name


@dataclass(frozen=True, slots=True)
class _DraftFile:
    """A file that may draft, and what it gains at most, by what its header says: where all its tokens are known to the
    target, and it reads chats.
    """

    path: Path
    of: Stamp
    facts: HeaderFacts
    curve: Curve | None
    most: Prediction


class _PairTarget:
    """A target, as far as predictions need it. Reads headers: for worker threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.of = path, stamp(path)
        self.facts, self._curves = facts(path, self.of), stored()
        self._curve = measured(path, self.of, "target", self._curves)

    def candidates(self, files: Iterable[Path]) -> list[_DraftFile]:
        """Candidates among the files, the most promising first."""
        ranked = []
        for path in files:
            # a file that is too large needs no header
            of = stamp(path)
            if path == self.path or n_bytes(of) > _MOST_SHARE * self.facts.size:
                continue
            if (own := facts(path, of)).can_draft:
                curve = measured(path, of, "draft", self._curves)
                most = predicted(self.facts, own, 1.0, True, (self._curve, curve))
                ranked.append(_DraftFile(path, of, own, curve, most))
        return sorted(ranked, key=lambda file: (-file.most.gain, file.path.name))

    def view(self, file: _DraftFile) -> PairView:
        """The pair, with both vocabularies and chat formats."""
        prediction = predicted(
            self.facts,
            file.facts,
            coverage(self.path, self.of, file.path, file.of),
            reads_chats(chat_format(self.path, self.of), chat_format(file.path, file.of)),
            (self._curve, file.curve),
        )
        return PairView(file.path, file.facts, prediction)


def views(target: Path, files: Iterable[Path]) -> list[PairView]:
    """All candidates of a target among these files, the best by prediction first. For worker threads."""
    own = _PairTarget(target)
    return sorted((own.view(file) for file in own.candidates(files)), key=lambda view: view.rank)


def best(target: Path, files: Iterable[Path]) -> list[PairView]:
    """The first N_TRIED of `views`. Vocabularies are compared as long as a candidate could be among them: of a hundred
    models mostly of a few. For worker threads.
    """
    own, ranked = _PairTarget(target), list[PairView]()
    for file in own.candidates(files):
        if len(ranked) >= N_TRIED and ranked[N_TRIED - 1].prediction.gain >= file.most.gain:
            break
        insort(ranked, own.view(file), key=lambda view: view.rank)
    return ranked[:N_TRIED]


def recorded(target: Path, pairs: Sequence[PairView], under: Conditions, now: float | None = None) -> list[PairView]:
    """The same with what was measured. For worker threads."""
    known = record_of(target, under)
    now = time.time() if now is None else now
    with_records = [replace(view, record=known.of(view.draft, under)) for view in pairs]
    return list(_held(with_records, known, now, n_bytes(stamp(target))))


def _held(pairs: Sequence[PairView], known: TargetRecord, now: float, size: int) -> Iterator[PairView]:
    """Each pair, and whether its record still counts beside those of the others."""
    gains = [view.record.gain or 1.0 for view in pairs]
    for i, view in enumerate(pairs):
        others = max(gains[:i] + gains[i + 1 :], default=1.0)
        yield replace(view, holds=view.record.holds(known.written_s, now, others, size))


def choices(candidates: Iterable[PairView]) -> list[PairView]:
    """The candidates that pay, the best first; the others are for where that one fails.

    A prediction counts until the pair was measured. So after the first candidate the second is tried where it promises
    more than the first turned out to gain, and the best of those that were measured stays.
    """
    paying = (view for view in list(candidates)[:N_TRIED] if view.expected >= LEAST_GAIN)
    return sorted(paying, key=lambda view: -view.expected)


def choose(candidates: Iterable[PairView]) -> PairView | None:
    """The candidate with the highest gain, None where none pays."""
    return next(iter(choices(candidates)), None)
