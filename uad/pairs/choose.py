"""Which draft a target gets by itself: `--draft auto`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from uad.pairs.costs import measured
from uad.pairs.formats import chat_format, reads_chats
from uad.pairs.header import HeaderFacts, facts, stamp
from uad.pairs.predict import Prediction, coverage, predicted
from uad.pairs.records import PairRecord, record_of

LEAST_GAIN = 1.02
"""Below that no draft is loaded: it takes memory."""
N_TRIED = 3
"""Candidates that are measured, the best by prediction first."""
_MOST_SHARE = 0.5
"""The share of the target's bytes that a draft may have."""


@dataclass(frozen=True, slots=True)
class PairView:
    """What is known of one candidate for one target."""

    draft: Path
    facts: HeaderFacts
    prediction: Prediction
    record: PairRecord

    @property
    def expected(self) -> float:
        """The gain as it was measured, until then as it is predicted."""
        measured = self.record.gain
        return self.prediction.gain if measured is None else measured


def views(target: Path, files: Iterable[Path]) -> list[PairView]:
    """Candidates of a target among these files, the best by prediction first. Reads headers and records: for worker
    threads.
    """
    own_stamp = stamp(target)
    own = facts(target, own_stamp)
    candidates = []
    for draft in files:
        draft_stamp = stamp(draft)
        draft_facts = facts(draft, draft_stamp)
        if draft == target or not _may_draft(own, draft_facts):
            continue
        prediction = predicted(
            own,
            draft_facts,
            coverage(target, own_stamp, draft, draft_stamp),
            reads_chats(chat_format(target, own_stamp), chat_format(draft, draft_stamp)),
            (measured(target, own_stamp, "target"), measured(draft, draft_stamp, "draft")),
        )
        candidates.append(PairView(draft, draft_facts, prediction, record_of(target, draft)))
    return sorted(candidates, key=lambda view: (-view.prediction.gain, view.draft.name))


def _may_draft(target: HeaderFacts, draft: HeaderFacts) -> bool:
    return draft.is_model and not draft.problem and draft.n_vocab > 0 and draft.size <= _MOST_SHARE * target.size


def choose(candidates: Iterable[PairView]) -> PairView | None:
    """The candidate with the highest gain, None where none pays.

    A prediction counts until the pair was measured. So after the first candidate the second is tried where it promises
    more than the first turned out to gain, and the best of those that were measured stays.
    """
    tried = list(candidates)[:N_TRIED]
    best = max(tried, key=lambda view: view.expected, default=None)
    return best if best is not None and best.expected >= LEAST_GAIN else None
