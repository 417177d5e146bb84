"""What joins the parts of a runtime. In a server nothing stands between them; experiments put something of their own
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from uad.base.config import ModelConfig
from uad.drafts.model.head import Head
from uad.engine.decode.drafting import NO_MATCHERS, Drafting
from uad.engine.decode.scheduler import SamplerFactory
from uad.engine.decode.target import Target
from uad.engine.drafter import Drafter
from uad.engine.policy.cost import CostSample
from uad.engine.policy.protocol import Policy
from uad.llama.context import Context
from uad.llama.head import HeadContext
from uad.llama.model import Model
from uad.runtime.costs.profile_store import curve
from uad.text.grammar.protocol import Matcher


class Wiring:
    """How parts are joined in a server: with nothing between them. A subclass may change any of it; this is the one
    place where experiments may put something of their own.
    """

    clock: Callable[[], float] = staticmethod(perf_counter)

    def target(self, context: Context) -> Target:
        """What the loop decodes on."""
        return context

    def draft(self, context: Context) -> Target:
        """What the draft model is run on."""
        return context

    def head(self, context: HeadContext) -> Head:
        """What a head is run on."""
        return context

    def curve(
        self, context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        """What passes cost, for the policy, and whether that was stored. Raises what decoding does."""
        return curve(context, config, role, sizes, seconds)

    def drafting(
        self,
        drafters: Sequence[Drafter],
        policies: Callable[[], Policy],
        model: Model,
        matchers: Mapping[int, Matcher] = NO_MATCHERS,
    ) -> Drafting:
        """Drafters and policy as one. matchers: of the running sequences that are constrained."""
        return Drafting(drafters, policies, model.info.n_vocab, model.vocab.eog, self.clock, matchers)

    def samplers(self, usual: SamplerFactory, model: Model) -> SamplerFactory:
        """What makes a sampler for each request; usual: from its parameters."""
        return usual


WIRING = Wiring()
