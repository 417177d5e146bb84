"""The laboratory: recordings are read as they were written, and replays count what they should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from curves import GPUS, Curve
from replay import MODEL, automatic, calibrated_ms, hindsight_of, oracle_ms, score
from rounds import Answer, Guess, Recording, read, write
from several import joined

from uad.base.types import MODELS, SpecPolicy, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy

FLAT = Curve("flat", tuple(20.0 for _ in range(64)), step=1.0, read_ms=0.1)
STEEP = Curve("steep", tuple(20.0 * n for n in range(1, 65)), step=10.0, read_ms=5.0)


def answer(name: str, n_right: int, n: int = 60) -> Answer:
    """Of each draft of eight ids the first n_right are right."""
    ids = tuple(range(n))

    def guess(t: int) -> Guess:
        right = min(n_right, n - t)
        drafted = tuple(ids[t + k] if k < right else -1 for k in range(8))
        p = tuple(0.9 if k < n_right else 0.1 for k in range(8))
        return Guess(drafted, p, p, right)

    return Answer("coding", name, 50, ids, {MODEL: (Guess(), *map(guess, range(1, n)))})


def recording(n_right: int, n_answers: int = 6) -> Recording:
    return Recording("target", "draft", 0.0, tuple(answer(f"answer-{i}", n_right) for i in range(n_answers)))


def test_two_drafts_are_replayed_beside_each_other() -> None:
    """The other one is tried in a few answers; then the one that is always right writes as if it were alone."""
    good, bad, curve = recording(8, 40), recording(0, 40), replace(FLAT, beside=(FLAT,))
    origins, params = [str(origin) for origin in MODELS[:2]], SpeculativeParams()
    alone = score(good, FLAT, automatic, params, 0, 1, origins[:1])
    for recordings in ((good, bad), (bad, good)):
        both = score(joined(recordings), curve, automatic, params, 0, 1, origins)
        assert both.mean < 1.01 * alone.mean
        assert mean(both.ratios[-20:]) > 0.97 * mean(alone.ratios[-20:])
    with pytest.raises(ValueError, match="another answer"):
        joined([recording(0), Recording("target", "other", 0.0, tuple(answer(f"answer-{i}", 0, 50) for i in range(6)))])


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "one.json.gz"
    write(recording(3, 1), path)
    assert read(path) == recording(3, 1)
    before = path.read_bytes()
    write(recording(3, 1), path)
    assert path.read_bytes() == before, "the same bytes each time"


@pytest.mark.parametrize("n_seq", [1, 2])
def test_good_drafts_are_used_and_no_policy_passes_the_oracle(n_seq: int) -> None:
    one = recording(6)
    result = score(one, FLAT, automatic, SpeculativeParams(), 1, n_seq, [MODEL])
    plain = 59 * (FLAT.target_ms(1) + FLAT.loop_ms)
    best = plain / oracle_ms(one.answers[0], FLAT)
    assert result.mean > 2.0
    if n_seq == 1:
        assert result.mean < best * 1.02, "but for the noise of its decodes"
        assert best >= plain / calibrated_ms(one.answers[0], FLAT, hindsight_of(one.answers)) * 0.999


def test_where_nothing_pays_next_to_nothing_is_lost() -> None:
    result = score(recording(2, 20), STEEP, automatic, SpeculativeParams(), 1, 1, [MODEL])
    assert 0.95 < result.mean < 1.02
    assert oracle_ms(answer("one", 2), STEEP) == pytest.approx(59 * (20.0 + STEEP.loop_ms))


def test_a_fixed_length_costs_what_the_curve_says() -> None:
    """Six of eight ids are right in each round, a step each for the draft, and one pass."""
    params = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.0)
    result = score(recording(6, 1), FLAT, lambda curve: AutoPolicy(), params, 1, 1, [MODEL])
    (text,) = result.texts
    assert text.n_passes == -(-59 // 7)
    assert text.n_accepted == 59 - text.n_passes
    assert text.ms == pytest.approx(text.n_passes * (20.0 + 0.3 + 0.7 + 8) + 50 * 0.1, rel=0.1)


def test_curves_of_gpus_are_flat_and_then_rise() -> None:
    for curve in GPUS:
        costs = [curve.target_ms(n) for n in range(1, 100)]
        assert costs[0] == costs[7] < costs[40] < costs[98]
