"""Builds the drafters that need no model from their configuration. Knows their options, not how they work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

from uad.config import DraftingConfig, LookupConfig
from uad.decode.guard import reason
from uad.drafters import ngram_cache, ngram_map, ngram_mod, ngram_simple, suffix
from uad.drafters.lookup import LookupDrafter
from uad.drafters.store import fingerprint
from uad.types import Origin
from uad.vocab.table import VocabTable

_log = logging.getLogger("uad")
Lookup: TypeAlias = LookupDrafter


def build(config: DraftingConfig, vocab: VocabTable, n_slots: int) -> tuple[Lookup, ...]:
    """The drafters of `config.types` in that order, without the draft model. Files that cannot be used are logged and left alone.

    Close each of them when no sequence runs any more: that writes their files.
    """
    files = (config.lookup.cache.static, config.lookup.cache.dynamic, config.lookup.suffix.store)
    vocabulary = fingerprint(vocab) if any(files) else ""
    built = [_built(Origin(name), config.lookup, vocabulary, n_slots) for name in config.types if name != Origin.MODEL]
    return tuple(one for one in built if one is not None)


def _built(origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int) -> Lookup | None:
    """The drafter; None, and a line in the log, where it fails at start: nobody needs it."""
    try:
        return build_one(origin, config, vocabulary, n_slots)
    except Exception as error:
        _log.warning("%s failed at start (%s); the server goes on without it", origin, reason(error))
        return None


def build_one(origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int) -> Lookup:
    """One drafter by its name; `vocabulary` is the fingerprint that its files must have. Raises ValueError for one that needs a model."""
    match origin:
        case Origin.NGRAM_SIMPLE:
            return ngram_simple.drafter(config.simple.size_n, config.simple.size_m, config.simple.min_hits)
        case Origin.NGRAM_MAP_K:
            return ngram_map.drafter(config.map_k.size_n, config.map_k.size_m, config.map_k.min_hits)
        case Origin.NGRAM_MAP_K4V:
            return ngram_map.drafter(config.map_k4v.size_n, config.map_k4v.size_m, config.map_k4v.min_hits, n_values=4)
        case Origin.NGRAM_MOD:
            return ngram_mod.drafter(config.mod.n_match, config.mod.n_min, config.mod.n_max, config.share, n_slots)
        case Origin.NGRAM_CACHE:
            return _cache(config, vocabulary)
        case Origin.SUFFIX:
            return _suffix(config, vocabulary, n_slots)
    raise ValueError(f"{origin} is not a drafter without a model")


def notes(drafters: Sequence[Lookup], config: LookupConfig) -> tuple[str, ...]:
    """The line that is printed at start."""
    if not drafters:
        return ()
    names = ", ".join(drafter.origin for drafter in drafters)
    shared = {"off": "each request by itself", "slot": "with earlier texts of its slot", "server": "with earlier texts of all requests"}
    return (f"drafting from text: {names} ({shared[config.share]})",)


def _cache(config: LookupConfig, vocabulary: str) -> Lookup:
    static, dynamic = config.cache.static, config.cache.dynamic
    return ngram_cache.drafter(
        static=ngram_cache.store_file(static, vocabulary) if static else None,
        dynamic=ngram_cache.store_file(dynamic, vocabulary) if dynamic else None,
        share=config.share,
    )


def _suffix(config: LookupConfig, vocabulary: str, n_slots: int) -> Lookup:
    s = config.suffix
    file = suffix.store_file(s.store, vocabulary) if s.store else None
    return suffix.drafter(s.n_match, s.n_max, s.store_size, file, config.share, n_slots)
