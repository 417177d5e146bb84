"""The policy that a server starts with says whether its costs can be relied on."""

import threading
import time
from types import SimpleNamespace

import pytest
from kit.models import DRAFTS, finish
from kit.models import TARGET as TARGET_FILE

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.types import Request, SamplingParams
from uad.engine.policy.cost import CostSample
from uad.runtime import pacing
from uad.runtime.runtime import Runtime
from uad.runtime.timing import Timing

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
    class Measured(Timing):
        def curve(self, *_):
            return tuple(CostSample(n, 0, float(ms)) for n in (1, 2, 4) for ms in times), stored

    policies, (line,), again = pacing.open_policy(CONFIG, TARGET, {}, Measured())
    assert ("rough" in line) is is_rough
    assert (again is not None) is is_rough
    assert ("2, 4" in line) is not is_rough, "what is not known is not told as a fact"
    assert bool(policies.last.view(0).plain) is not is_rough, "the page does not reckon with it"


@pytest.mark.parametrize(("is_seldom", "wanted"), [(True, [1]), (False, list(range(1, 18)))])
def test_where_only_predictions_draft_single_rows_alone_are_measured(is_seldom, wanted):
    asked = []

    class Measured(Timing):
        def curve(self, context, config, role, sizes, seconds):
            asked.append((list(sizes), seconds))
            return (CostSample(1, 0, 10.0),), False

    policies, lines, _ = pacing.open_policy(CONFIG, TARGET, {}, Measured(), is_seldom)
    assert [sizes for sizes, _ in asked] == [wanted]
    assert (asked[0][1] == 0.0, lines == ()) == (is_seldom, is_seldom)
    assert policies.last.known.machine.target.ms(1) == 10.0


# --- measured again


class Now:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def curve(*times):
    return tuple(CostSample(n, 0, float(ms)) for n, ms in zip((1, 2, 4), times, strict=True))


BUSY, REST = curve(10, 266, 45), curve(10, 13, 17)


@pytest.fixture
def opened():
    """A server that began on a busy machine: what is measured in turn, and where; its policies."""
    found, places, now = [], [], Now()

    class Measured(Timing):
        clock = now

        def curve(self, *_):
            return BUSY, False

    def measure(context, sizes, seconds, clock, *, seq, depth, stop):
        places.append((seq, depth))
        return found.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "quick", measure)
        policies, _, again = pacing.open_policy(CONFIG, TARGET, {}, Measured())
        yield SimpleNamespace(found=found, places=places, now=now, policies=policies, again=again)


def ms(policy, n):
    return policy.known.machine.target.ms(n)


def test_a_busy_start_is_measured_again_until_the_machine_rests(opened, caplog):
    opened.found += [curve(10, 13, 300), curve(10, 90, 17), REST]
    assert ms(opened.policies.last, 2) <= 20.0, "until then no pass is thought dearer than one of more rows"
    waits = []
    for _ in range(3):
        waits.append(opened.again.wait)
        opened.now.seconds += opened.again.wait
        with caplog.at_level("INFO", "uad"):
            opened.again((1, 40), lambda: False)
    assert waits == [3.0, 6.0, 12.0]
    assert opened.places == [(1, 40)] * 3
    assert opened.again.wait is None
    assert "measured again: one token takes 10.0 ms" in caplog.text
    for policy in (opened.policies.last, opened.policies()):
        assert (ms(policy, 2), ms(policy, 4)) == (13.0, 17.0)
        assert policy.view(0).plain


def test_a_machine_that_is_so_each_time_is_believed(opened):
    opened.found += [BUSY]
    opened.again((0, 0), lambda: False)
    assert ms(opened.policies.last, 2) == 266.0
    assert opened.again.wait is None


@pytest.mark.parametrize(("spare", "is_stopped"), [(None, False), ((0, 0), True)])
def test_where_there_is_no_place_or_no_time_it_is_tried_later(opened, spare, is_stopped):
    opened.found += [REST]
    opened.again(spare, lambda: is_stopped)
    assert opened.again.wait == 3.0
    assert ms(opened.policies.last, 2) < 266.0
    assert not opened.policies.last.view(0).plain


def test_a_server_that_rests_measures_again_and_writes_the_same_text(monkeypatch):
    """The text in the slot is still there afterwards: the same prompt goes on from it."""
    config = Config(
        target=ModelConfig(TARGET_FILE, n_ctx=512, n_threads=1),
        draft=ModelConfig(DRAFTS["zephyr"], n_threads=1),
        drafting=DraftingConfig(exact=True),
    )
    again = threading.Event()

    def disturbed(samples):
        """So they seem at start; later the model thread has measured."""
        return "" if threading.current_thread().name == "uad-model" and again.is_set() else "a neighbour"

    monkeypatch.setattr(pacing, "disturbance", disturbed)
    monkeypatch.setattr(pacing, "alike", lambda *_: False)
    monkeypatch.setattr(pacing, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(pacing, "_MOST_PAUSE_S", 0.0)
    monkeypatch.setattr(pacing, "_TARGET_SECONDS", 0.1)
    with Runtime.open(config) as runtime:
        ids, greedy = runtime.text.tokenize("the river and the stone, the river"), SamplingParams(temperature=0.0)
        request = Request(tuple(ids), greedy, max_tokens=16)
        first = finish(runtime, [request])[0]
        policies = runtime._parts.policies
        assert policies.last.known.machine.is_rough
        again.set()
        deadline = time.monotonic() + 120
        while policies.last.known.machine.is_rough and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not policies.last.known.machine.is_rough
        second = finish(runtime, [request])[0]
    assert first.ids == second.ids
    assert second.done.timings.n_cached > 0
