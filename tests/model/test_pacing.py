"""The policy that a server starts with says whether its costs can be relied on."""

from types import SimpleNamespace

import pytest

from uad.config import DraftingConfig
from uad.policy.cost import CostSample
from uad.runtime import pacing
from uad.runtime.wiring import Wiring

CONFIG = SimpleNamespace(drafting=DraftingConfig(), n_parallel=1)
TARGET = SimpleNamespace(
    context=SimpleNamespace(n_ubatch=512, n_alike=60, n_free=1, keep_ms=0.0),
    config=None,
    least=SimpleNamespace(rows=1, of_each=False),
)


@pytest.mark.parametrize(
    ("times", "stored", "is_rough"),
    [((10, 10, 11), False, False), ((10, 30, 60), False, True), ((10, 30, 60), True, False)],
)
def test_costs_of_a_busy_machine_are_called_rough(times, stored, is_rough):
    class Measured(Wiring):
        def curve(self, *_):
            return tuple(CostSample(n, 0, float(ms)) for n in (1, 2, 4) for ms in times), stored

    _, (line,) = pacing.open_policy(CONFIG, TARGET, None, None, Measured())
    assert ("rough" in line) is is_rough


@pytest.mark.parametrize(("is_seldom", "wanted"), [(True, [1]), (False, list(range(1, 18)))])
def test_where_only_predictions_draft_single_rows_alone_are_measured(is_seldom, wanted):
    asked = []

    class Measured(Wiring):
        def curve(self, context, config, role, sizes, seconds):
            asked.append((list(sizes), seconds))
            return (CostSample(1, 0, 10.0),), False

    policies, lines = pacing.open_policy(CONFIG, TARGET, None, None, Measured(), is_seldom)
    assert [sizes for sizes, _ in asked] == [wanted]
    assert (asked[0][1] == 0.0, lines == ()) == (is_seldom, is_seldom)
    assert policies.last.machine.target.ms(1) == 10.0
