"""Ratios of speeds, as tables and JSON lines have them."""

from __future__ import annotations

from rich.text import Text

SLOWER, FASTER = 0.98, 1.05
"""Ratios outside of which something is slower or faster, and not only noise."""


def share(part: int, whole: int) -> float | None:
    """The part divided by the whole; None where the whole is 0."""
    return part / whole if whole else None


def rounded(value: float | None) -> float | None:
    """A number as the JSON line has it."""
    return None if value is None else round(value, 4)


def coloured(ratio: float) -> Text:
    """Red where slower, green where faster."""
    return Text(f"{ratio:.2f}", "red" if ratio < SLOWER else "green" if ratio > FASTER else "")
