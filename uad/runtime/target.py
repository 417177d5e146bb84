"""Opens the target: model, context, and how large its passes must be so that every batch computes the same bits
(`--exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.common.cores import cpu_quota, physical_cores, usable_cores
from uad.base.config import Config, ModelConfig
from uad.base.errors import ConfigError
from uad.engine.decode.layout import Least, longest_draft
from uad.llama.backend import amx
from uad.llama.backend.devices import has_cpu_kernels, offloads
from uad.llama.context import Context, attention
from uad.llama.kernels import use as kernels
from uad.llama.kernels import weights
from uad.llama.kernels.weights import Weights
from uad.llama.memory import Way
from uad.llama.model import Model, training_note
from uad.llama.probe import least_agreeing_rows
from uad.llama.rearranged import notes as rearranged_notes
from uad.llama.rearranged import rearranged
from uad.runtime.open import end_note, open_model, tokenizer_notes

_LONG_IDS = 4096  # tokens
_ALWAYS = frozenset(("Q8_0", "Q5_0", "Q4_1", "Q4_0"))
"""Weights whose rows llama.cpp's own kernels for CPUs compute alike in any pass."""
_WITHOUT_IT = ("f32", "f16", "bf16")  # cache types of V that do not need flash attention
Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass(frozen=True)
class LoadedTarget:
    """A loaded target. `config` is the one it was really loaded with; `notes` are lines to print."""

    model: Model
    context: Context
    config: ModelConfig
    least: Least
    notes: tuple[str, ...]


def open_target(config: Config, stack: ExitStack, progress: Progress) -> LoadedTarget:
    """Load it onto the stack. `--exact` loads it again without rearranged weights where only those stand in the way.
    Raises ModelLoadError, or ConfigError for a tokenizer that disagrees with it and for a batch too small for
    `--exact`.
    """
    with ExitStack() as attempt:
        model = attempt.enter_context(
            open_model(config.target, "target", lambda share: progress("loading target", share))
        )
        own = as_wanted(config)
        context = attempt.enter_context(Context(model, own, config.n_parallel, "target"))
        is_ruled_out = config.target.backend_sampling and config.drafting.exact
        notes = (
            f"context: {context.n_ctx} tokens" + (f" in each of {context.n_seq} slots" if context.n_seq > 1 else ""),
            *training_note(config.target, "target", context.n_ctx, model.info.n_ctx_train, model.meta),
            *context.notes,
            *(["--backend-sampling has no effect with --exact"] if is_ruled_out else []),
            *end_note(model),
            *memory_note(context),
            *quota_note(config),
            *attention_note(config.target, context.n_ctx, on_cpu=not offloads(config.target)),
            *amx.notes(),
            *kernel_notes(own, model, *texts_note(config, context)),
            *rearranged_notes(own, "target"),
            *tokenizer_notes(config.target, "target"),
            *(f"adapter {adapter.id}: {adapter.path}, scale {adapter.scale:g}" for adapter in model.adapters.infos),
        )
        if config.drafting.exact:
            progress("measuring which passes agree, for --exact", 0.0)
        least, exact_notes, again = exactness(context, config)
        if config.drafting.exact:
            progress("measuring which passes agree, for --exact", 1.0)
        if not again:
            stack.enter_context(attempt.pop_all())
            return LoadedTarget(
                model, context, own, least, (*notes, *exact_notes, *_length_note(config, context, least))
            )
    return open_target(replace(config, target=replace(config.target, repack=False)), stack, progress)


def as_wanted(config: Config) -> ModelConfig:
    """With --exact no pass may have more rows than give the same bits."""
    if not config.drafting.exact:
        return config.target
    n_alike = attention(config.target, on_cpu=has_cpu_kernels(config.target))[1]
    return replace(config.target, n_ubatch=min(config.target.n_ubatch, n_alike), backend_sampling=False)


def attention_note(config: ModelConfig, n_ctx: int, on_cpu: bool) -> tuple[str, ...]:
    """A line where there is room for long texts and neither setting was chosen: of llama.cpp's two kinds of attention
    neither is best for all lengths on a CPU.
    """
    is_chosen = config.flash_attn != "auto" or config.type_v not in _WITHOUT_IT
    if not on_cpu or is_chosen or n_ctx < _LONG_IDS or kernels.attends(config):
        return ()
    return (
        (
            "flash attention is on, as suits short texts; on CPUs -fa off drafts faster from some 1,000 tokens on "
            "(--exact for equal bits)"
        ),
    )


def kernel_notes(config: ModelConfig, model: Model, *words: str) -> tuple[str, ...]:
    """The line that says which kernels multiply a model's weights; words: what follows from that."""
    return ("; ".join((weights.note(config, weights.of(config, model.buffers)), *words)),)


def texts_note(config: Config, context: Context) -> tuple[str, ...]:
    """What the line about kernels ends with where passes of several rows may have other bits than single rows."""
    if config.drafting.exact or are_alike(config.target, context, weights.of(config.target, context.model.buffers)):
        return ()
    return ("so texts may differ with drafts (--exact)",)


def are_alike(config: ModelConfig, context: Context, share: Weights) -> bool:
    """Whether every pass computes a row alike without `--exact`, as far as that is known. share: which kernels multiply
    the target's weights.
    """
    if share.are_ours and kernels.is_whole(config):
        return True
    if share.places or share.own or share.adapters or config.loras:
        return False
    # llama.cpp multiplies single rows otherwise in recurrent layers, and in attention that is no flash attention
    return set(share.left) <= _ALWAYS and context.memory.way is Way.POSITIONS and context.rows_are_apart


def quota_note(config: Config) -> tuple[str, ...]:
    """A line where the quota of this process's control groups allows fewer threads than there are cores, or than were
    asked for.
    """
    quota, n = cpu_quota(), usable_cores()
    models = [model for model in (config.target, config.draft) if model is not None]
    asked = max(n_threads for model in models for n_threads in (model.n_threads, model.n_threads_batch))
    if quota is None or max(asked, physical_cores()) <= quota:
        return ()
    share = f"the control group has the time of {quota:g} processor{'' if quota == 1 else 's'}"
    if asked > quota:
        return (f"threads: {asked} were asked for, but {share}, so they wait for each other; --threads {n} suits it",)
    return () if config.target.n_threads else (f"threads: {n}, since {share} (--threads says otherwise)",)


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


def exactness(context: Context, config: Config) -> tuple[Least, tuple[str, ...], bool]:
    """How large a pass must be for `--exact`, the line that says so, and whether another attempt without rearranged
    weights is due.
    """
    if not config.drafting.exact:
        return Least(), (), False
    if not context.can_take_back:
        return Least(), ("--exact has no effect: the model's memory cannot take back dummy rows",), False
    # without flash attention single rows have a kernel of their own, whose bits differ too seldom for a sample
    least_rows = least_agreeing_rows(context, 1 if context.rows_are_apart else 2)
    if least_rows is None:
        return (
            Least(),
            ("--exact has no effect: on this backend no batch sizes compute the same bits for this model",),
            rearranged(config.target).is_on,
        )
    least = Least(least_rows[0], of_each=least_rows[1] or _are_apart(context))
    if context.n_batch < (n_rows := context.n_seq * least.rows):
        raise ConfigError(
            f"--exact pads each of {context.n_seq} slots to {least.rows} rows for this model, more than --batch-size "
            f"{context.n_batch}; "
            f"give -b {n_rows} or more"
        )
    how = "" if rearranged(config.target).is_on else " (weights are not rearranged for this processor: slower prompts)"
    return least, (f"--exact: {_why(least, context.n_seq)}{how}",), False


def _are_apart(context: Context) -> bool:
    """Whether each sequence must have the rows that a pass must have, whatever was measured: without flash attention,
    and with a recurrent state. Its layers multiply each sequence's rows apart, and differ so little with their number
    that few ids of many show it; with snapshots llama.cpp cuts passes otherwise, too.
    """
    return not context.rows_are_apart or context.memory.way is not Way.POSITIONS


def _why(least: Least, n_seq: int) -> str:
    """What `--exact` does."""
    if least.rows == 1:
        return "any batch gives the same bits"
    each = " of each slot" if least.of_each and n_seq > 1 else ""
    return f"batches of {least.rows} rows or more{each} give the same bits; smaller ones are padded"
