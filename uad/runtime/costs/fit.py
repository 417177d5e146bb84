"""Contexts that fit into memory: the bytes that they take are computed before anything is loaded, and compared with
what is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from uad.base.common.available import Limit, available
from uad.base.common.files import size_text
from uad.base.config import ModelConfig
from uad.base.errors import ConfigError, UadError
from uad.llama.backend import native
from uad.llama.footprint import Footprint, NeedUnknownError
from uad.llama.model import UNKNOWN_CTX

GRAIN_POSITIONS = 256  # llama.cpp's step of contexts, in positions of a sequence
# positions that are chosen though weights have to be read from the file again and again, as in llama-server's --fit-ctx
_MIN_POSITIONS = 4096
_MARGIN_BYTES, _SHARE = 128 << 20, 0.02  # bytes left for the rest of this process: its requests, texts and libraries
_THREADS_BYTES = 256 << 20  # address space that stacks and heaps of threads reserve
_log = logging.getLogger("uad")


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes of one part: `host` in this machine's memory whatever happens, `mapped` of a file, which the system can
    drop and read again, `device` on devices.
    """

    name: str
    host: int = 0
    mapped: int = 0
    device: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes wherever they lie."""
        return self.host + self.mapped + self.device


@dataclass(frozen=True, slots=True)
class Total:
    """All parts together. device_room: bytes that are free on the devices, 0 where that is not known."""

    parts: tuple[MemoryPart, ...]
    device_room: int = 0

    @property
    def host(self) -> int:
        """Bytes that stay in this machine's memory."""
        return sum(part.host for part in self.parts)

    @property
    def mapped(self) -> int:
        """Bytes of mapped files."""
        return sum(part.mapped for part in self.parts)

    @property
    def device(self) -> int:
        """Bytes on devices."""
        return sum(part.device for part in self.parts)

    def fits(self, limits: Sequence[Limit], with_files: bool) -> bool:
        """Whether it stays below every limit; with_files: so that mapped files stay in memory, too."""
        takes = {counts: self.host + (self.mapped if counts else 0) for counts in (False, True)}
        return all(takes[with_files or limit.counts_mapped] <= room(limit) for limit in limits) and (
            not self.device_room or self.device <= self.device_room
        )

    def text(self) -> str:
        """The parts and their sizes in one line."""
        return ", ".join(f"{part.name} {size_text(part.n_bytes)}" for part in self.parts)


class NoRoomError(ConfigError):
    """A context does not fit into memory. wanted: bytes that it would take beside all else."""

    def __init__(self, text: str, wanted: Total) -> None:
        super().__init__(text)
        self.wanted = wanted


def room(limit: Limit) -> int:
    """Bytes of a limit that contexts and weights may take."""
    return limit.n_bytes - _MARGIN_BYTES - int(limit.n_bytes * _SHARE) - (_THREADS_BYTES if limit.counts_mapped else 0)


class ContextSizes:
    """Bytes that target, drafts and head take together, by the target's context. The head may be part of the target,
    and is the same object then. n_ctx_draft: positions of a draft's context in all, up to those of its training; 0: as
    many per slot as the target, up to those. device_room: bytes free on devices.
    """

    def __init__(
        self,
        target: Footprint,
        drafts: Sequence[Footprint] = (),
        head: Footprint | None = None,
        n_ctx_draft: int = 0,
        device_room: int = 0,
    ) -> None:
        self.target = target
        self._drafts, self._head, self._n_ctx_draft, self._device_room = drafts, head, n_ctx_draft, device_room
        self._totals: dict[tuple[int, int], Total] = {}

    def of(self, n_ctx: int) -> Total:
        """With a target's context of n_ctx positions in all. Raises what `Footprint.of` does."""
        key = n_ctx, self.target.n_snapshots
        if key not in self._totals:
            self._totals[key] = Total(tuple(self._parts(n_ctx)), self._device_room)
        return self._totals[key]

    def draft_positions(self, draft: Footprint, n_ctx: int) -> int:
        """Positions of a draft's context in all, beside a target's of n_ctx."""
        n_seq = self.target.n_seq
        # beside 4 slots of 8,192 a draft that was trained on 2,048 has 4 times 2,048, whatever -cd says beyond that
        own = self._n_ctx_draft // n_seq or slot_positions(n_ctx, n_seq)
        trained = draft.n_ctx_train
        return max(own if self._n_ctx_draft and trained == UNKNOWN_CTX else min(own, trained), 1) * n_seq

    def _parts(self, n_ctx: int) -> list[MemoryPart]:
        contexts = [("target", self.target, n_ctx, False)]
        for i, draft in enumerate(self._drafts, 1):
            contexts.append((numbered("draft", i), draft, self.draft_positions(draft, n_ctx), False))
        if self._head is not None:
            contexts.append(("head", self._head, n_ctx, True))
        parts: list[MemoryPart] = []
        for role, file, n, is_head in contexts:
            need = file.of(n, is_head)
            if not (is_head and file is self.target):
                parts.append(MemoryPart(f"{role} weights", file.weights, file.mapped, file.device))
            parts.append(MemoryPart(f"{role} KV cache", need.kv - need.kv_device, 0, need.kv_device))
            parts.append(
                MemoryPart(f"{role} buffers", need.host - need.kv + need.kv_device, 0, need.device - need.kv_device)
            )
        return parts


def numbered(role: str, number: int) -> str:
    """The name of the first draft, of the second, and so on."""
    return role if number == 1 else f"{role} {number}"


def slot_positions(n_ctx: int, n_seq: int) -> int:
    """Positions of one of n_seq sequences in a context of n_ctx in all: llama.cpp makes them in steps."""
    return max(-(-n_ctx // (n_seq * GRAIN_POSITIONS)), 1) * GRAIN_POSITIONS


@dataclass(frozen=True, slots=True)
class Fitted:
    """The target's context in positions, how many snapshots of a recurrent state it keeps, the memory that all takes
    (None: llama.cpp does not say, or nobody asked), and lines to print.
    """

    n_ctx: int
    n_snapshots: int
    memory: Total | None = None
    notes: tuple[str, ...] = ()


def fitted(sizes: ContextSizes, asked: int, limits: Sequence[Limit]) -> Fitted:
    """The largest context that fits, up to `asked` positions (0: those of the target's training). Snapshots become
    fewer where only they stand in the way. Raises NoRoomError where nothing fits, or not what was asked for.
    """
    target = sizes.target
    wanted, n = target.n_snapshots, asked or target.n_ctx_train
    try:
        while True:
            try:
                n_ctx, notes = choose(sizes.of, asked, n, GRAIN_POSITIONS * target.n_seq, limits)
                break
            except NoRoomError:
                if not (target.n_snapshots and target.has_state):
                    raise
                # snapshots take as much as the state each: 30 of 50 MB for 4 slots are 6 GB. Half of them are tried
                target.n_snapshots //= 2
        memory = sizes.of(n_ctx)
    except NoRoomError:
        raise
    except Exception as error:
        if isinstance(error, UadError) and not isinstance(error, NeedUnknownError):
            raise
        _warn(error)
        return Fitted(n, wanted)
    if target.n_snapshots < wanted:
        notes = (*notes, f"memory: snapshots of {target.n_snapshots} tokens instead of {wanted}: more do not fit")
    return Fitted(n_ctx, target.n_snapshots, memory, notes)


def fitted_beside(model: ModelConfig, role: str, n_seq: int, is_bounded: bool, n_ctx: int = 0) -> ModelConfig:
    """Settings of another context of a model that is loaded; n_ctx: positions that it gets where it names none and the
    memory is there. is_bounded: whether memory bounds it.
    """
    if is_bounded:
        try:
            with Footprint(model, role, n_seq) as footprint:
                footprint.leave_out_weights()
                wanted, step = model.n_ctx or n_ctx or footprint.n_ctx_train, GRAIN_POSITIONS * n_seq
                chosen = choose(ContextSizes(footprint).of, model.n_ctx, wanted, step, available())[0]
                return replace(model, n_ctx=chosen)
        except NeedUnknownError as error:
            _warn(error)
    return replace(model, n_ctx=model.n_ctx or n_ctx)


def _warn(error: Exception) -> None:
    why = f"how much memory a context takes is not known ({type(error).__name__}: {error})"
    if isinstance(error, NeedUnknownError):
        build = native.build_info()
        why = f"llama-cpp-python {build} does not say in known words how much memory a context takes (missing: {error})"
    _log.warning(
        "%s: contexts are not fitted into memory; --ctx-size N bounds them, --fit off leaves this line out", why
    )


def choose(
    total: Callable[[int], Total], asked: int, wanted: int, step: int, limits: Sequence[Limit]
) -> tuple[int, tuple[str, ...]]:
    """The context in tokens, and a line where there is something to say. asked: what the user named, 0 for nothing;
    wanted: what is taken where it fits. Raises NoRoomError with the sizes and the largest that fits.
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
        return n_ctx, (
            f"the context is {n_ctx} tokens, the largest that fits, of the model's {wanted}: {total(n_ctx).text()}; "
            f"{have}",
        )
    fits = f"the largest that fits is {at_most}" if at_most else "not even the smallest fits"
    shown = f"--ctx-size {asked}" if asked else f"a context of {step} tokens"
    more = "--fit off takes it all the same; for several machines see docs/rpc.md and docs/vllm.md"
    takes = total(asked or step)
    raise NoRoomError(f"{shown} does not fit into memory: {takes.text()}; {have}; {fits} ({more})", takes)


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
