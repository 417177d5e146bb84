"""How a token comes about: the tokens on the way from single characters to it, as llama.cpp merges them.

A text whose tokens all stay is cut as before if everything on their ways stays, too. The merges that made those tokens
then are all still possible, none is new, and their order is the same; so at each step the best one is the same as
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from uad.trim.vocabulary import BPE, Vocabulary

Order = TypeVar("Order", int, float)


class Ways:
    """Asked for a token, answers with the ids of all tokens that must stay for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._parts = self._by_merges() if vocabulary.kind == BPE else self._by_scores()

    def __call__(self, id_: int) -> frozenset[int]:
        """The token, the one that its text stands for, and every token on the way to it that the vocabulary has."""
        text, by_text = self._vocabulary.tokens[id_], self._vocabulary.by_text
        return frozenset({id_, *(by_text[part] for part in (text, *self._parts(text)) if part in by_text)})

    def _by_merges(self) -> Callable[[str], Iterator[str]]:
        ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(self._vocabulary.merges):
            ranks.setdefault(merge, rank)
        return lambda text: on_the_way(text, lambda left, right: ranks.get((left, right)))

    def _by_scores(self) -> Callable[[str], Iterator[str]]:
        scores, by_text = self._vocabulary.scores, self._vocabulary.by_text

        def order(left: str, right: str) -> float | None:
            id_ = by_text.get(left + right)
            return None if id_ is None else -scores[id_]

        return lambda text: on_the_way(text, order)


def on_the_way(text: str, order: Callable[[str, str], Order | None]) -> Iterator[str]:
    """The characters of a text, and what each merge makes: of all neighbours with an order the lowest, of equal ones
    the leftmost.
    """
    parts = list(text)
    yield from parts
    while True:
        orders = [(found, i) for i in range(len(parts) - 1) if (found := order(parts[i], parts[i + 1])) is not None]
        if not orders:
            return
        _, i = min(orders)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        yield parts[i]
