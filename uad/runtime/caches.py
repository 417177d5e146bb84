"""The prompt cache, its level on a disk, and the copies of slots that both are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from uad.base.common.available import Limit, available
from uad.base.common.files import size_text
from uad.base.config import Config
from uad.base.types import Clock
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.prompt_cache import PromptCache
from uad.llama.memory import SavedSequence, SequenceCopies
from uad.runtime.draft_model import OpenedDrafts
from uad.runtime.slots.copies import SlotCopies, kept_model, kept_target
from uad.runtime.slots.disk import DiskTexts
from uad.runtime.slots.disk_files import DiskFiles
from uad.runtime.slots.file import SavedSlot
from uad.runtime.target import LoadedTarget


def open_copies(
    config: Config, target: LoadedTarget, drafts: OpenedDrafts, scales: Callable[[], tuple[float, ...]]
) -> SlotCopies | None:
    """Copies of slots for files; None where there are to be none."""
    if config.server.slot_save_path is None and config.cache_disk is None:
        return None
    kept = [
        (draft.drafter, kept_model(draft.config, draft.context))
        for draft in drafts.opened
        if draft.drafter is not None and draft.context is not None and draft.config is not None
    ]
    return SlotCopies(kept_target(target.config, target.context, config.drafting.exact), kept, scales)


def open_prompt_cache(
    config: Config,
    target: LoadedTarget,
    drafts: OpenedDrafts,
    clock: Clock,
    copies: SlotCopies | None,
    disk: DiskTexts | None,
    drafting: Drafting | None,
) -> PromptCache[SavedSequence] | PromptCache[SavedSlot] | None:
    """A cache with nothing in memory; None where --cache-ram is 0 and there is no level on a disk."""
    if not config.cache_ram and disk is None:
        return None
    most = None if config.cache_ram < 0 else config.cache_ram << 20
    models = (target.config, *(draft.config for draft in drafts.opened))
    mapped = sum(model.path.stat().st_size for model in models if model is not None and model.mmap)

    def free() -> int | None:
        return room(mapped, available())

    ahead = config.cache_idle_slots
    if disk is None or copies is None:
        return PromptCache(SequenceCopies(target.context.memory), most, clock, free, ahead)

    def restored(seq: int, ids: Sequence[int], saved: SavedSlot) -> None:
        n_held = copies.restore_drafts(seq, ids, saved.drafts)
        if drafting is not None:
            drafting.restored(seq, n_held)

    return PromptCache(copies, most, clock, free, ahead, lower=disk, restored=restored)


def open_disk(
    config: Config, stack: ExitStack, target: LoadedTarget, copies: SlotCopies | None, clock: Clock
) -> DiskTexts | None:
    """The cache's level on a disk. Closing it waits until all is written."""
    if config.cache_disk is None or copies is None:
        return None
    most = None if config.cache_disk_size < 0 else config.cache_disk_size << 20
    files = DiskFiles(config.cache_disk, most, copies.target.facts)
    disk = DiskTexts(files, copies, target.context.n_ctx - (target.least.rows - 1), clock)
    stack.callback(disk.close)
    return disk


def disk_notes(disk: DiskTexts | None, config: Config) -> tuple[str, ...]:
    """The line at start about the level on a disk."""
    if disk is None:
        return ()
    counts, size = disk.counts(), config.cache_disk_size
    most = "" if size < 0 else f" of {size_text(size << 20)}"
    return (
        f"prompt cache on disk: {config.cache_disk}, {counts.n_disk_texts} texts of this model; its files take "
        f"{size_text(counts.n_disk_bytes)}{most}",
    )


def room(mapped: int, limits: Iterable[Limit]) -> int | None:
    """Bytes that this process may still take, None where that is not known. Mapped weights are to stay in memory: the
    system counts them as free, since it could drop them and read them again.
    """
    # 8 GiB free by the system, which would drop 3 GiB of mapped weights for them: 5 GiB. A container whose limit counts
    # these weights as used, with 4 GiB left: 4 GiB. The smaller one holds.
    return min((limit.n_bytes - (0 if limit.counts_mapped else mapped) for limit in limits), default=None)
