"""Few rows of one sequence are decoded one by one, with the same logits as in one pass."""

import numpy as np
import pytest

from uad.base.types import Rows
from uad.drafts.model.draft_context import RowByRow


class Passes:
    """A context whose logits are the id and its position; notes the sizes of passes."""

    n_ctx, n_batch, vocab = 100, 8, None

    def __init__(self):
        self.sizes = []

    def prepare(self, rows):
        return list(rows)

    def decode(self, rows):
        self.sizes.append(sum(len(row.ids) for row in rows))
        self._rows = [
            (id_, row.pos + i) for row in rows for i, id_ in enumerate(row.ids) if i >= len(row.ids) - row.n_logits
        ]

    def logits(self):
        return np.array(self._rows, np.float32).reshape(-1, 2)

    def reach(self, seq, n):
        return n

    def take_back(self, seq, n):
        return n

    def clear(self, seq): ...


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([Rows(0, 5, (7, 8, 9), 2)], [1, 1, 1]),
        ([Rows(0, 5, (7, 8, 9), 0)], [1, 1, 1]),
        ([Rows(0, 5, (7,), 1)], [1]),
        ([Rows(0, 5, (7, 8, 9, 1), 2)], [4]),
        ([Rows(0, 5, (7,), 1), Rows(1, 9, (3,), 1)], [2]),
        ([Rows(0, 5, (7, 8), 1), Rows(1, 9, (3,), 1)], [3]),
    ],
    ids=["few", "few that are only read", "one", "more than pay", "two sequences", "two sequences, one behind"],
)
def test_logits_are_those_of_one_pass(rows, sizes):
    whole, apart = Passes(), Passes()
    context = RowByRow(apart, 3)
    whole.decode(rows)
    context.decode(rows)
    assert apart.sizes == sizes
    if any(row.n_logits for row in rows):
        assert np.array_equal(context.logits(), whole.logits())


def test_the_next_pass_has_its_own_logits():
    context = RowByRow(Passes(), 3)
    context.decode([Rows(0, 0, (1, 2), 2)])
    context.decode([Rows(0, 2, (4,), 1)])
    assert context.logits().tolist() == [[4, 2]]
