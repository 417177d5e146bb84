"""The table of drafters: --spec-type's names, what may be set of each, how it is made, and what it remembers.

Flags (`config/flags`), the configuration (`config/load`), drafters (`runtime/drafters`) and notes of the bench are made
from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uad.common.settings import Setting, setting, settings_of
from uad.types import BY_REQUEST, Origin

SHARES = ("off", "slot", "server")
_MOST = 1024  # tokens to look up, or of a draft


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """ngram-simple and the two maps: ids to look up, ids to draft, and how often the n-gram must have occurred."""

    size_n: int = setting(12, "tokens to look up", low=1, high=_MOST)
    size_m: int = setting(48, "most tokens per draft", low=1, high=_MOST)
    min_hits: int = setting(1, "how often they must have occurred before", low=1)


@dataclass(frozen=True, slots=True)
class NgramModConfig:
    """ngram-mod: ids to look up, and the fewest and most ids of a draft."""

    n_match: int = setting(24, "tokens to look up", low=1, high=_MOST)
    n_min: int = setting(48, "shorter drafts are dropped", low=0, high=_MOST)
    n_max: int = setting(64, "most tokens per draft", low=0, high=_MOST)


@dataclass(frozen=True, slots=True)
class NgramCacheConfig:
    """ngram-cache: files of statistics; `dynamic` is updated by answers."""

    static: Path | None = setting(
        None,
        "file of statistics that stays as it is, such as a dynamic one of an earlier run",
        "-lcs --lookup-cache-static",
    )
    dynamic: Path | None = setting(
        None,
        "file of statistics that answers are added to; written when the server stops",
        "-lcd --lookup-cache-dynamic",
    )


@dataclass(frozen=True, slots=True)
class SuffixConfig:
    """suffix: fewest ids that must match, most ids of a draft, ids of earlier answers kept, and the file that keeps
    them.
    """

    n_match: int = setting(2, "fewest tokens that must match", low=2, high=64)
    n_max: int = setting(48, "most tokens per draft", low=1, high=_MOST)
    store_size: int = setting(
        1 << 18, "tokens of earlier answers that are remembered; 0 remembers none", low=0, high=1 << 24
    )
    store: Path | None = setting(None, "file that keeps these answers; written when the server stops")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """prediction: most ids of a draft."""

    n_max: int = setting(128, "most tokens per draft; 0 drafts nothing", low=0, high=_MOST)


@dataclass(frozen=True, slots=True)
class LookupConfig:
    """The drafters without a model, a field for each.

    `share`: how far one request's text serves another's drafts (off, slot or server).
    """

    simple: NgramConfig = NgramConfig()
    map_k: NgramConfig = NgramConfig()
    map_k4v: NgramConfig = NgramConfig()
    mod: NgramModConfig = NgramModConfig()
    cache: NgramCacheConfig = NgramCacheConfig()
    suffix: SuffixConfig = SuffixConfig()
    prediction: PredictionConfig = PredictionConfig()
    share: str = "server"

    def files(self) -> list[Path]:
        """All files that they read or write."""
        values = [getattr(getattr(self, one.section), name) for one in LOOKUP_TYPES for name in one.settings]
        return [value for value in values if isinstance(value, Path)]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a drafter is made for: the fingerprint that its files must have, the scope of sharing, how many slots; and
    the target's encoder (`uad.vocab.encode.Encoder`), for those that cut text.
    """

    vocabulary: str
    share: str
    n_slots: int
    encoder: Any = None


@dataclass(frozen=True, slots=True)
class DrafterType:
    """One drafter. `section` is its field in `LookupConfig`; `build` makes it of that.

    `remembers`: whether it keeps what was said in earlier answers.
    """

    origin: Origin
    section: str
    build: Callable[[Any, Surroundings], Any]
    remembers: bool = False

    @property
    def by_request(self) -> bool:
        """Whether requests bring what it drafts from, so that it is there whatever --spec-type says."""
        return self.origin in BY_REQUEST

    @property
    def settings(self) -> dict[str, Setting]:
        """What may be set of it, by field."""
        return settings_of(self.kind)

    @property
    def kind(self) -> type[Any]:
        """The dataclass of its settings."""
        return type(getattr(LookupConfig(), self.section))


def _simple(own: NgramConfig, _: Surroundings) -> object:
    from uad.lookup import ngram_simple

    return ngram_simple.drafter(own.size_n, own.size_m, own.min_hits)


def _map_k(own: NgramConfig, _: Surroundings) -> object:
    from uad.lookup import ngram_map

    return ngram_map.drafter(own.size_n, own.size_m, own.min_hits)


def _map_k4v(own: NgramConfig, _: Surroundings) -> object:
    from uad.lookup import ngram_map

    return ngram_map.drafter(own.size_n, own.size_m, own.min_hits, n_values=4)


def _mod(own: NgramModConfig, here: Surroundings) -> object:
    from uad.lookup import ngram_mod

    return ngram_mod.drafter(own.n_match, own.n_min, own.n_max, here.share, here.n_slots)


def _cache(own: NgramCacheConfig, here: Surroundings) -> object:
    from uad.lookup import ngram_cache

    static, dynamic = (
        ngram_cache.store_file(path, here.vocabulary) if path else None for path in (own.static, own.dynamic)
    )
    return ngram_cache.drafter(static=static, dynamic=dynamic, share=here.share)


def _suffix(own: SuffixConfig, here: Surroundings) -> object:
    from uad.lookup import suffix

    file = suffix.store_file(own.store, here.vocabulary) if own.store else None
    return suffix.drafter(own.n_match, own.n_max, own.store_size, file, here.share, here.n_slots)


def _prediction(own: PredictionConfig, here: Surroundings) -> object:
    from uad.lookup import prediction

    return prediction.drafter(here.encoder, own.n_max)


LOOKUP_TYPES = (
    DrafterType(Origin.NGRAM_SIMPLE, "simple", _simple),
    DrafterType(Origin.NGRAM_MAP_K, "map_k", _map_k),
    DrafterType(Origin.NGRAM_MAP_K4V, "map_k4v", _map_k4v),
    DrafterType(Origin.NGRAM_MOD, "mod", _mod, remembers=True),
    DrafterType(Origin.NGRAM_CACHE, "cache", _cache, remembers=True),
    DrafterType(Origin.SUFFIX, "suffix", _suffix, remembers=True),
    DrafterType(Origin.PREDICTION, "prediction", _prediction),
)
"""Those that need no model."""

MODEL_TYPE = str(Origin.MODEL)
HEAD_TYPE = str(Origin.HEAD)
"""Drafts with the target's own head for multi-token prediction."""
SPEC_TYPES = (MODEL_TYPE, HEAD_TYPE, *(str(one.origin) for one in LOOKUP_TYPES))
BESIDE_A_MODEL = str(Origin.SUFFIX)
"""What drafts beside a draft model, where the policy is automatic, if --spec-type is not given."""
