"""Which tokens stay: those that a corpus uses most, with all that they are made of. Arithmetic on ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from uad.base.errors import ConfigError
from uad.tools.trim.vocabulary import BPE, Vocabulary

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
        # the first one without room ends the list, though a rarer one with a shorter way may fit: what stays is then
        # the same list for a larger `most`, only longer
        if len(kept) + len(new) > most:
            break
        kept |= new
    return tuple(sorted(kept))


def share(counts: Mapping[int, int], kept: Collection[int]) -> float:
    """How much of the corpus is written in tokens that stay."""
    return sum(counts.get(id_, 0) for id_ in kept) / max(sum(counts.values()), 1)


Order = TypeVar("Order", int, float)


class Ways:
    """Asked for a token, answers with the ids of all tokens that must stay for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        if vocabulary.kind != BPE:
            self._parts = self._by_scores()
            return
        ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(vocabulary.merges):
            ranks.setdefault(merge, rank)
        self._parts = lambda text: on_the_way(text, lambda left, right: ranks.get((left, right)))

    def __call__(self, id_: int) -> frozenset[int]:
        """The token, the one that its text stands for, and every token on the way to it that the vocabulary has."""
        text, by_text = self._vocabulary.tokens[id_], self._vocabulary.by_text
        return frozenset({id_, *(by_text[part] for part in (text, *self._parts(text)) if part in by_text)})

    def _by_scores(self) -> Callable[[str], Iterator[str]]:
        scores, by_text = self._vocabulary.scores, self._vocabulary.by_text

        def order(left: str, right: str) -> float | None:
            id_ = by_text.get(left + right)
            return None if id_ is None else -scores[id_]

        return lambda text: on_the_way(text, order)


def on_the_way(text: str, order: Callable[[str, str], Order | None]) -> Iterator[str]:
    """The characters of a text, and what each merge makes: of all neighbours with an order the lowest, of equal ones
    the leftmost.

    With the merges (e r), (l o), (lo w), (low er) in this order, the way to `lower` is l o w e r, er, lo, low, lower.
    """
    parts = list(text)
    yield from parts
    while True:
        orders = [(place, i) for i in range(len(parts) - 1) if (place := order(parts[i], parts[i + 1])) is not None]
        if not orders:
            return
        _, i = min(orders)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        yield parts[i]
