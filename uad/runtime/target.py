"""Opens the target, model and context, and measures how large its passes must be so that every batch computes the same
bits (`--exact`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from uad.base.config import Config, ModelConfig
from uad.base.console import Report
from uad.base.errors import ConfigError
from uad.engine.decode.layout import Least, longest_draft
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.kernels import weights
from uad.llama.kernels.weights import Weights
from uad.llama.memory import Way
from uad.llama.model import Model, training_note
from uad.llama.probe import least_agreeing_rows
from uad.llama.rearranged import rearranged
from uad.runtime.models import end_note, open_model, tokenizer_notes
from uad.runtime.plan import Plan

_ALWAYS = frozenset(("Q8_0", "Q5_0", "Q4_1", "Q4_0"))
"""Weights whose rows llama.cpp's own kernels for CPUs compute alike in any pass."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Facts of the target that only its open context shows. least: rows that a pass must have so that all agree;
    agrees: whether there is such a number, True where nobody asks for one; notes: lines to print.
    """

    least: Least = field(default_factory=Least)
    agrees: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedTarget:
    """A loaded target. `config` is the one it was loaded with; `notes` are lines to print."""

    model: Model
    context: Context
    config: ModelConfig
    measured: Measured
    notes: tuple[str, ...]

    @property
    def least(self) -> Least:
        """Rows that a pass must have."""
        return self.measured.least


def open_target(plan: Plan, stack: ExitStack, progress: Report) -> LoadedTarget:
    """The first of the plan's attempts whose passes agree, or else the last one, on the stack. Raises ModelLoadError,
    or ConfigError for a tokenizer that disagrees with it and for a batch too small for `--exact`.
    """
    for own in plan.targets:
        with ExitStack() as attempt:
            target = _opened(plan.config, own, attempt, progress)
            if target.measured.agrees or own is plan.targets[-1]:
                stack.enter_context(attempt.pop_all())
                return target
    raise AssertionError("a plan has a target")


def _opened(config: Config, own: ModelConfig, stack: ExitStack, progress: Report) -> LoadedTarget:
    model = stack.enter_context(open_model(own, "target", lambda share: progress("loading target", share)))
    context = stack.enter_context(Context(model, own, config.n_parallel, "target"))
    measured = Measured()
    if config.drafting.exact:
        progress("measuring which passes agree, for --exact", 0.0)
        measured = agreeing(context, own)
        progress("measuring which passes agree, for --exact", 1.0)
    notes = (
        f"context: {context.n_ctx} tokens" + (f" in each of {context.n_seq} slots" if context.n_seq > 1 else ""),
        *training_note(config.target, "target", context.n_ctx, model.info.n_ctx_train, model.meta),
        *context.notes,
        *end_note(model),
        *memory_note(context),
        *kernel_notes(own, model, *texts_note(own, context, config.drafting.exact)),
        *tokenizer_notes(own, "target"),
        *(f"adapter {adapter.id}: {adapter.path}, scale {adapter.scale:g}" for adapter in model.adapters.infos),
        *measured.notes,
        *(_length_note(config, context, measured.least) if measured.agrees else ()),
    )
    return LoadedTarget(model, context, own, measured, notes)


def kernel_notes(config: ModelConfig, model: Model, *words: str) -> tuple[str, ...]:
    """The line that says which kernels multiply a model's weights; words: what follows from that."""
    return ("; ".join((weights.note(config, weights.of(config, model.buffers)), *words)),)


def texts_note(own: ModelConfig, context: Context, is_exact: bool) -> tuple[str, ...]:
    """The end of the line about kernels, where passes of several rows may have other bits than single rows."""
    if is_exact or are_alike(own, context, weights.of(own, context.model.buffers)):
        return ()
    return ("so texts may differ with drafts (--exact)",)


def are_alike(config: ModelConfig, context: Context, share: Weights) -> bool:
    """Whether every pass computes a row alike without `--exact`, as far as that is known. share: which kernels multiply
    the target's weights.
    """
    if share.are_ours and kernels.keep_rows(config):
        return True
    if share.places or share.own or share.adapters or config.loras:
        return False
    # llama.cpp multiplies single rows otherwise in recurrent layers, and in attention that is no flash attention
    return set(share.left) <= _ALWAYS and context.memory.way is Way.POSITIONS and context.rows_are_apart


def memory_note(context: Context) -> tuple[str, ...]:
    """A line where ids are not simply taken back by position."""
    memory = context.memory
    copy = f"a copy of the state ({memory.keep_ms:.1f} ms), after which ids that were right are decoded again"
    if memory.way is Way.NOTHING:
        return ("memory: the model's state can neither be taken back nor copied: nothing is drafted",)
    if memory.way is Way.CHECKPOINTS:
        return (f"memory: drafts are taken back with {copy}",)
    if memory.way is Way.SNAPSHOTS:
        return (
            (
                f"memory: drafts of up to {memory.n_snapshots} tokens are taken back with snapshots of the state, "
                "longer "
                f"ones with {copy}"
            ),
        )
    return (
        (f"memory: the cache of the sliding window holds {memory.n_swa} tokens and a batch (--swa-full: all)",)
        if memory.n_swa
        else ()
    )


def _length_note(config: Config, context: Context, least: Least) -> tuple[str, ...]:
    """A line where drafts cannot be as long as was asked for."""
    n = longest_draft(context.n_alike, context.n_batch, context.n_seq, least)
    asked = config.drafting.defaults.n_max or 0
    return (
        (f"drafts have at most {n} tokens, not {asked}: a pass here has at most {context.n_alike}",)
        if asked > n
        else ()
    )


def agreeing(context: Context, config: ModelConfig) -> Measured:
    """How large a pass must be for `--exact`, measured. Raises ConfigError for a batch that is too small for it."""
    if not context.can_take_back:
        return Measured(notes=("--exact has no effect: the model's memory cannot take back dummy rows",))
    # without flash attention single rows have a kernel of their own, whose bits differ too seldom for a sample
    least_rows = least_agreeing_rows(context, 1 if context.rows_are_apart else 2)
    if least_rows is None:
        no = "--exact has no effect: on this backend no batch sizes compute the same bits for this model"
        return Measured(agrees=False, notes=(no,))
    least = Least(least_rows[0], of_each=least_rows[1] or _are_apart(context))
    if context.n_batch < (n_rows := context.n_seq * least.rows):
        raise ConfigError(
            f"--exact pads each of {context.n_seq} slots to {least.rows} rows for this model, more than --batch-size "
            f"{context.n_batch}; "
            f"give -b {n_rows} or more"
        )
    how = "" if rearranged(config).is_on else " (weights are not rearranged for this processor: slower prompts)"
    return Measured(least, notes=(f"--exact: {_why(least, context.n_seq)}{how}",))


def _are_apart(context: Context) -> bool:
    """Whether each sequence must have the rows that a pass must have, whatever was measured: without flash attention,
    and with a recurrent state. Its layers multiply each sequence's rows apart, and differ so little with their number
    that few ids of many show it; with snapshots llama.cpp cuts passes otherwise, too.
    """
    return not context.rows_are_apart or context.memory.way is not Way.POSITIONS


def _why(least: Least, n_seq: int) -> str:
    """The effect of `--exact`, in words."""
    if least.rows == 1:
        return "any batch gives the same bits"
    each = " of each slot" if least.of_each and n_seq > 1 else ""
    return f"batches of {least.rows} rows or more{each} give the same bits; smaller ones are padded"
