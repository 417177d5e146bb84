"""Opens the draft models of a runtime as drafters, or says why nothing is drafted with them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from uad.base.common.files import size_text
from uad.base.config import Config, ModelConfig
from uad.base.console import Report
from uad.base.errors import ConfigError, MappingError, ModelLoadError
from uad.base.events import ModelInfo
from uad.base.types import MODELS, Origin
from uad.drafts.model.draft_context import DraftContext, RowByRow
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.guard import reason, warn
from uad.llama.backend.devices import offloads
from uad.llama.context import Context
from uad.llama.model import Model, training_note
from uad.llama.rearranged import notes as rearranged_notes
from uad.runtime.costs.profile import most_singly
from uad.runtime.models import open_model, side, template_options, tokenizer_notes
from uad.runtime.pacing import Steps, draft_steps
from uad.runtime.target import LoadedTarget
from uad.runtime.timing import Timing
from uad.text.mapping.plan import plan
from uad.text.mapping.recognise import Side
from uad.text.vocab.encode import Encoder

_log = logging.getLogger("uad")


@dataclass(frozen=True)
class OpenedDraft:
    """A draft model's part, or why it is missing."""

    notes: tuple[str, ...]
    drafter: ModelDrafter | None = None
    steps: Steps | None = None
    info: ModelInfo | None = None
    context: Context | None = None
    """The draft model's, if that stayed loaded."""
    config: ModelConfig | None = None
    """The configuration it was loaded with."""


@dataclass(frozen=True)
class OpenedDrafts:
    """The parts of all draft models that draft, and the lines about them and the others."""

    opened: tuple[OpenedDraft, ...]
    notes: tuple[str, ...]

    @property
    def drafters(self) -> tuple[ModelDrafter, ...]:
        """One of each model."""
        return tuple(opened.drafter for opened in self.opened if opened.drafter is not None)

    @property
    def contexts(self) -> tuple[Context, ...]:
        """One of each model that stayed loaded."""
        return tuple(opened.context for opened in self.opened if opened.context is not None)

    @property
    def by_origin(self) -> dict[Origin, Context]:
        """The contexts of those that draft."""
        return {part.drafter.origin: part.context for part in self.opened if part.drafter and part.context}

    @property
    def infos(self) -> tuple[ModelInfo, ...]:
        """Facts of the models that draft."""
        return tuple(opened.info for opened in self.opened if opened.info is not None)

    @property
    def steps(self) -> dict[Origin, Steps]:
        """The costs of each drafter's steps."""
        return {part.drafter.origin: part.steps for part in self.opened if part.drafter and part.steps}


def open_drafts(
    config: Config, stack: ExitStack, target: LoadedTarget, encoder: Encoder, progress: Report, timing: Timing
) -> OpenedDrafts:
    """The draft models' parts on the stack; where one loads and then fails, none of it, and the line that says so."""
    if config.draft is None:
        return OpenedDrafts((), ())
    if not target.context.can_take_back:
        note = (
            f"the memory of {target.model.info.desc} cannot take drafts back: plain decoding, the draft is not loaded",
        )
        return OpenedDrafts((), note)
    opened: list[OpenedDraft] = []
    if not config.draft_from:
        for own in config.drafts:
            origin = MODELS[sum(part.drafter is not None for part in opened)]
            part = _opened(config, own, origin, stack, target, encoder, progress, timing)
            if part.drafter is not None and config.more_drafts:
                part = replace(part, notes=(f"{origin}: {own.path.name}", *part.notes))
            opened.append(part)
        return _together(opened)
    # it was chosen: where it fails the next one may do, and answers need none
    for path in chosen_from(config.draft.path, config.draft_from):
        own = replace(config.draft, path=path)
        try:
            opened.append(_opened(config, own, Origin.MODEL, stack, target, encoder, progress, timing))
        except Exception as error:
            warn(_log, error, "the draft %s was chosen, and cannot be used (%s)", path.name, reason(error))
            continue
        if opened[-1].drafter is not None:
            return _together(opened)
    return _together([*opened, OpenedDraft(("none of the drafts that were chosen can be used: plain decoding",))])


def _together(opened: Sequence[OpenedDraft]) -> OpenedDrafts:
    return OpenedDrafts(tuple(opened), tuple(note for part in opened for note in part.notes))


def chosen_from(path: Path, choices: tuple[Path, ...]) -> tuple[Path, ...]:
    """The drafts that are left to try, this one first."""
    return choices[choices.index(path) :] if path in choices else (path, *choices)


def _opened(
    config: Config,
    own: ModelConfig,
    origin: Origin,
    stack: ExitStack,
    target: LoadedTarget,
    encoder: Encoder,
    progress: Report,
    timing: Timing,
) -> OpenedDraft:
    """The part of one draft model on the stack, if it drafts. Raises what loading and mapping do."""
    with ExitStack() as attempt:
        model = attempt.enter_context(open_model(own, "draft", lambda share: progress("loading draft", share)))
        if config.draft_from:  # its context was sized for the first choice, which may have been trained on longer texts
            own = replace(own, n_ctx=min(own.n_ctx, model.info.n_ctx_train * config.n_parallel))
        try:
            side_of = side(target.model, config.templates.chat_template)
            opened = draft_on(config, own, attempt, model, side_of, target.context.n_ctx, encoder, timing, origin)
        except (ConfigError, ModelLoadError, MappingError):  # the user's
            raise
        except Exception as error:
            warn(_log, error, "the draft model failed at start (%s)", reason(error))
            return OpenedDraft((f"draft {model.info.desc} failed at start ({reason(error)}): plain decoding",))
        if opened.drafter is not None or not config.draft_from:
            stack.enter_context(attempt.pop_all())
        return replace(opened, config=own, notes=(*_pair_note(target.model, model), *opened.notes))


def draft_on(
    config: Config,
    own: ModelConfig,
    stack: ExitStack,
    model: Model,
    target: Side,
    n_ctx: int,
    encoder: Encoder,
    timing: Timing,
    origin: Origin = Origin.MODEL,
) -> OpenedDraft:
    """The part of a loaded draft model, on the stack: for a target of which no more is known than its vocabulary, its
    template, and that each of its slots has n_ctx positions. Raises what loading and mapping do.
    """
    draft = stack.enter_context(Context(model, own, config.n_parallel, "draft"))
    if not draft.can_take_back:
        note = f"the memory of the draft {model.info.desc} cannot take back ids: plain decoding"
        return OpenedDraft((note,), context=draft)
    draft.choose_threads(own)
    rules = plan(target, side(model), template_options(config))
    drafter = ModelDrafter(
        _row_by_row(draft, own),
        encoder.sharing(),
        rules.rules,
        window=config.drafting.window,
        clock=timing.clock,
        origin=origin,
    )
    notes = (
        *rearranged_notes(own, "draft"),
        *draft.notes,
        *tokenizer_notes(own, "draft"),
        *training_note(own, "draft", draft.n_ctx, model.info.n_ctx_train, model.meta),
        *rules.notes,
    )
    if draft.n_ctx < n_ctx:
        has = f"the draft's context has {draft.n_ctx} of the target's {n_ctx} tokens"
        notes += (f"{has}: for longer texts it drafts from their last part",)
    return OpenedDraft(notes, drafter, draft_steps(config, draft, own, timing), model.info, draft)


def _row_by_row(draft: Context, config: ModelConfig) -> DraftContext:
    """The draft's context; row by row where a device computes it and few rows cost less one by one."""
    if not (draft.can_stop and offloads(config) and draft.n_ctx > 1):
        return draft
    most = most_singly(draft)
    return draft if most == 1 else RowByRow(draft, most)


def _pair_note(target: Model, draft: Model) -> tuple[str, ...]:
    """A line where the draft model cannot be the faster one, as far as its size shows."""
    out = "drafts that cost as much as what they replace gain nothing; choose a smaller draft model"
    if draft.path.samefile(target.path):
        return (f"warning: target and draft are the same file, {target.path}: {out}",)
    if draft.info.size > target.info.size:
        sizes = f"{size_text(draft.info.size)}, the target {size_text(target.info.size)}"
        return (f"warning: the draft {draft.path.name} is larger than its target ({sizes}); are they swapped? {out}",)
    return ()
