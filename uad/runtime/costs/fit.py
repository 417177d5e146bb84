"""Contexts that fit into memory: what they take is computed before anything is loaded and compared with what there
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.common.available import Limit, available
from uad.base.common.files import size_text
from uad.base.config import Config, ModelConfig
from uad.base.errors import ConfigError
from uad.llama.backend import native
from uad.llama.backend.devices import memory_left
from uad.llama.footprint import Footprint, NeedUnknownError

_STEP_POSITIONS = 256  # llama.cpp's grain of contexts, in positions of a sequence
# positions that are chosen though weights have to be read from the file again and again, as in llama-server's --fit-ctx
_MIN_POSITIONS = 4096
_MARGIN_BYTES, _SHARE = 128 << 20, 0.02  # bytes left for the rest of this process: its requests, texts and libraries
_THREADS_BYTES = 256 << 20  # address space that stacks and heaps of threads reserve
_log = logging.getLogger("uad")


@dataclass(frozen=True, slots=True)
class Total:
    """Bytes that contexts and weights take: `host` in memory whatever happens, `mapped` of files, `device` on devices,
    of device_room there (0: not known); and the parts.
    """

    host: int
    mapped: int
    device: int
    parts: tuple[str, ...]
    device_room: int = 0

    def fits(self, limits: Sequence[Limit], with_files: bool) -> bool:
        """Whether it stays below every limit; with_files: so that mapped files stay in memory, too."""
        takes = {counts: self.host + (self.mapped if counts else 0) for counts in (False, True)}
        return all(takes[with_files or limit.counts_mapped] <= room(limit) for limit in limits) and (
            not self.device_room or self.device <= self.device_room
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """A configuration whose contexts fit, and lines about it."""

    config: Config
    notes: tuple[str, ...]


def room(limit: Limit) -> int:
    """Bytes of a limit that contexts and weights may take."""
    return limit.n_bytes - _MARGIN_BYTES - int(limit.n_bytes * _SHARE) - (_THREADS_BYTES if limit.counts_mapped else 0)


def fitted(config: Config, limits: Sequence[Limit] | None = None, head: ModelConfig | None = None) -> Fitted:
    """The configuration with a target's context that fits beside those of the draft and the head. Raises ConfigError
    where none does, or the one asked for does not, and ModelLoadError for files that are no models.

    head: the head's file, where it has one of its own. Where llama.cpp does not say what they take, the configuration
    stays as it is, and the log says so.
    """
    if not config.fit:
        return Fitted(config, ())
    try:
        return _fitted(config, available() if limits is None else limits, head)
    except NeedUnknownError as error:
        _warn(error)
        return Fitted(config, ())


def _warn(error: NeedUnknownError) -> None:
    _log.warning(
        "llama-cpp-python %s does not say in known words how much memory a context takes (missing: %s): contexts are "
        "not fitted into memory; --ctx-size N bounds them, --fit off leaves this line out",
        native.build_info(),
        error,
    )


def _fitted(config: Config, known: Sequence[Limit], head: ModelConfig | None) -> Fitted:
    """See `fitted`. Raises NeedUnknownError."""
    wanted = config.target.n_snapshots
    while True:
        n = config.target.n_snapshots
        with ExitStack() as stack:
            target = stack.enter_context(Footprint(config.target, "target", config.n_parallel))
            draft = (
                stack.enter_context(Footprint(config.draft, "draft", config.n_parallel))
                if config.draft is not None
                else None
            )
            of_head = target if config.target.with_head else None
            if head is not None:
                of_head = stack.enter_context(Footprint(head, "head", config.n_parallel))
            sums = _ContextSums(config, target, draft, of_head)
            asked = config.target.n_ctx
            try:
                n_ctx, notes = choose(
                    sums.of, asked, asked or target.n_ctx_train, _STEP_POSITIONS * config.n_parallel, known
                )
            except ConfigError:
                if not (n and target.has_state):
                    raise
                # snapshots take as much as the state each: 30 of 50 MB for 4 slots are 6 GB. Half as many are tried
                config = replace(config, target=replace(config.target, n_snapshots=n // 2))
                continue
        if n < wanted:
            notes = (*notes, f"memory: snapshots of {n} tokens instead of {wanted}: more do not fit")
        return Fitted(replace(config, target=replace(config.target, n_ctx=n_ctx)), notes)


def fitted_alone(config: Config, model: ModelConfig, role: str, n_seq: int, n_ctx: int = 0) -> ModelConfig:
    """The same for another context of a model that is loaded; n_ctx: what it gets where it names none and the memory is
    there.
    """
    if config.fit:
        try:
            with Footprint(model, role, n_seq) as footprint:
                footprint.leave_out_weights()
                sums = _ContextSums(replace(config, target=model, draft=None, n_parallel=n_seq), footprint, None)
                wanted = model.n_ctx or n_ctx or footprint.n_ctx_train
                return replace(
                    model, n_ctx=choose(sums.of, model.n_ctx, wanted, _STEP_POSITIONS * n_seq, available())[0]
                )
        except NeedUnknownError as error:
            _warn(error)
    return replace(model, n_ctx=model.n_ctx or n_ctx)


class _ContextSums:
    """What target, draft and head take together, by the target's context. The head may be part of the target."""

    def __init__(
        self, config: Config, target: Footprint, draft: Footprint | None, head: Footprint | None = None
    ) -> None:
        self._config, self._target, self._draft, self._head = config, target, draft, head
        self._known: dict[int, Total] = {}
        self._device_room = memory_left([config.target, *([config.draft] if config.draft is not None else [])])

    def of(self, n_ctx: int) -> Total:
        if n_ctx not in self._known:
            self._known[n_ctx] = self._reckon(n_ctx)
        return self._known[n_ctx]

    def _reckon(self, n_ctx: int) -> Total:
        needs = {"target": self._target.of(n_ctx)}
        if self._draft is not None:
            # a draft without a context of its own gets as many positions per slot, up to those of its training: beside
            # 4 slots of 8,192 one that was trained on 2,048 has 4 times 2,048
            n_seq, own = self._config.n_parallel, self._config.draft
            given = own.n_ctx if own is not None else 0
            usual = min(n_ctx // n_seq, self._draft.n_ctx_train) * n_seq
            needs["draft"] = self._draft.of(max(given or usual, n_seq))
        if self._head is not None:
            needs["head"] = self._head.of(n_ctx, is_head=True)
        files = {file for file in (self._target, self._draft, self._head) if file is not None}
        weights, mapped = sum(file.weights for file in files), sum(file.mapped for file in files)
        on_devices = sum(file.device for file in files)
        sizes = {role: size_text(need.host + need.device) for role, need in needs.items()}
        sizes["target"] += f" (KV cache {size_text(needs['target'].kv)})"
        sizes["weights"] = size_text(weights + mapped + on_devices)
        return Total(
            weights + sum(need.host for need in needs.values()),
            mapped,
            on_devices + sum(need.device for need in needs.values()),
            tuple(f"{role} {size}" for role, size in sizes.items()),
            self._device_room,
        )


def choose(
    total: Callable[[int], Total], asked: int, wanted: int, step: int, limits: Sequence[Limit]
) -> tuple[int, tuple[str, ...]]:
    """The context in tokens, and a line where there is something to say. asked: what the user named, 0 for nothing;
    wanted: what is taken where it fits. Raises ConfigError with the sizes and the largest that fits.
    """
    wanted = max(wanted, 1)
    in_files = largest(total, wanted, step, limits, with_files=True)
    if in_files >= wanted:
        return wanted, ()
    at_most = largest(total, wanted, step, limits, with_files=False)
    tightest = min(limits, key=lambda limit: limit.n_bytes)
    have = f"{size_text(tightest.n_bytes)} {tightest.name}"
    if asked and at_most >= asked:
        return asked, (
            (
                f"weights and contexts do not fit into memory together ({have}): weights will be read from the file "
                "again "
                "and again"
            ),
        )
    if not asked and (n_ctx := max(in_files, min(at_most, _MIN_POSITIONS))):
        parts = ", ".join(total(n_ctx).parts)
        return n_ctx, (
            f"the context is {n_ctx} tokens, the largest that fits, of the model's {wanted}: {parts}; {have}",
        )
    fits = f"the largest that fits is {at_most}" if at_most else "not even the smallest fits"
    shown = f"--ctx-size {asked}" if asked else f"a context of {step} tokens"
    sizes = ", ".join(total(asked or step).parts)
    more = "--fit off takes it all the same; for several machines see docs/rpc.md and docs/vllm.md"
    raise ConfigError(f"{shown} does not fit into memory: {sizes}; {have}; {fits} ({more})")


def largest(total: Callable[[int], Total], wanted: int, step: int, limits: Sequence[Limit], with_files: bool) -> int:
    """The largest context up to `wanted` that fits, in steps where it is not `wanted`; 0 if none does."""

    def fits(n_ctx: int) -> bool:
        return total(n_ctx).fits(limits, with_files)

    if fits(wanted):
        return wanted
    # bisection in steps: `low` of them fit, `high` do not. Each look makes a context without memory, so it ends where
    # the two are within a 64th: between 100,000 and 101,500 positions the lower one will do
    low, high = 0, -(-wanted // step)
    while high - low > max(low >> 6, 1):  # to one part in 64
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step
