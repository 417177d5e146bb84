"""The steps of one request, made of its stages: neighbouring stages of llama.cpp are one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uad.base.types import SamplingParams
from uad.engine.sampling.dry import BreakersOf, Dry
from uad.engine.sampling.stages import LogitBias, SamplerStage, Stage, reach
from uad.engine.sampling.steps import (
    AdaptiveP,
    Allowed,
    BadWords,
    Chain,
    Mirostat,
    Native,
    NotBanned,
    SamplingStep,
    Sometimes,
)

ChainFactory = Callable[[Sequence[Stage]], Chain]


class StepMaker:
    """Makes the steps of one request. prompt: what penalties look back on first. n_vocab: ids of the vocabulary."""

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt: Sequence[int],
        n_vocab: int,
        chains: ChainFactory,
        breakers: BreakersOf,
    ) -> None:
        self._params = params
        self._seed = seed
        self._prompt = prompt
        self._n_vocab = n_vocab
        self._chains = chains
        self._breakers = breakers

    def make(self, stages: Sequence[Stage]) -> list[SamplingStep]:
        """The steps, in order; what a request forbids comes first. Raises what making one of them does."""
        allowed, words = self._params.allowed, self._params.bad_words
        steps: list[SamplingStep] = [Allowed(allowed)] if allowed else []
        steps += [BadWords(words)] if words else []
        try:
            self._add(steps, stages)
        except BaseException:
            for step in steps:
                step.close()
            raise
        return steps

    def _add(self, steps: list[SamplingStep], stages: Sequence[Stage]) -> None:
        group: list[Stage] = []
        for i, stage in enumerate(stages):
            if isinstance(stage, LogitBias) or (stage.sampler.native and stage.chance >= 1 and not stage.sampler.logs):
                group.append(stage)
                continue
            steps += self._native(group)
            group = []
            if stage.sampler.logs:
                steps.append(NotBanned())
                group.append(stage)
            else:
                steps.append(self._alone(stage, sum(earlier == stage for earlier in stages[:i])))
        steps += self._native(group)

    def _native(self, group: Sequence[Stage]) -> list[SamplingStep]:
        return [Native(self._chains(group), reach(group), self._prompt)] if group else []

    def _alone(self, stage: SamplerStage, n_before: int) -> SamplingStep:
        """A step of our own, or one that acts at random: each time that a request names it has random numbers of its
        own.
        """
        name, args = stage.sampler.name, stage.args
        if stage.sampler.native:
            lot = f"{name}{n_before + 1}" if n_before else name
            return Sometimes(self._native([stage])[0], self._seed, stage.chance, lot)
        if name == "dry":
            multiplier, base, allowed, last_n = args
            breakers = self._breakers(self._params.dry_sequence_breakers)
            return Dry(multiplier, base, int(allowed), int(last_n), breakers, self._prompt)
        if name == "mirostat":
            version, tau, eta = args
            return Mirostat(int(version), tau, eta, self._n_vocab)
        if name == "adaptive_p":
            return AdaptiveP(*args)
        raise AssertionError(f"no step for the sampler {name}")
