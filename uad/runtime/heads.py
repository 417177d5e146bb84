"""Opens a target's head as a drafter: that of its own file, or of one that holds nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.config import ModelConfig
from uad.base.console import Report
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.types import SamplingParams
from uad.drafts.model.choosing import Chooser
from uad.drafts.model.coupling import own_chooser
from uad.drafts.model.head import HeadDrafter
from uad.engine.decode.guard import reason, warn
from uad.engine.sampling.noise import token_keys
from uad.llama.head import HEADS, HeadContext
from uad.llama.kernels import weights
from uad.llama.model import Model
from uad.runtime.models import open_model
from uad.runtime.pacing import Steps, draft_steps
from uad.runtime.plan import Plan
from uad.runtime.target import LoadedTarget
from uad.runtime.timing import Timing

_log = logging.getLogger("uad")
_BATCH_ROWS = 512  # rows of a head's pass at most: hidden rows take room


@dataclass(frozen=True)
class OpenedHead:
    """The head's part of a runtime, or why it is missing."""

    drafter: HeadDrafter | None = None
    steps: Steps | None = None
    notes: tuple[str, ...] = ()
    context: HeadContext | None = None
    """The drafter's."""


def open_head(plan: Plan, stack: ExitStack, target: LoadedTarget, progress: Report, timing: Timing) -> OpenedHead:
    """The head on the stack, where the plan has one; none, and the line that says so, where it fails otherwise than by
    the user's fault. Raises ModelLoadError, or ConfigError for a head of another model.
    """
    if plan.head is None:
        return OpenedHead()
    if not target.context.can_take_back:
        return OpenedHead(notes=("the target's memory cannot take drafts back: its head is not used",))
    with ExitStack() as attempt:
        try:
            opened = _opened(plan, attempt, target, progress, timing)
        except Exception as error:
            if isinstance(error, ConfigError | ModelLoadError) and not plan.config.draft_from:
                raise  # the user's; one that was chosen costs a line
            warn(_log, error, "the head failed at start (%s)", reason(error))
            return OpenedHead(notes=(f"the head failed at start ({reason(error)}): nothing is drafted with it",))
        stack.enter_context(attempt.pop_all())
        return opened


def _opened(plan: Plan, stack: ExitStack, target: LoadedTarget, progress: Report, timing: Timing) -> OpenedHead:
    config = plan.config
    window = config.drafting.window or target.context.n_ctx
    context, own = open_context(plan, stack, target, window, progress)
    drafter = HeadDrafter(context, _choosers(target.model), target.model.vocab, config.drafting.window, timing.clock)
    where = plan.head_file.path.name if plan.head_file is not None else "the target's file"
    notes = [f"head of {where}: drafts from the target's hidden rows, of the last {window} tokens at first"]
    if plan.head_file is not None:
        notes.append(f"head: {weights.note(own, weights.of(own, context.model.buffers))}")
    return OpenedHead(drafter, draft_steps(config, context, own, timing, "head"), tuple(notes), context)


def open_context(
    plan: Plan, stack: ExitStack, target: LoadedTarget, window: int, progress: Report
) -> tuple[HeadContext, ModelConfig]:
    """The context of the plan's head on the stack, and its settings; it reads the target's hidden rows of the last
    `window` ids. Raises ModelLoadError, or ConfigError for a head of another model.
    """
    model, file = target.model, plan.head_file
    if file is not None:
        model = stack.enter_context(open_model(file, "draft", lambda share: progress("loading head", share)))
        if model.vocab.texts != target.model.vocab.texts:
            what = f"a head of another vocabulary than {target.model.path}"
            raise ConfigError(f"draft {file.path}: {what}; give the target's own")
    own = _settings(plan, target)
    assert plan.head is not None
    context = HEADS[plan.head.origin](model, plan.head, own, target.context, target.model, window + 1)
    stack.callback(context.close)
    return context, own


def _settings(plan: Plan, target: LoadedTarget) -> ModelConfig:
    """How the head's context is made: like the target's; with a file of its own, by the settings of a draft."""
    own, n_seq, file = target.config, target.context.n_seq, plan.head_file
    if file is not None:
        own = replace(own, path=file.path, n_gpu_layers=file.n_gpu_layers, type_k=file.type_k, type_v=file.type_v)
    n_batch = max(min(own.n_batch, _BATCH_ROWS), n_seq)
    n_ctx = target.context.n_ctx * n_seq
    return replace(own, n_ctx=n_ctx, n_batch=n_batch, n_ubatch=min(own.n_ubatch, _BATCH_ROWS))


def _choosers(target: Model) -> Callable[[SamplingParams, int], Chooser]:
    keys, texts = token_keys(target.vocab.texts), target.vocab.texts

    def choosers(sampling: SamplingParams, n_prompt: int) -> Chooser:
        return own_chooser(sampling, n_prompt, texts, keys)

    return choosers
