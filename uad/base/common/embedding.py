"""Facts of a model that embeds or ranks texts, and how its vectors are scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""[n, width]: one row of a text, or one of each of its ids where none are pooled; of a model that ranks its scores."""
Ids = Sequence[int] | npt.NDArray[np.int32]
QUERY, DOCUMENT = "query", "document"
_INT16 = 32760.0
"""The largest number of vectors that are scaled to the range of 16 bits, as llama.cpp has it."""


@dataclass(frozen=True, slots=True)
class EmbeddingFacts:
    """width: numbers of a vector, or of scores; n_most: ids of the longest text; normalize: as `--embd-normalize` says;
    prefixes: text before texts to embed, by the kind of text, which is empty for all others.
    """

    pooling: str
    width: int
    n_most: int
    normalize: int = 2
    prefixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> bool:
        """Whether it gives scores to pairs of texts, and no vectors."""
        return self.pooling == "rank"

    @property
    def instead(self) -> str:
        """The way to what the server does in place of writing."""
        return (
            "this server ranks documents and writes nothing; see /v1/rerank"
            if self.ranks
            else "this server embeds texts and writes none; see /v1/embeddings"
        )


class Embeds(Protocol):
    """A model that embeds or ranks. Every method may be called from any thread; `ids` and `pair` may take long."""

    @property
    def facts(self) -> EmbeddingFacts:
        """Facts of the model."""

    def ids(self, text: str) -> list[int]:
        """The ids of a whole text, with those that the model wants around it."""

    def pair(self, query: str, document: str) -> list[int]:
        """The ids of a query and a document, as a model that ranks takes them."""

    def cut(self, ids: list[int]) -> list[int]:
        """The beginning of ids that are too many, with what ends a text."""

    def embed(self, texts: Sequence[Ids]) -> Future[list[Vectors]]:
        """Vectors of the texts, in their order; the future has UadError where that fails. One that is cancelled takes
        what is left of its texts back. Raises UnavailableError."""


def scaled(vectors: Vectors, how: int) -> Vectors:
    """Each row scaled as `--embd-normalize` says: -1 not at all, 0 to the range of 16 bits, 1 by the sum of sizes, 2 to
    length 1, n by the p-norm. Sums are in double precision, number after number, so bits depend on the row alone.
    """
    if how < 0:
        return vectors
    sizes = np.abs(vectors.astype(np.float64))
    with np.errstate(over="ignore"):  # a sum beyond all numbers scales to zeros, as in llama-server
        norms = sizes.max(axis=1) / _INT16 if how == 0 else np.add.accumulate(sizes**how, axis=1)[:, -1] ** (1 / how)
    return (vectors * np.where(norms > 0, 1 / np.where(norms > 0, norms, 1), 0)[:, None]).astype(np.float32)
