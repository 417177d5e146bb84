"""What experiments put between the parts of a runtime: answers that are prescribed, and notes of every round. Runs
nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from oracle import Round
from prescribed import prescribing

from uad.base.types import Clock, Commit, Draft
from uad.engine.decode.drafting import NO_MATCHERS, DraftedText, Drafting
from uad.engine.decode.scheduler import SamplerFactory
from uad.engine.drafter import Drafter
from uad.engine.policy.protocol import Policy
from uad.llama.model import Model
from uad.runtime.wiring import Wiring
from uad.text.grammar.protocol import Matcher

Rounds = dict[int, list[Round]]
"""Rounds by slot, of the last request there that could draft; the first is the prompt's decode."""


class Noting(Drafting):
    """Drafting that notes what was submitted and what became of it."""

    rounds: Rounds

    def begin(self, text: DraftedText) -> None:
        self.rounds[text.seq] = []
        super().begin(text)

    def commit(self, commit: Commit, draft: Draft) -> None:
        if commit.seq in self:
            n = len(commit.ids)
            self.rounds[commit.seq] += [Round(n, draft.p, commit.n_accepted)] if draft.ids else [Round(1)] * n
        super().commit(commit, draft)


class Experiment(Wiring):
    """A runtime whose answers are prescribed, and that notes its rounds."""

    def __init__(self, clock: Clock = perf_counter) -> None:
        self.clock = clock
        self.rounds: Rounds = {}

    def twin(self) -> Experiment:
        """That of a second engine on the same target, with rounds of its own."""
        return Experiment()

    def drafting(
        self,
        drafters: Sequence[Drafter],
        policies: Callable[[], Policy],
        model: Model,
        matchers: Mapping[int, Matcher] = NO_MATCHERS,
    ) -> Drafting:
        noting = Noting(drafters, policies, model.info.n_vocab, model.vocab.eog, self.clock, matchers)
        noting.rounds = self.rounds
        return noting

    def samplers(self, usual: SamplerFactory, model: Model) -> SamplerFactory:
        return prescribing(usual, model.vocab.eog)
