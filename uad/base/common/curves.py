"""Files of measured cost curves (`uad profile`): their place, their format, and the one reader that checks them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.cache import cache_folder
from uad.base.common.files import read_text
from uad.base.errors import ConfigError

_FOLDER, CURVES_VERSION = "profiles", 1
_MOST_BYTES = 1 << 22
Sample = tuple[int, int, float]
"""Rows of a decode, positions before them, and its milliseconds."""


@dataclass(frozen=True, slots=True)
class StoredCurve:
    """A curve as a file holds it. facts: what it holds for, the model's fingerprint and its role among them."""

    facts: Mapping[str, object]
    samples: tuple[Sample, ...]


def curves_folder() -> Path:
    """Where curves are kept; it need not exist. Raises ConfigError for a user without a home."""
    return cache_folder() / _FOLDER


def curve_text(facts: Mapping[str, object], samples: Iterable[Sample]) -> str:
    """The content of a file."""
    rounded = [[n, depth, round(ms, 4)] for n, depth, ms in samples]
    return json.dumps({"version": CURVES_VERSION, "facts": dict(facts), "samples": rounded}, indent=1)


def read_curve(file: Path) -> StoredCurve:
    """The curve in a file. Raises ConfigError that says why it cannot be used."""
    try:
        return _checked(json.loads(read_text(file, _MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise ConfigError(f"{file} is no cost curve as `uad profile` writes them ({why})") from None


def _checked(data: object) -> StoredCurve:
    """Raises ValueError, TypeError or KeyError."""
    if not isinstance(data, dict) or data.get("version") != CURVES_VERSION:
        raise ValueError(f"not of version {CURVES_VERSION}")
    samples = tuple((n, depth, float(ms)) for n, depth, ms in data["samples"])
    if not samples or not all(map(_is_sound, samples)):
        raise ValueError("its samples are not those of a curve")
    facts = data.get("facts", {})
    if not isinstance(facts, dict):
        raise TypeError("its facts are no object")
    return StoredCurve(facts, samples)


def _is_sound(sample: Sample) -> bool:
    n, depth, ms = sample
    return type(n) is int and type(depth) is int and n >= 1 and depth >= 0 and math.isfinite(ms) and ms > 0
