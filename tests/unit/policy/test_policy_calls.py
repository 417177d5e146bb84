"""The policy stays cheap: its calls of functions per round and per drafted id, counted instead of timed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
from kit.policy_script import Script

from uad.engine.policy import auto

N_SEQS, N_IDS, N_ROUNDS = (1, 4), (0, 4, 16), 100
ROOM = str(Path(auto.__file__).parent)


def calls(n_seq: int, n_ids: int) -> float:
    """Per sequence and round: the policy's functions, and what is written in C and called by them, once it knows the
    draft.
    """
    script, n_calls = Script(n_seq, n_ids), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(ROOM)

    script.run(N_ROUNDS)
    before = sys.getprofile()
    sys.setprofile(count)
    script.run(N_ROUNDS)
    sys.setprofile(before)
    return n_calls / N_ROUNDS / n_seq


@pytest.mark.parametrize(("n_seq", "most", "most_per_id", "most_alone"), [(1, 450, 42, 105), (4, 290, 25, 90)])
def test_calls_per_round_and_per_id(n_seq, most, most_per_id, most_alone):
    alone, short, long = (calls(n_seq, n_ids) for n_ids in N_IDS)
    assert 0 < short < most
    assert 0 < (long - short) / 12 < most_per_id
    assert 0 < alone < most_alone


@pytest.mark.parametrize("n_seq", N_SEQS)
def test_it_drafts_as_far_as_the_script_says(n_seq):
    alone, short, long = (sum(Script(n_seq, n_ids).run(200)) / 200 / n_seq for n_ids in N_IDS)
    assert alone < 1, "the policy leaves a draft alone that is always wrong"
    assert short == pytest.approx(4, abs=0.2)
    assert long == pytest.approx(16, abs=0.8)
