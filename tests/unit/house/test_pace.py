"""Limits on time of other tests: as long as chosen where the machine is at rest, longer where it is not."""

from __future__ import annotations

import pytest
from kit import pace


@pytest.mark.parametrize(("loop", "allowed"), [(0.5, 2.0), (1.0, 2.0), (1.7, 3.4)])
def test_a_limit_grows_with_what_the_loop_takes(loop: float, allowed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0 * pace.LOOP_S, loop * pace.LOOP_S, 9.0 * pace.LOOP_S])
    monkeypatch.setattr(pace, "loop_s", lambda: next(times))
    assert pace.here(2.0) == pytest.approx(allowed)


def test_what_is_bad_now_and_then_is_measured_again_and_what_is_always_bad_stays_bad() -> None:
    for measured, found, n_left in (([3, 9, 9], 3, 2), ([9, 3, 9], 3, 1), ([9, 9, 9], 9, 0)):
        left = iter(measured)
        assert pace.best_of(3, lambda left=left: next(left), lambda n: n < 5) == found
        assert len(list(left)) == n_left
