"""How likely tokens are, judged by nothing but their place in the vocabulary: vocabularies are written in the order of
frequency.
"""

from __future__ import annotations

import numpy as np

from uad.vocab.table import VocabTable, is_text

_OFFSET = 200.0
_ASCII = 100.0
_PER_CHARACTER = 10.0


class Ranking:
    """Weights of all tokens (Zipf's law over ids, no unit), and the heaviest of those that go on from given bytes.

    SentencePiece lists single characters last, whatever their frequency: they get the weight of an early place.
    """

    def __init__(self, vocab: VocabTable) -> None:
        self._vocab = vocab
        weights = 1.0 / (np.arange(vocab.n_vocab) + _OFFSET)
        n_characters = 0
        for id_, piece in enumerate(vocab.pieces):
            if len(piece) <= 4 and is_text(piece) and len(piece.decode()) == 1:
                n_characters += len(piece) > 1
                place = _ASCII if len(piece) == 1 else _PER_CHARACTER * n_characters
                weights[id_] = max(weights[id_], 1.0 / (_OFFSET + place))
        self.weights: list[float] = weights.tolist()
        self._ids = np.array(vocab.sorted_pieces[1], np.intp)

    def going_on(self, data: bytes, n: int) -> list[tuple[bytes, float]]:
        """What the n heaviest tokens that begin with data, and are longer, have behind it; with their weights."""
        low, high = self._vocab.range_of(data)
        ids = self._ids[low:high]
        if len(ids) > n + 1:
            ids = np.partition(ids, n)[: n + 1]
        pieces, weights = self._vocab.pieces, self.weights
        return [(pieces[id_][len(data) :], weights[id_]) for id_ in ids.tolist() if len(pieces[id_]) > len(data)]
