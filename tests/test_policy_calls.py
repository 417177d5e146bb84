"""The policy stays cheap: its calls of functions per round and per drafted id, counted instead of timed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from uad.bench.policy import Script, measure
from uad.policy import auto

ROOM = str(Path(auto.__file__).parent)
N_ROUNDS = 100


def calls(n_seq: int, n_ids: int) -> float:
    """Calls per sequence and round of the policy's functions, and of what is written in C by them, once it knows the draft."""
    script, n_calls = Script(n_seq, n_ids), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(ROOM)

    script.run(N_ROUNDS)
    tracer = sys.getprofile()
    sys.setprofile(count)
    try:
        script.run(N_ROUNDS)
    finally:
        sys.setprofile(tracer)
    return n_calls / N_ROUNDS / n_seq


@pytest.mark.parametrize(("n_seq", "most", "most_per_id", "most_alone"), [(1, 380, 30, 120), (4, 230, 20, 50)])
def test_calls_per_round_and_per_id(n_seq, most, most_per_id, most_alone):
    short, long = calls(n_seq, 4), calls(n_seq, 16)
    assert 0 < short < most
    assert 0 < (long - short) / 12 < most_per_id
    assert 0 < calls(n_seq, 0) < most_alone


@pytest.mark.parametrize("n_seq", [1, 4])
def test_the_bench_drafts_as_far_as_it_says(n_seq):
    cells = [measure(n_seq, n_ids, n_rounds=200, n_repeats=1) for n_ids in (0, 4, 16)]
    assert cells[0].n_written < 1, "the policy leaves a draft alone that is always wrong"
    assert cells[1].n_written == pytest.approx(4, abs=0.2)
    assert cells[2].n_written == pytest.approx(16, abs=0.8)
    assert all(cell.us_per_round > 0 for cell in cells)
