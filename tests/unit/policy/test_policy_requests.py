"""How much of a prediction is right is a property of its request: what the one before taught does not count."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

import pytest
from kit.predictions import LONGEST, PredictedRequest, PredictedSession, code, edited, rising
from kit.simulator import Cost

TIMES = (1.1, 1.8, 3.0, 6.0)
"""What eight rows cost, in single ones."""

TEXTS = Path(__file__).parents[3] / "uad" / "tools" / "bench" / "texts"
PROSE, SOURCE = ((TEXTS / name).read_bytes() for name in ("mixed.txt", "code.txt"))
CODE = code(40)
RIGHT = PredictedRequest(CODE, CODE)
EDITED = PredictedRequest(edited(CODE, 0.1), CODE)
HALF = PredictedRequest(CODE[: len(CODE) // 2] + PROSE[:2500], CODE)
QUERY = PredictedRequest(PROSE, b"SELECT id, name FROM customers WHERE city = 'Oslo' ORDER BY name;\n" * 40)
OTHER_PROSE = PredictedRequest(PROSE[:3000], PROSE[3000:])
OTHER_CODE = PredictedRequest(SOURCE[:3000], SOURCE[3000:])
USELESS = {"a query": QUERY, "other prose": OTHER_PROSE, "other code": OTHER_CODE}
SHORT = 150
"""Ids."""


def session(cost: Cost, n_measured: int = 17) -> PredictedSession:
    return PredictedSession(cost, (CODE, EDITED.answer, PROSE, SOURCE, QUERY.prediction), n_measured)


@pytest.mark.parametrize("before", [None, RIGHT, EDITED], ids=["at first", "after a right one", "after an edit"])
@pytest.mark.parametrize("times", TIMES)
def test_a_useless_prediction_costs_next_to_nothing(times: float, before: PredictedRequest | None) -> None:
    for name, useless in USELESS.items():
        one = session(rising(times))
        if before is not None:
            one.answer(before)
        assert one.answer(useless, SHORT) > 0.985, name


@pytest.mark.parametrize("times", TIMES)
def test_a_right_prediction_is_as_fast_after_useless_ones(times: float) -> None:
    one = session(rising(times))
    first = one.answer(RIGHT)
    for useless in USELESS.values():
        one.answer(useless, SHORT)
    assert one.answer(RIGHT) > 0.95 * first


@pytest.mark.parametrize(("times", "n_rounds", "share"), [(1.1, 6, 0.9), (1.8, 10, 0.85), (3.0, 20, 0.8)])
def test_a_right_prediction_is_drafted_at_full_length_soon(times: float, n_rounds: int, share: float) -> None:
    """share: of the speed at which each round has the longest draft."""
    one = session(rising(times))
    speed = one.answer(RIGHT)
    assert max(one.lengths[:n_rounds]) >= LONGEST - 8
    assert speed > share * (LONGEST + 1) * rising(times)(1) / rising(times)(LONGEST + 1)


@pytest.mark.parametrize("times", TIMES)
def test_half_a_prediction_is_faster_than_none(times: float) -> None:
    assert session(rising(times)).answer(HALF) > 1.04


@pytest.mark.parametrize("times", TIMES)
def test_costs_that_nobody_measured_are_learned_from_rounds(times: float) -> None:
    """Of a server without a drafter single rows are measured at start, and no more."""
    speeds = []
    for n_measured in (1, 17):
        one = session(rising(times), n_measured)
        speeds.append(geometric_mean([one.answer(RIGHT), one.answer(EDITED)]))
        assert one.answer(QUERY, SHORT) > 0.985
    assert speeds[0] > 0.93 * speeds[1]
