"""Opens a target's head for multi-token prediction as a drafter: that of its own file, or of one that holds nothing
else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.config import HEAD_TYPE, MODEL_TYPE, Config, ModelConfig
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.types import SamplingParams
from uad.drafts.model.choosing import Chooser
from uad.drafts.model.coupling import own_chooser
from uad.drafts.model.head import HeadDrafter
from uad.engine.decode.guard import reason, warn
from uad.engine.sampling.noise import token_keys
from uad.llama import nextn
from uad.llama.head import HeadContext
from uad.llama.head_file import HeadFile, head_in, refuse_alone
from uad.llama.model import Model
from uad.runtime.open import Wiring, open_model
from uad.runtime.pacing import Steps, draft_steps
from uad.runtime.target import LoadedTarget, Progress

_log = logging.getLogger("uad")
_BATCH_ROWS = 512  # rows of a head's pass at most: hidden rows take room


@dataclass(frozen=True, slots=True)
class PlannedHead:
    """A configuration in which it is settled where the head comes from, and what drafts beside it. `file`: of its own,
    if it has one.
    """

    config: Config
    is_wanted: bool = False
    file: ModelConfig | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpenedHead:
    """The head's part of a runtime, or why there is none."""

    drafter: HeadDrafter | None = None
    steps: Steps | None = None
    notes: tuple[str, ...] = ()
    context: HeadContext | None = None
    """The drafter's."""


def plan_head(config: Config) -> PlannedHead:
    """Read the headers of the files before anything is loaded. Raises ConfigError where a head is asked for that is not
    there, or that cannot be run.
    """
    draft, types = config.draft, config.drafting.types
    of_target, own = head_in(config.target.path), head_in(draft.path) if draft is not None else None
    refuse_alone(of_target, f"target {config.target.path}")
    notes: tuple[str, ...] = ()
    if draft is not None and own is not None and own.is_alone and HEAD_TYPE not in types:
        types = tuple(HEAD_TYPE if name == MODEL_TYPE else name for name in types)
        notes = (f"{draft.path.name} holds a head alone: it drafts as {HEAD_TYPE}",)
    if HEAD_TYPE not in types or not config.drafting.defaults.enabled:
        return PlannedHead(config, notes=_hint(config, of_target))
    nextn.check()
    config = replace(config, drafting=replace(config.drafting, types=types))
    if draft is not None and (MODEL_TYPE not in types or (own is not None and own.is_alone)):
        return PlannedHead(replace(config, draft=None), True, _own_file(draft, own, types), notes)
    _checked(of_target, f"target {config.target.path}", "give its head as --model-draft FILE, or ")
    return PlannedHead(replace(config, target=replace(config.target, with_head=True)), True)


def _hint(config: Config, head: HeadFile | None) -> tuple[str, ...]:
    """A line where the target's file has a head that --spec-type does not name."""
    if not config.drafting.defaults.enabled or head is None or head.obstacle:
        return ()
    return (f"the target's file has a head for multi-token prediction: --spec-type {HEAD_TYPE} drafts with it",)


def _own_file(draft: ModelConfig, head: HeadFile | None, types: tuple[str, ...]) -> ModelConfig:
    if MODEL_TYPE in types:
        raise ConfigError(
            f"draft {draft.path}: a head alone cannot draft as {MODEL_TYPE}; leave {MODEL_TYPE} out of --spec-type"
        )
    _checked(head, f"draft {draft.path}", f"leave it out if the target's file has one, add {MODEL_TYPE}, or ")
    return replace(draft, with_head=True)


def _checked(head: HeadFile | None, what: str, remedy: str) -> None:
    """Raises ConfigError unless a head that can be run was found."""
    if head is None:
        raise ConfigError(
            f"{what}: no head for multi-token prediction in it, which --spec-type {HEAD_TYPE} needs; {remedy}"
            "use suffix, which needs no model"
        )
    if head.obstacle:
        raise ConfigError(f"{what}: {head.obstacle}; leave {HEAD_TYPE} out of --spec-type")


def open_head(
    planned: PlannedHead, config: Config, stack: ExitStack, target: LoadedTarget, progress: Progress, wiring: Wiring
) -> OpenedHead:
    """The head on the stack, where one is wanted; none, and the line that says so, where it fails otherwise than by the
    user's fault. Raises ModelLoadError, or ConfigError for a head of another model.
    """
    if not planned.is_wanted:
        return OpenedHead(notes=planned.notes)
    if not target.context.can_take_back:
        return OpenedHead(notes=("the target's memory cannot take drafts back: its head is not used",))
    with ExitStack() as attempt:
        try:
            opened = _opened(planned, config, attempt, target, progress, wiring)
        except (ConfigError, ModelLoadError):
            raise
        except Exception as error:
            warn(_log, error, "the head failed at start (%s)", reason(error))
            return OpenedHead(notes=(f"the head failed at start ({reason(error)}): nothing is drafted with it",))
        stack.enter_context(attempt.pop_all())
        return opened


def _opened(
    planned: PlannedHead, config: Config, stack: ExitStack, target: LoadedTarget, progress: Progress, wiring: Wiring
) -> OpenedHead:
    window = config.drafting.window or target.context.n_ctx
    context, settings = open_context(planned, stack, target, window, progress)
    drafter = HeadDrafter(
        wiring.head(context), _choosers(target.model), target.model.vocab, config.drafting.window, wiring.clock
    )
    where = planned.file.path.name if planned.file is not None else "the target's file"
    note = f"head of {where}: drafts from the target's hidden rows, of the last {window} tokens at first"
    return OpenedHead(drafter, draft_steps(config, context, settings, wiring, "head"), (*planned.notes, note), context)


def open_context(
    planned: PlannedHead, stack: ExitStack, target: LoadedTarget, window: int, progress: Progress
) -> tuple[HeadContext, ModelConfig]:
    """The context of the planned head on the stack, and what it was made with; it reads the target's hidden rows of the
    last `window` ids. Raises ModelLoadError, or ConfigError for a head of another model.
    """
    model = target.model
    if planned.file is not None:
        model = stack.enter_context(open_model(planned.file, "draft", lambda share: progress("loading head", share)))
        if model.vocab.texts != target.model.vocab.texts:
            what = f"a head of another vocabulary than {target.model.path}"
            raise ConfigError(f"draft {planned.file.path}: {what}; give the target's own")
    settings = _settings(target, planned.file)
    context = HeadContext(model, settings, target.context, target.model, window + 1)
    stack.callback(context.close)
    return context, settings


def _settings(target: LoadedTarget, file: ModelConfig | None) -> ModelConfig:
    """How the head's context is made: like the target's; with a file of its own, by the settings of a draft."""
    config, context = target.config, target.context
    if file is not None:
        config = replace(config, path=file.path, n_gpu_layers=file.n_gpu_layers, type_k=file.type_k, type_v=file.type_v)
    n_batch = max(min(config.n_batch, _BATCH_ROWS), context.n_seq)
    return replace(
        config, n_ctx=context.n_ctx * context.n_seq, n_batch=n_batch, n_ubatch=min(config.n_ubatch, _BATCH_ROWS)
    )


def _choosers(target: Model) -> Callable[[SamplingParams, int], Chooser]:
    keys, texts = token_keys(target.vocab.texts), target.vocab.texts

    def choosers(sampling: SamplingParams, n_prompt: int) -> Chooser:
        return own_chooser(sampling, n_prompt, texts, keys)

    return choosers
