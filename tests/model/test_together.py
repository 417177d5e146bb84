"""Rows that are drawn from together give the ids that each gives alone, to the bit, for all settings of samplers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uad.base.common.samplers import SAMPLERS, SETTINGS
from uad.base.types import SamplingParams
from uad.engine.sampling.noise import Position, gumbel, gumbel_each
from uad.engine.sampling.sampler import Sampler, pick_each
from uad.llama.samplers import SamplerChain

NAMES = [one.name for one in SAMPLERS if one.letter and not one.takes_vocab]


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    """Some settings that are not off, some samplers in some order, a ban, a bias."""
    values: dict[str, object] = {"temperature": draw(st.sampled_from([0.0, 0.3, 0.8, 1.5]))}
    values["samplers"] = tuple(draw(st.permutations(NAMES)))[: draw(st.integers(1, len(NAMES)))]
    for name in draw(st.lists(st.sampled_from(sorted(SETTINGS)), max_size=6, unique=True)):
        one = SETTINGS[name]
        low, high = max(one.low, 0.0), min(one.high, 50.0 if one.is_whole else 1.5)
        values[name] = draw(st.integers(int(low), int(high)) if one.is_whole else st.floats(low, high))
    if draw(st.booleans()):
        values |= {"samplers": SamplingParams().samplers, "top_k": draw(st.sampled_from([1, 5, 40]))}
    if draw(st.booleans()):
        values["logit_bias"] = ((3, float("-inf")), (5, 2.5))
    if draw(st.sampled_from([False, False, True])):
        values["bad_words"] = ((7,), (1, 2))
    return SamplingParams(**values)  # type: ignore[arg-type]


def matrix(seed: int, n: int, n_vocab: int, kind: str) -> npt.NDArray[np.float32]:
    """Logits with and without equal ones, some of them banned."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 3, (n, n_vocab)).astype(np.float32)
    if kind == "equal":
        rows = np.round(rows)
    if kind == "banned":
        rows[rng.random(rows.shape) < 0.6] = -np.inf
        rows[:, 3] = 0.5
    return rows


def made(some: Sequence[SamplingParams], seed: int, n_vocab: int, stack: ExitStack) -> list[Sampler]:
    keys = np.random.default_rng(seed).integers(0, 2**63, n_vocab).astype(np.uint64)
    prompt = [int(id_) for id_ in keys[:20] % np.uint64(n_vocab)]
    chains = partial(SamplerChain, n_vocab)
    return [
        stack.enter_context(closing(Sampler(one, seed + i, frozenset({4}), 64, chains, keys, prompt)))
        for i, one in enumerate(some)
    ]


@settings(max_examples=150)
@given(
    st.one_of(
        st.lists(params(), min_size=2, max_size=6), st.builds(lambda one, n: [one] * n, params(), st.integers(2, 6))
    ),
    st.sampled_from([30, 400, 4096]),
    st.integers(0, 2**31),
    st.sampled_from(["usual", "equal", "banned"]),
)
def test_rows_together_are_drawn_from_as_each_alone(
    some: list[SamplingParams], n_vocab: int, seed: int, kind: str
) -> None:
    with ExitStack() as stack:
        alone, together = made(some, seed, n_vocab, stack), made(some, seed, n_vocab, stack)
        for step in range(4):
            rows = matrix(seed + step, len(some), n_vocab, kind)
            places = [Position(step * 3 + i, i % 2) for i in range(len(some))]
            expected = [one.pick(row, at) for one, row, at in zip(alone, rows, places, strict=True)]
            assert pick_each(together, rows, places) == expected
            for sampler, id_ in zip([*alone, *together], [*expected, *expected], strict=True):
                sampler.accept(id_)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(0, 2**40))
def test_noise_of_many_places_is_that_of_each(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [rng.integers(0, 2**63, n).astype(np.uint64) for n in counts]
    places = [(seed * i, Position(7 * i, i % 3)) for i in range(len(counts))]
    for one, place, some in zip(gumbel_each(places, keys), places, keys, strict=True):
        assert one.tobytes() == gumbel(*place, some).tobytes()


class Broken(Sampler):
    """Its stages fail."""

    def lot(self, row: object, position: Position) -> object:  # type: ignore[override]
        raise ValueError("a sampler broke")


def test_a_sampler_that_fails_fails_alone() -> None:
    with ExitStack() as stack:
        good = made([SamplingParams(temperature=0.8, top_k=40)] * 2, 1, 400, stack)
        one, *rest = good
        broken = Broken(SamplingParams(), 1, frozenset(), 64, partial(SamplerChain, 400), one._keys)
        stack.enter_context(closing(broken))
        rows = matrix(1, 3, 400, "usual")
        first, error, last = pick_each([one, broken, *rest], rows, [Position()] * 3)
        assert first == one.pick(rows[0], Position())
        assert last == rest[0].pick(rows[2], Position())
        with pytest.raises(ValueError, match="a sampler broke"):
            raise error  # type: ignore[misc]


@pytest.mark.parametrize("settings_", [{"mirostat": 1}, {"mirostat": 2}, {"adaptive_target": 0.5}])
def test_over_the_smallest_temperatures_the_likeliest_id_is_drawn(settings_: dict[str, float]) -> None:
    """Logits become infinite there, as floats."""
    samplers = ("temperature", "adaptive_p") if "adaptive_target" in settings_ else ("temperature",)
    params_ = SamplingParams(temperature=1e-38, samplers=samplers, **settings_)  # type: ignore[arg-type]
    with ExitStack() as stack:
        (sampler,) = made([params_], 1, 30, stack)
        for step in range(4):
            (row,) = matrix(step, 1, 30, "usual")
            row[step] = 9.0
            id_ = sampler.pick(row, Position(step))
            assert row[id_] > 0, "one whose logit over the temperature is infinite"
            sampler.accept(id_)
