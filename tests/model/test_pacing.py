"""The policy that a server starts with says whether its costs can be relied on."""

from types import SimpleNamespace

import pytest

from uad.config import DraftingConfig
from uad.policy.cost import CostSample
from uad.runtime import pacing
from uad.runtime.wiring import Wiring


@pytest.mark.parametrize(
    ("times", "stored", "is_rough"),
    [((10, 10, 11), False, False), ((10, 30, 60), False, True), ((10, 30, 60), True, False)],
)
def test_costs_of_a_busy_machine_are_called_rough(times, stored, is_rough):
    class Measured(Wiring):
        def curve(self, *_):
            return tuple(CostSample(n, 0, float(ms)) for n in (1, 2, 4) for ms in times), stored

    config = SimpleNamespace(drafting=DraftingConfig(), n_parallel=1)
    target = SimpleNamespace(
        context=SimpleNamespace(n_ubatch=512, n_alike=60, n_free=1, keep_ms=0.0),
        config=None,
        least=SimpleNamespace(rows=1, of_each=False),
    )
    _, (line,) = pacing.open_policy(config, target, None, None, Measured())
    assert ("rough" in line) is is_rough
