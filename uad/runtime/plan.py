"""Decides what a start opens, before any weight is loaded: files, what drafts, where layers lie, contexts that fit, and
the bytes of each part. `runtime/open.py` opens it as it stands here.

It reads headers, asks llama.cpp what a context would take, and tries in other processes what may end one. All settings
that opening needs are settled here; nothing is changed in them afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.common.available import Limit, available
from uad.base.common.cores import cpu_quota, physical_cores, usable_cores
from uad.base.common.files import size_text
from uad.base.config import Config, ModelConfig
from uad.base.types import Origin
from uad.engine.decode.guard import reason, warn
from uad.llama.backend import amx, native, rpc
from uad.llama.backend.devices import every, has_cpu_kernels, memory_left, named, offloads, used
from uad.llama.context import attention
from uad.llama.footprint import Footprint
from uad.llama.head_file import HeadFile
from uad.llama.kernels import use as kernels
from uad.llama.rearranged import notes as rearranged_notes
from uad.llama.rearranged import rearranged
from uad.runtime.costs.fit import ContextSizes, Fitted, Total, fitted, numbered, slot_positions
from uad.runtime.draft_files import DraftFiles, draft_files

_log = logging.getLogger("uad")
_SNAPSHOT_IDS = 8  # ids of most drafts that pay; each takes as much memory as the state
_LONG_IDS = 4096  # tokens
_WITHOUT_FLASH = ("f32", "f16", "bf16")  # cache types of V that do not need flash attention


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a start. config: the user's, with the settled models and drafters in it. targets: the target, and
    where --exact may need it a second attempt, without rearranged weights. head: that drafts, by its header; head_file:
    where it has a file of its own. memory: bytes of each part, None where llama.cpp does
    not say. limits: what there is. notes: lines to print.
    """

    config: Config
    targets: tuple[ModelConfig, ...]
    head: HeadFile | None
    head_file: ModelConfig | None
    memory: Total | None
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]

    @property
    def n_ctx(self) -> int:
        """Positions of one slot of the target."""
        return slot_positions(self.config.target.n_ctx, self.config.n_parallel)


def plan(config: Config, limits: Sequence[Limit] | None = None) -> Plan:
    """Plan what to open for this configuration. limits: of memory; None: as they are now. A draft that was chosen and
    cannot be planned for costs a line, and the next choice or none is planned for.

    Raises ConfigError where it cannot be opened so, ModelLoadError for files that are no models.
    """
    native.start().verbose = config.verbose
    native.use_numa(config.numa)
    if config.rpc:
        rpc.connect(config.rpc)
    limits = tuple(available() if limits is None else limits)
    if config.draft is None or not config.draft_from:
        return _planned(config, limits)
    for path in config.draft_from:
        try:
            return _planned(config.with_drafts([replace(config.draft, path=path)]), limits)
        except Exception as error:
            without = _planned(
                replace(config, draft=None, draft_from=()), limits
            )  # raises where the target is at fault
            warn(_log, error, "the draft %s was chosen, and is left out (%s)", path.name, reason(error))
    return without


def _planned(config: Config, limits: tuple[Limit, ...]) -> Plan:
    files = draft_files(config)
    target, drafts = _target(config, files), [_draft(config, draft) for draft in files.drafts]
    head_file = None if files.head_file is None else _draft(config, files.head_file)
    _check_devices(target, *drafts, *([] if head_file is None else [head_file]))
    with ExitStack() as stack:

        def footprint(model: ModelConfig, role: str, beside: Footprint | None = None) -> Footprint:
            return stack.enter_context(Footprint(model, role, config.n_parallel, beside))

        of_target, of_drafts = footprint(target, "target"), [footprint(draft, "draft") for draft in drafts]
        of_head = of_target if target.with_head else None
        if head_file is not None and files.head is not None:
            of_head = footprint(head_file, "head", of_target if files.head.is_trained else None)
            # rows of layers: of a batch, and of each slot's last ids
            n_rows = target.n_batch + config.n_parallel * (config.drafting.window or target.n_ctx)
            of_head.weights += n_rows * files.head.row_bytes
        n_asked = drafts[0].n_ctx if drafts else 0
        sizes = ContextSizes(of_target, of_drafts, of_head, n_asked, memory_left([target, *drafts]))
        asked = target.n_ctx
        fit = fitted(sizes, asked, limits) if config.fit else Fitted(asked or of_target.n_ctx_train, target.n_snapshots)
        for i, of_draft in enumerate(of_drafts):
            drafts[i] = draft = replace(drafts[i], n_ctx=sizes.draft_positions(of_draft, fit.n_ctx))
            if draft.n_ctx < n_asked // config.n_parallel * config.n_parallel:
                which = numbered("the draft", i + 1)
                bound = (
                    f"--ctx-size-draft: {n_asked} tokens are more than {which} was trained for; it has {draft.n_ctx}"
                )
                files = replace(files, notes=(*files.notes, bound))
    target = replace(target, n_ctx=fit.n_ctx, n_snapshots=fit.n_snapshots)
    may_need_plain = config.drafting.exact and rearranged(target).is_on
    drafting = replace(config.drafting, types=files.types)
    settled = replace(config, target=target, drafting=drafting).with_drafts(drafts)
    return Plan(
        config=settled,
        targets=(target, replace(target, repack=False)) if may_need_plain else (target,),
        head=files.head,
        head_file=head_file,
        memory=fit.memory,
        limits=limits,
        notes=(*device_notes(settled), *_target_notes(config, target), *fit.notes, *files.notes),
    )


# --- the settings of each model


def _target(config: Config, files: DraftFiles) -> ModelConfig:
    """Loaded for all slots, with --exact for any number, since the text must not depend on it. Where something drafts,
    a recurrent state keeps its last values, which cost memory each.
    """
    drafting, own = config.drafting, config.target
    drafts = config.draft is not None or bool(set(drafting.types) - {Origin.MODEL})
    # llama.cpp wants passes of more rows than there are states of a sequence
    most = max(min(_SNAPSHOT_IDS, drafting.defaults.longest, own.n_ubatch - 2), 0)
    n_snapshots = most if drafting.defaults.enabled and drafts else 0
    own = replace(
        own,
        n_snapshots=n_snapshots,
        n_seq=config.n_parallel,
        with_head=files.head is not None and files.head_file is None,
    )
    if not drafting.exact:
        return own
    # no pass may have more rows than give the same bits
    n_alike = attention(own, on_cpu=has_cpu_kernels(own))[1]
    return replace(own, n_seq=0, n_ubatch=min(own.n_ubatch, n_alike), backend_sampling=False)


def _draft(config: Config, own: ModelConfig) -> ModelConfig:
    """A draft without devices of its own stays on this machine's: each of its ids would wait for the network."""
    if config.rpc and own.devices is None:
        local = tuple(device.name for device in every() if device.takes_layers and not device.is_remote)
        own = replace(own, devices=local)
    return replace(own, n_seq=config.n_parallel)


def _check_devices(target: ModelConfig, *drafts: ModelConfig) -> None:
    """Raises ConfigError for names that no device has."""
    for model, flag in ((target, "--device"), *((draft, "--device-draft") for draft in drafts)):
        if model.devices:
            named(model.devices, [device for device in every() if device.takes_layers], flag)


# --- lines at start


def device_notes(config: Config) -> Iterator[str]:
    """The devices of each model, where they were chosen or there are workers; that there is no GPU, where the flags
    count on one; and when to move to vLLM.
    """
    asked = [model.n_gpu_layers for model in (config.target, *config.drafts)]
    if max(asked) > 0 and not any(device.takes_layers for device in every()):
        yield (
            f"--gpu-layers {max(asked)} has no effect: this llama.cpp finds no GPU, or was built without support for "
            "one (make clean; make serve CMAKE_ARGS=-DGGML_CUDA=on)"
        )
    for role, model in (("target", config.target), *(("draft", draft) for draft in config.drafts[:1])):
        if config.rpc or model.devices is not None:
            shown = [f"{device.name} ({device.description}, {size_text(device.free)} free)" for device in used(model)]
            names = ", ".join(shown) or "this machine's CPU"
            yield f"devices of the {role}: {names}"
    if config.target.n_gpu_layers and (n := len(used(config.target))) > 1:
        yield (
            f"the target's layers are on {n} devices, which compute one after the other; vLLM computes on all at once, "
            "and uad drafts there, too (docs/vllm.md)"
        )


def _target_notes(config: Config, target: ModelConfig) -> Iterator[str]:
    if config.target.backend_sampling and not target.backend_sampling:
        yield "--backend-sampling has no effect with --exact"
    yield from quota_note(config)
    yield from attention_note(target, slot_positions(target.n_ctx, config.n_parallel), on_cpu=not offloads(target))
    yield from amx.notes()
    yield from rearranged_notes(target, "target")


def attention_note(config: ModelConfig, n_ctx: int, on_cpu: bool) -> tuple[str, ...]:
    """A line where there is room for long texts and neither setting was chosen: of llama.cpp's two kinds of attention
    neither is best for all lengths on a CPU.
    """
    is_chosen = config.flash_attn != "auto" or config.type_v not in _WITHOUT_FLASH
    if not on_cpu or is_chosen or n_ctx < _LONG_IDS or kernels.attends(config):
        return ()
    return (
        (
            "flash attention is on, as suits short texts; on CPUs -fa off drafts faster from some 1,000 tokens on "
            "(--exact for equal bits)"
        ),
    )


def quota_note(config: Config) -> tuple[str, ...]:
    """A line where the quota of this process's control groups allows fewer threads than there are cores, or than were
    asked for.
    """
    quota, n = cpu_quota(), usable_cores()
    models = (config.target, *config.drafts)
    asked = max(n_threads for model in models for n_threads in (model.n_threads, model.n_threads_batch))
    if quota is None or max(asked, physical_cores()) <= quota:
        return ()
    share = f"the control group has the time of {quota:g} processor{'' if quota == 1 else 's'}"
    if asked > quota:
        return (f"threads: {asked} were asked for, but {share}, so they wait for each other; --threads {n} suits it",)
    return () if config.target.n_threads else (f"threads: {n}, since {share} (--threads says otherwise)",)
