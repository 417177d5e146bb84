"""A head and a draft model beside each other, on a counted machine like a GPU: which of them writes is the policy's."""

from __future__ import annotations

import pytest
from kit.simulator import LINEAR
from kit.writers import Contest, mixed

from uad.base.types import Origin

HEAD, MODEL = Origin.HEAD, Origin.MODEL
LISTS = ((HEAD,), (MODEL,), (HEAD, MODEL))
N = 3000
TEXTS = {
    "head": mixed((N, 0.8, 0.3)),
    "model": mixed((N, 0.2, 0.85)),
    "alike": mixed((N, 0.75, 0.7)),
    "both good": mixed((N, 0.7, 0.92)),
    "neither": mixed((N, 0.05, 0.05)),
    "prose": mixed((N, 0.4, 0.35)),
}
TURNS = mixed(*((300, 0.85, 0.2), (300, 0.2, 0.9)) * (N // 600))


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_both_are_as_fast_as_the_better(name: str) -> None:
    """But for finding out which of them that is."""
    head, model, both = (Contest(list_).run(TEXTS[name], n_texts=6, n_uncounted=2).speed for list_ in LISTS)
    assert min(head, model, both) > 0.98
    assert both > 0.985 * max(head, model)


def test_where_they_take_turns_both_are_faster_than_either() -> None:
    head, model, both = (Contest(list_).run(TURNS, n_texts=6).speed for list_ in LISTS)
    assert both > 1.3 * max(head, model)


def test_where_rows_are_dear_neither_writes() -> None:
    assert all(Contest(list_, LINEAR).run(TEXTS["alike"]).speed > 0.98 for list_ in LISTS)


def test_who_is_off_is_no_rival() -> None:
    """A drafter that failed is not asked; what it gained before must not keep the other one from writing."""
    contest = Contest((HEAD, MODEL)).run(TEXTS["head"][:600])
    contest.origins = (MODEL,)
    before = contest.n_calls[MODEL]
    contest.ms = contest.plain_ms = 0.0
    contest.run(TEXTS["model"][:600])
    assert contest.n_calls[MODEL] - before > 100
    assert contest.speed > 2
