"""Costs of a model's decodes, as far as `uad profile` has measured them on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.curves import curves_folder, read_curve
from uad.base.common.once import warn_once, why
from uad.base.common.row_costs import cost_of_rows
from uad.base.errors import UadError
from uad.pairs.header import ByStamp, Stamp, identity


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


def measured(path: Path, of: Stamp, role: str, curves: Sequence[Curve]) -> Curve | None:
    """The first of these curves of a model in this role, whatever the settings were; None if no curve fits. A draft
    that was measured as a target only has that curve.
    """
    if not curves:
        return None
    try:
        own = identity(path, of)
    except UadError:  # its header says why
        return None
    known = [curve for curve in curves if curve.model == own]
    in_role = [curve for curve in known if curve.role == role]
    return next(iter(in_role or (known if role == "draft" else ())), None)


def stored() -> list[Curve]:
    """All curves of this machine, the newest first. A file or a folder that cannot be read costs a line in the log."""
    try:
        folder = curves_folder()
        files = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
        stamps = {Path(entry.path): entry.stat().st_mtime_ns for entry in files}
    except FileNotFoundError:
        return []
    except Exception as error:
        warn_once(f"stored cost curves are not used: {why(error)}")
        return []
    newest = sorted(stamps, key=lambda file: (-stamps[file], file))
    return [curve for file in newest if (curve := _curve(file, stamps[file])) is not None]


@ByStamp
def _curve(file: Path, changed: int) -> Curve | None:
    """The curve in a file, which was changed last at this time; None for one that cannot be used."""
    try:
        curve = read_curve(file)
        depth = min(depth for n, depth, _ in curve.samples if n == 1)
        points = tuple(sorted((n, ms) for n, at, ms in curve.samples if at == depth))
        return Curve(str(curve.facts["model"]), str(curve.facts["role"]), points)
    except Exception as error:
        warn_once(f"a stored cost curve is not used: {why(error)}")
        return None
