"""A scripted model that embeds or ranks: a token is a byte, between two specials; a vector says which ids it is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from kit.fake_runtime import BOS, EOS, FakeRuntime
from uad.base.common.embedding import EmbeddingFacts, Ids, Vectors

WIDTH, N_MOST = 4, 64


def vector(ids: Ids) -> Vectors:
    """Of a text with these ids."""
    return np.array([[len(ids), ids[0], ids[-1], sum(map(int, ids))]], np.float32)


def of_tokens(ids: Ids) -> Vectors:
    """One for each id."""
    return np.array([[int(id_), i, 0, 1] for i, id_ in enumerate(ids)], np.float32)


def score(ids: Ids) -> Vectors:
    """Of a pair: how many of its bytes are a "t"."""
    return np.array([[sum(int(id_) == ord("t") for id_ in ids)]], np.float32)


@dataclass
class FakeEmbeds:
    """done: False leaves requests without an answer; they are in `futures`. fail: what they fail with."""

    facts: EmbeddingFacts = field(default_factory=lambda: EmbeddingFacts("cls", WIDTH, N_MOST, 2))
    make: Callable[[Ids], Vectors] = vector
    done: bool = True
    fail: Exception | None = None
    texts: list[list[int]] = field(default_factory=list)
    futures: list[Future[list[Vectors]]] = field(default_factory=list)

    def ids(self, text: str) -> list[int]:
        return [BOS, *text.encode(), EOS]

    def pair(self, query: str, document: str) -> list[int]:
        return [BOS, *query.encode(), EOS, *document.encode(), EOS]

    def cut(self, ids: list[int]) -> list[int]:
        n = self.facts.n_most
        return ids if len(ids) <= n else [*ids[: n - 1], ids[-1]]

    def embed(self, texts: Sequence[Ids]) -> Future[list[Vectors]]:
        future: Future[list[Vectors]] = Future()
        self.texts += [[int(id_) for id_ in ids] for ids in texts]
        self.futures.append(future)
        if self.fail is not None:
            future.set_exception(self.fail)
        elif self.done:
            future.set_result([self.make(ids) for ids in texts])
        return future


def embedding(fake: FakeEmbeds | None = None) -> FakeRuntime:
    """A runtime that embeds."""
    return FakeRuntime(embeds=fake or FakeEmbeds())


def ranking() -> FakeRuntime:
    """A runtime that ranks."""
    return FakeRuntime(embeds=FakeEmbeds(EmbeddingFacts("rank", 1, N_MOST), score))
