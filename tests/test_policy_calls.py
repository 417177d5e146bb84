"""The policy stays cheap: its calls of functions per round and per drafted id, counted instead of timed, where it is not compiled."""

from __future__ import annotations

import json

import as_written
import pytest

from uad.bench.policy import measure

N_SEQS, N_IDS, N_ROUNDS = (1, 4), (0, 4, 16), 100
COUNT = f"""
import json, sys
from pathlib import Path
from uad.bench.policy import Script
from uad.policy import auto

room = str(Path(auto.__file__).parent)

def calls(n_seq, n_ids):
    script, n_calls = Script(n_seq, n_ids), 0

    def count(frame, event, _):
        nonlocal n_calls
        n_calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(room)

    script.run({N_ROUNDS})
    sys.setprofile(count)
    script.run({N_ROUNDS})
    sys.setprofile(None)
    return n_calls / {N_ROUNDS} / n_seq

print(json.dumps([[calls(n_seq, n_ids) for n_ids in {N_IDS}] for n_seq in {N_SEQS}]))
"""


def test_calls_per_round_and_per_id(tmp_path):
    """Per sequence and round: the policy's functions, and what is written in C and called by them, once it knows the draft."""
    counted = as_written.run(as_written.copy_to(tmp_path), COUNT)
    assert counted.returncode == 0, counted.stderr
    limits = zip(json.loads(counted.stdout), (450, 290), (40, 22), (100, 90), strict=True)
    for (alone, short, long), most, most_per_id, most_alone in limits:
        assert 0 < short < most
        assert 0 < (long - short) / 12 < most_per_id
        assert 0 < alone < most_alone


@pytest.mark.parametrize("n_seq", N_SEQS)
def test_the_bench_drafts_as_far_as_it_says(n_seq):
    cells = [measure(n_seq, n_ids, n_rounds=200, n_repeats=1) for n_ids in N_IDS]
    assert cells[0].n_written < 1, "the policy leaves a draft alone that is always wrong"
    assert cells[1].n_written == pytest.approx(4, abs=0.2)
    assert cells[2].n_written == pytest.approx(16, abs=0.8)
    assert all(cell.us_per_round > 0 for cell in cells)
