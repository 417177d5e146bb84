"""Opens what drafts inside vLLM: the same drafters as in uad's own server, for a target that is known by its vocabulary
and its template.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.config import Config
from uad.base.errors import ConfigError
from uad.base.types import Ask, Commit, Origin, SpecPolicy
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.drafting import Drafting
from uad.engine.drafter import Drafter
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostSample
from uad.runtime.draft_model import draft_on
from uad.runtime.lookups import build_lookups, close_lookup, lookup_notes
from uad.runtime.models import open_model
from uad.runtime.target import kernel_notes
from uad.runtime.timing import TIMING
from uad.text.mapping.recognise import Side
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable
from uad.vllm.batch import machine_of

_TEXT = b"def first(values):\n    return values[0]  # 1234\n\nThe quick brown fox jumps; caf\xc3\xa9.\n"
_MOST_POSITIONS = 4096  # of the draft model for each slot, unless --ctx-size-draft says otherwise


@dataclass(frozen=True)
class OpenedDrafters:
    """notes: lines to show at start. Closing `stack` frees the draft model and writes files."""

    config: Config
    vocab: VocabTable
    drafters: tuple[Drafter, ...]
    model: ModelDrafter | None
    steps: tuple[CostSample, ...]
    notes: tuple[str, ...]
    stack: ExitStack

    def drafting(self, samples: Sequence[CostSample], most_rows: int) -> Drafting:
        """Drafters and policy as one, by what steps of the engine cost, which have at most most_rows rows; no samples:
        drafts are as long as the settings say.
        """
        weighed = frozenset(map(Origin, self.config.drafting.weighed))
        window = self.config.drafting.window

        def policy() -> AutoPolicy:
            return AutoPolicy(machine_of(samples, most_rows, self.steps) if samples else None, weighed, window)

        return Drafting(self.drafters, policy, self.vocab.n_vocab, self.vocab.eog)


def open_drafters(config: Config, vocab: VocabTable, template: str, max_len: int) -> OpenedDrafters:
    """On the thread that will draft. max_len: ids of the target's longest text. Raises ConfigError, ModelLoadError or
    MappingError.
    """
    with ExitStack() as stack:
        encoder = Encoder(vocab).prepare()
        free = build_lookups(config.drafting, vocab, config.n_parallel)
        for drafter in free:
            stack.callback(close_lookup, drafter)
        notes, model, steps = tuple[str, ...](), None, tuple[CostSample, ...]()
        if config.draft is not None:
            loaded = stack.enter_context(open_model(config.draft, "draft"))
            own = Side(vocab, config.templates.template(template) or None, vocab.name)
            n_ctx = min(max_len, _MOST_POSITIONS)
            sized = replace(
                config.draft,
                n_ctx=config.draft.n_ctx or min(n_ctx, loaded.info.n_ctx_train) * config.n_parallel,
            )
            opened = draft_on(config, sized, stack, loaded, own, n_ctx, encoder, TIMING)
            notes, model = (*kernel_notes(sized, loaded), *opened.notes), opened.drafter
            steps = opened.steps.samples if opened.steps is not None else ()
            if model is not None:
                _warm_up(model, encoder)
        drafters: tuple[Drafter, ...] = (*free, *([model] if model is not None else []))
        if not drafters or not config.drafting.defaults.enabled:
            raise ConfigError(
                "nothing drafts: name a draft model (UAD_DRAFT=FILE), or drafters without one "
                "(LLAMA_ARG_SPEC_TYPE=suffix)"
            )
        fixed = "" if config.drafting.defaults.policy is SpecPolicy.AUTO else "; their length is fixed"
        notes = (*notes, *lookup_notes(free, config.drafting.lookup), f"slots: {config.n_parallel}{fixed}")
        return OpenedDrafters(config, vocab, drafters, model, steps, notes, stack.pop_all())


def _warm_up(model: ModelDrafter, encoder: Encoder) -> None:
    """Draft for a text of no one's: what is made when it is first used takes tenths of a second, which no request
    should wait for, and which would be taken for the price of a draft.
    """
    ids = encoder.encode(_TEXT)
    for n in (len(ids) // 2, len(ids) - 1):
        model.begin(0, ids[:n])
        model.propose([Ask(0, 8)])
        model.observe(Commit(0, tuple(ids[n : n + 1])))
        model.propose([Ask(0, 8)])
        model.end(0)
    model.reset()
