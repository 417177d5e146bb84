"""What decodes of a model cost, as far as `uad profile` has measured it on this machine. Files of
`runtime/costs/profile_store.py`, read without llama.cpp.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from uad.base.common.cache import CURVES_FOLDER, CURVES_VERSION, cache_folder
from uad.base.common.row_costs import cost_of_rows
from uad.base.errors import ConfigError, ModelLoadError
from uad.pairs.header import Stamp, identity


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows of a decode and its milliseconds, from one row on; `model` is the fingerprint of the file, `role` target or
    draft.
    """

    model: str
    role: str
    points: tuple[tuple[int, float], ...]

    def ms(self, n: int) -> float:
        """Milliseconds of n rows."""
        return cost_of_rows(self.points, n)


def measured(path: Path, of: Stamp, role: str) -> Curve | None:
    """The newest curve of a model in this role, whatever the settings were; None where there is none. A draft that was
    measured as a target only has that curve.
    """
    try:
        own = identity(path, of)
        curves = [curve for curve in _curves() if curve.model == own]
    except (ConfigError, ModelLoadError, OSError):
        return None
    in_role = [curve for curve in curves if curve.role == role]
    return next(iter(in_role or (curves if role == "draft" else ())), None)


def _curves() -> Iterator[Curve]:
    """All that are stored, the newest first. Raises ConfigError or OSError."""
    folder = cache_folder() / CURVES_FOLDER
    files = [(entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder) if entry.name.endswith(".json")]
    return (
        curve for changed, path in sorted(files, reverse=True) if (curve := _curve(Path(path), changed)) is not None
    )


@lru_cache(maxsize=1024)
def _curve(file: Path, changed: int) -> Curve | None:
    """The curve in a file, which was changed last at this time; None for one that cannot be used."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        facts, samples = content["facts"], content["samples"]
        depth = min(depth for n, depth, _ in samples if n == 1)
        points = tuple(sorted((int(n), float(ms)) for n, at, ms in samples if at == depth))
        is_sound = content["version"] == CURVES_VERSION and all(ms > 0 for _, ms in points)
        return Curve(str(facts["model"]), str(facts["role"]), points) if is_sound else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
