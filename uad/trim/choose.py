"""Which tokens stay: those that a corpus uses most, with all that they are made of. Arithmetic on ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from uad.errors import ConfigError

DEFAULT_KEEP = 16384
"""Most tokens that stay without --keep."""


def choose(
    counts: Mapping[int, int], always: Collection[int], way: Callable[[int], Collection[int]], most: int
) -> tuple[int, ...]:
    """The ids that stay, in order, at most `most` of them: `always`, and the longest list of the most frequent ids with
    their ways.

    Of equally frequent ids the lower ones come first. ConfigError if there is no room for `always`.
    """
    kept = set(always)
    if len(kept) > most:
        raise ConfigError(
            f"--keep {most}: {len(kept):,} tokens of this draft always stay (bytes, control and added tokens); give "
            f"at least {len(kept)}"
        )
    for id_ in sorted(counts, key=lambda id_: (-counts[id_], id_)):
        new = {needed for needed in way(id_) if needed not in kept}
        if len(kept) + len(new) > most:
            break
        kept |= new
    return tuple(sorted(kept))


def share(counts: Mapping[int, int], kept: Collection[int]) -> float:
    """How much of the corpus is written in tokens that stay."""
    return sum(counts.get(id_, 0) for id_ in kept) / max(sum(counts.values()), 1)
