"""The prompt cache of a loaded target, as large as the configuration and the machine's memory allow."""

from __future__ import annotations

from uad.config import Config
from uad.decode.prompt_cache import PromptCache
from uad.llama.context import Context
from uad.llama.memory import SavedSequence
from uad.runtime.available import available
from uad.types import Clock


def open_prompt_cache(config: Config, context: Context, clock: Clock) -> PromptCache[SavedSequence] | None:
    """An empty cache; None where --cache-ram is 0."""
    if not config.cache_ram:
        return None
    most = None if config.cache_ram < 0 else config.cache_ram << 20
    return PromptCache(context.memory, most, clock, _room)


def _room() -> int | None:
    """Bytes that this process may still take; None where nobody knows."""
    return min((limit.n_bytes for limit in available()), default=None)
