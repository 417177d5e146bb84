"""Makes the drafters that need no model of their settings."""

from __future__ import annotations

from uad.base.config import LookupConfig
from uad.base.types import Origin
from uad.drafts.lookup import ngram_cache, ngram_map, ngram_mod, prediction, suffix
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.text.vocab.encode import Encoder


def build_one(
    origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int, encoder: Encoder | None = None
) -> LookupDrafter:
    """One drafter by its name; `vocabulary` is the fingerprint that its files must have, `encoder` the target's, for
    the one that cuts text. Raises ValueError for one that needs a model, and where such an encoder is missing.
    """
    share = config.share
    match origin:
        case Origin.NGRAM_SIMPLE:
            return ngram_map.simple_drafter(config.simple.size_n, config.simple.size_m, config.simple.min_hits)
        case Origin.NGRAM_MAP_K:
            return ngram_map.drafter(config.map_k.size_n, config.map_k.size_m, config.map_k.min_hits)
        case Origin.NGRAM_MAP_K4V:
            four = config.map_k4v
            return ngram_map.drafter(four.size_n, four.size_m, four.min_hits, n_values=4)
        case Origin.NGRAM_MOD:
            return ngram_mod.drafter(config.mod.n_match, config.mod.n_min, config.mod.n_max, share, n_slots)
        case Origin.NGRAM_CACHE:
            static, dynamic = (
                ngram_cache.store_file(path, vocabulary) if path else None
                for path in (config.cache.static, config.cache.dynamic)
            )
            return ngram_cache.drafter(static=static, dynamic=dynamic, share=share)
        case Origin.SUFFIX:
            own = config.suffix
            file = suffix.store_file(own.store, vocabulary) if own.store else None
            return suffix.drafter(own.n_match, own.n_max, own.store_size, file, share, n_slots)
        case Origin.PREDICTION if encoder is not None:
            return prediction.drafter(encoder, config.prediction.n_max)
    raise ValueError(f"{origin} is not a drafter without a model")
