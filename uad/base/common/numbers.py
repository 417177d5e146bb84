"""Numbers as people write them."""

from __future__ import annotations

from math import floor, log10


def rounded(value: float, digits: int = 2) -> str:
    """With this many digits that count, and never an exponent: 197.7 is "198", 0.0123 is "0.012"."""
    places = digits - 1 - floor(log10(abs(float(f"{value:.{digits}g}")))) if value else 0
    return f"{value:,.{max(places, 0)}f}"


def duration(ms: float) -> str:
    """Milliseconds in words: "35 ms", "2.1 s", "74 s"."""
    return f"{ms:.0f} ms" if ms < 999.5 else f"{rounded(ms / 1e3)} s"
