"""Samplers that are ours beside llama.cpp's own: the same candidates with the same logits, step by step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kit.models import TARGET
from kit.toys import TARGET_VOCAB, ScriptedModel, make_engine, run

from uad.base.common.samplers import SETTINGS, SamplerEntry
from uad.base.config import ModelConfig
from uad.base.errors import NotSupportedError
from uad.base.types import Request, SamplingParams, SpeculativeParams
from uad.engine.sampling.chain import StepMaker
from uad.engine.sampling.dry import Breakers, Dry, breakers_of
from uad.engine.sampling.noise import Position
from uad.engine.sampling.sampler import Sampler
from uad.engine.sampling.stages import SamplerStage, Stage, stages
from uad.engine.sampling.steps import AdaptiveP, Mirostat
from uad.llama import samplers
from uad.llama.model import Model
from uad.llama.samplers import SamplerChain

OFF = SamplingParams(**{name: one.off[0] for name, one in SETTINGS.items() if one.off})
HERE = Position()


def native(constructor: str, n_vocab: int, *args: Any, more: tuple = ()) -> SamplerChain:
    entry = SamplerEntry("its own", "", f"llama_sampler_init_{constructor}", more)
    return SamplerChain(n_vocab, [SamplerStage(entry, args)])


def rows(n: int, n_vocab: int, seed: int, width: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, width, (n, n_vocab)).astype(np.float32)


@pytest.mark.parametrize("tau", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_keeps_what_llama_cpps_keeps_while_mu_moves(version: int, tau: float) -> None:
    n_vocab, seed, eta = 300, 7, 0.2
    args = (n_vocab, seed, tau, eta, 100) if version == 1 else (seed, tau, eta)
    its = native("mirostat" if version == 1 else "mirostat_v2", n_vocab, *args)
    ours = Mirostat(version, tau, eta, n_vocab)
    sizes, n_other = set(), 0
    for row in rows(200, n_vocab, version, 1.5):  # of a surprise above tau, or mu would grow without end
        ids, _ = its.apply(row)
        drawn = int(ids[its._array.selected])
        kept, logits = ours.apply(None, row, HERE)
        assert kept is not None
        n_other += len(set(kept.tolist()) ^ set(ids.tolist()))
        assert np.array_equal(logits, row[kept])
        sizes.add(len(kept))
        its.accept(drawn)
        ours.accept(drawn)
    assert n_other <= 4, "at the edge rounding may decide"
    assert len(sizes) > 5
    its.close()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("tau", "eta"), [(0.0, 1000.0), (1000.0, 1000.0), (5.0, 0.0)])
def test_mirostat_keeps_something_whatever_mu_is(version: int, tau: float, eta: float) -> None:
    ours = Mirostat(version, tau, eta, 30)
    for row in rows(20, 30, 9):
        row[::3] = -np.inf
        for some in (np.arange(30), np.array([5]), np.array([7, 8])):
            kept, logits = ours.apply(some, row[some], HERE)
            assert kept is not None
            assert set(kept.tolist()) <= set(some.tolist())
            assert logits.max() > -np.inf
            ours.accept(int(kept[logits.argmin()] if logits.min() > -np.inf else kept[0]))


def test_adaptive_p_moves_logits_as_llama_cpps_does() -> None:
    n_vocab = 50
    its, ours = native("adaptive_p", n_vocab, 0.3, 0.8, 5), AdaptiveP(0.3, 0.8)
    for row in rows(100, n_vocab, 3):
        row[::7] = -np.inf
        ids, logits = its.apply(row)
        drawn = int(ids[its._array.selected])
        _, moved = ours.apply(None, row, HERE)
        assert np.allclose(moved[ids], logits, atol=1e-3)
        its.accept(drawn)
        ours.accept(drawn)
    its.close()


@pytest.mark.parametrize("last_n", [5, 40, 400])
@pytest.mark.parametrize(("base", "allowed"), [(1.75, 2), (1.0, 0), (3.0, 1), (40.0, 4)])
def test_dry_takes_off_what_llama_cpps_takes_off(base: float, allowed: int, last_n: int) -> None:
    n_vocab, rng = 12, np.random.default_rng(last_n)
    prompt = rng.integers(0, 3, 60).tolist() + [1] * 40
    its = native("dry", n_vocab, None, 0.8, base, allowed, last_n, more=(None, 0))
    ours = Dry(0.8, base, allowed, last_n, Breakers({}), prompt)
    for id_ in prompt[-last_n:]:
        its.accept(id_)
    n_penalties = 0
    for row in rows(150, n_vocab, 5):
        ids, logits = its.apply(row)
        expected = np.empty(n_vocab, np.float32)
        expected[ids] = logits
        _, moved = ours.apply(None, row, HERE)
        assert np.allclose(moved, expected, rtol=1e-4, atol=1e-4)
        n_penalties += int((moved != row).sum())
        some = np.array([4, 1, 0])
        assert np.array_equal(ours.apply(some, row[some], HERE)[1], moved[some])
        id_ = int(rng.integers(0, 2 + int(rng.integers(0, 3))))
        its.accept(id_)
        ours.accept(id_)
    assert n_penalties > 5 or allowed >= last_n - 1
    its.close()


def test_dry_breaks_where_llama_cpps_breaks() -> None:
    texts = ("\n", ":", "the", "quick brown", "ere is")
    with Model(ModelConfig(TARGET), "target") as model:
        vocab, n_vocab = model.vocab, model.info.n_vocab
        array = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
        words = [piece or vocab.special_names.get(id_, "").encode() for id_, piece in enumerate(vocab.pieces)]
        ours = Dry(1.0, 2.0, 1, 200, breakers_of(words, vocab.tokenize)(texts), ())
        its = native("dry", n_vocab, model.native_vocab, 1.0, 2.0, 1, 200, more=(array, len(texts)))
        text = b"a quick brown fox: where is the fox?\nthere is a quick brown cat: where is the other cat?\n" * 6
        row, n_changed = np.zeros(n_vocab, np.float32), set()
        for id_ in vocab.tokenize(text):
            ids, logits = its.apply(row)
            expected = np.zeros(n_vocab, np.float32)
            expected[ids] = logits
            moved = ours.apply(None, row, HERE)[1]
            assert np.array_equal(moved, expected)
            n_changed.add(int((moved != 0).sum()))
            its.accept(id_)
            ours.accept(id_)
        assert {0, 1} <= n_changed, "some repetitions are broken off, some are not"
        its.close()


def drawn(params: SamplingParams, row: np.ndarray, n: int) -> np.ndarray:
    """How often each id is drawn from one row."""
    keys = np.arange(1, len(row) + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    counts = np.zeros(len(row))
    for seed in range(n):
        sampler = Sampler(params, seed, frozenset(), 64, lambda stages: SamplerChain(len(row), stages), keys)
        counts[sampler.pick(row, HERE)] += 1
        sampler.close()
    return counts / n


def test_what_is_drawn_has_the_probability_that_is_told() -> None:
    row = rows(1, 20, 2)[0]
    for changes in ({"mirostat": 2, "mirostat_tau": 2.0}, {"mirostat": 1}, {"adaptive_target": 0.2}, {"top_k": 4}):
        params = replace(OFF, **changes)
        keys = np.arange(1, 21).astype(np.uint64)
        sampler = Sampler(params, 1, frozenset(), 64, lambda stages: SamplerChain(20, stages), keys)
        id_ = sampler.pick(row, HERE)
        told = sampler.drawn_prob(id_, 20, [b""] * 20)
        p = np.zeros(20)
        for one in told.top:
            p[one.id] = np.exp(one.logprob)
        assert abs(p.sum() - 1) < 1e-5
        assert abs(p[id_] - np.exp(told.logprob)) < 1e-6
        n = 3000
        assert np.abs(drawn(params, row, n) - p).max() < 4 * np.sqrt(0.25 / n)
        sampler.close()


def words(text: bytes) -> tuple[int, ...]:
    return tuple(TARGET_VOCAB.tokenize(text))


def test_bad_words_are_never_written_and_allowed_ids_are_all_that_is() -> None:
    def answer(**sampling) -> bytes:
        params = SamplingParams(temperature=0.0, **sampling)
        request = Request(words(b"The"), params, SpeculativeParams(enabled=False), max_tokens=30)
        return TARGET_VOCAB.join(run(make_engine(ScriptedModel(TARGET_VOCAB)), [request])[0].ids)

    assert b" brown fox" in answer()
    assert b" brown fox" not in answer(bad_words=(words(b" brown fox"),))
    assert b" brown" in answer(bad_words=(words(b" brown fox"),))
    assert b" brown" not in answer(bad_words=(words(b" brown"),))
    assert set(answer(allowed=(*words(b"x"), *words(b"y")))) <= set(b"xy")


# --- what cannot be made leaves nothing behind


def test_a_chain_of_which_one_stage_cannot_be_made_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    freed, real = [], samplers.lib.llama_sampler_free

    def free(chain: object) -> None:
        freed.append(chain)
        real(chain)

    def broken(*_: object) -> object:
        raise NotSupportedError("no such stage", "samplers")

    monkeypatch.setattr(samplers.lib, "llama_sampler_free", free)
    monkeypatch.setattr(samplers, "_make", broken)
    with pytest.raises(NotSupportedError):
        samplers.SamplerChain(8, stages(SamplingParams(top_k=3), frozenset(), 64))
    assert len(freed) == 1


def test_steps_made_before_one_that_cannot_be_made_are_closed() -> None:
    """Native stages before and after a step of our own are two chains; the second one fails."""
    made: list[OneChain] = []

    def chains(group: Sequence[Stage]) -> OneChain:
        if made:
            raise NotSupportedError("no such stage", "samplers")
        made.append(OneChain())
        return made[0]

    params = SamplingParams(samplers=("top_k", "dry", "temperature"), top_k=3, dry_multiplier=0.8, temperature=0.5)
    maker = StepMaker(params, 1, (1, 2), 8, chains, lambda texts: Breakers({}))
    with pytest.raises(NotSupportedError):
        maker.make(stages(params, frozenset(), 64))
    assert made[0].is_closed


class OneChain:
    is_closed = False

    def apply(self, row, ids=None):
        raise AssertionError("not asked")

    def accept(self, id_: int) -> None: ...

    def close(self) -> None:
        self.is_closed = True
