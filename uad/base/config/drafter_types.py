"""The drafters of --spec-type: their names, what may be set of each, and what they remember.

Flags (`config/flags`), the configuration (`config/load`) and notes of the bench are made from it; `lookup/build` makes
the drafters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from uad.base.common.settings import Setting, setting, settings_of
from uad.base.config.kinds import Kind, choice
from uad.base.errors import ConfigError
from uad.base.types import BY_REQUEST, HEADS, MODELS, Origin

SHARES = ("off", "slot", "server")
_MOST = 1024  # tokens to look up, or of a draft


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """ngram-simple and the two maps."""

    size_n: int = setting(12, "tokens to look up", low=1, high=_MOST)
    size_m: int = setting(48, "most tokens per draft", low=1, high=_MOST)
    min_hits: int = setting(1, "how often they must have occurred before", low=1)


@dataclass(frozen=True, slots=True)
class NgramModConfig:
    """ngram-mod."""

    n_match: int = setting(24, "tokens to look up", low=1, high=_MOST)
    n_min: int = setting(48, "shorter drafts are dropped", low=0, high=_MOST)
    n_max: int = setting(64, "most tokens per draft", low=0, high=_MOST)


@dataclass(frozen=True, slots=True)
class NgramCacheConfig:
    """ngram-cache."""

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
    """suffix."""

    n_match: int = setting(2, "fewest tokens that must match", low=2, high=64)
    n_max: int = setting(48, "most tokens per draft", low=1, high=_MOST)
    store_size: int = setting(
        1 << 18, "tokens of earlier answers that are remembered; 0 remembers none", low=0, high=1 << 24
    )
    store: Path | None = setting(None, "file that keeps these answers; written when the server stops")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """prediction."""

    n_max: int = setting(128, "most tokens per draft; 0 drafts nothing", low=0, high=_MOST)


@dataclass(frozen=True, slots=True)
class DrafterType:
    """One drafter without a model, as its field of `LookupConfig` declares it."""

    origin: Origin
    section: str
    """The name of that field."""
    kind: type[Any]
    """The dataclass of its settings."""
    remembers: bool
    """Whether it keeps what was said in earlier answers."""

    @property
    def by_request(self) -> bool:
        """Whether requests bring what it drafts from, so that it is there whatever --spec-type says."""
        return self.origin in BY_REQUEST

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings of this drafter, by field."""
        return settings_of(self.kind)


@dataclass(frozen=True, slots=True)
class LookupConfig:
    """The drafters without a model, a field for each."""

    simple: NgramConfig = field(default=NgramConfig(), metadata={"origin": Origin.NGRAM_SIMPLE})
    map_k: NgramConfig = field(default=NgramConfig(), metadata={"origin": Origin.NGRAM_MAP_K})
    map_k4v: NgramConfig = field(default=NgramConfig(), metadata={"origin": Origin.NGRAM_MAP_K4V})
    mod: NgramModConfig = field(default=NgramModConfig(), metadata={"origin": Origin.NGRAM_MOD, "remembers": True})
    cache: NgramCacheConfig = field(
        default=NgramCacheConfig(), metadata={"origin": Origin.NGRAM_CACHE, "remembers": True}
    )
    suffix: SuffixConfig = field(default=SuffixConfig(), metadata={"origin": Origin.SUFFIX, "remembers": True})
    prediction: PredictionConfig = field(default=PredictionConfig(), metadata={"origin": Origin.PREDICTION})
    share: str = setting(
        "server",
        "whose earlier texts serve a request's drafts: its own only (off), those of its slot, or all of the server",
        "--spec-share",
        kind=choice(*SHARES),
        metavar="SCOPE",
        default_text="server; slot with several API keys",
    )

    def files(self) -> list[Path]:
        """All files that they read or write."""
        values = [getattr(getattr(self, kind.section), name) for kind in LOOKUP_TYPES for name in kind.settings]
        return [value for value in values if isinstance(value, Path)]


LOOKUP_TYPES = tuple(
    DrafterType(field.metadata["origin"], field.name, type(field.default), "remembers" in field.metadata)
    for field in fields(LookupConfig)
    if "origin" in field.metadata
)
"""Drafters that need no model, in the order of their fields."""

MODEL_TYPE = str(Origin.MODEL)
HEAD_TYPE = str(Origin.HEAD)
"""Drafts with the target's own head for multi-token prediction."""
HEAD_TYPES = tuple(str(origin) for origin in Origin if origin in HEADS)
"""The same, and heads that were trained apart for one target."""
SPEC_TYPES = (MODEL_TYPE, *HEAD_TYPES, *(str(kind.origin) for kind in LOOKUP_TYPES))
BESIDE_A_MODEL = str(Origin.SUFFIX)
"""The drafter beside a draft model, where the policy is automatic, if --spec-type is not given."""


def _spec_type(text: str, known: tuple[str, ...] = (*SPEC_TYPES, "none")) -> tuple[str, ...]:
    """The drafters of a list as llama-server takes it, each once; none for `none`."""
    names = tuple(
        dict.fromkeys("draft-simple" if name.strip() == "draft" else name.strip() for name in text.split(","))
    )
    for name in names:
        if name not in known:
            raise ValueError
    if "none" in names and len(names) > 1:
        raise ConfigError("none stands alone; leave it out to draft with the others")
    return () if names == ("none",) else names


SPEC_TYPE = Kind(f"one or more of {', '.join(SPEC_TYPES)}, separated by commas, or none", _spec_type, metavar="TYPES")
REQUEST_TYPES = replace(SPEC_TYPE, parse=partial(_spec_type, known=(*SPEC_TYPES, "none", *MODELS)))
"""A request may name further draft models, too."""
