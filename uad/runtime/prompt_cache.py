"""The prompt cache of a loaded target, as large as the configuration and the machine's memory allow."""

from __future__ import annotations

from collections.abc import Iterable

from uad.config import Config
from uad.costs.available import Limit, available
from uad.decode.prompt_cache import PromptCache
from uad.llama.context import Context
from uad.llama.memory import SavedSequence, SequenceCopies
from uad.types import Clock


def open_prompt_cache(config: Config, context: Context, clock: Clock) -> PromptCache[SavedSequence] | None:
    """An empty cache; None where --cache-ram is 0."""
    if not config.cache_ram:
        return None
    most = None if config.cache_ram < 0 else config.cache_ram << 20
    models = [config.target, *([config.draft] if config.draft is not None else [])]
    mapped = sum(model.path.stat().st_size for model in models if model.mmap)
    return PromptCache(SequenceCopies(context.memory), most, clock, lambda: room(mapped, available()))


def room(mapped: int, limits: Iterable[Limit]) -> int | None:
    """Bytes that this process may still take, None where that is not known. Mapped weights are to stay in memory: the
    system counts them as free, since it could drop them and read them again.
    """
    return min((one.n_bytes - (0 if one.counts_mapped else mapped) for one in limits), default=None)
