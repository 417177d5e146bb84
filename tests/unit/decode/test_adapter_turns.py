"""Requests that want other adapters take turns; those that want the same run side by side."""

from uad.base.errors import UnavailableError
from uad.base.events import Failed
from uad.base.types import Request
from uad.runtime.adapters import AdapterTurns


class Engine:
    def __init__(self):
        self.running, self.log = [], []
        self.texts = self.requests = self

    @property
    def is_idle(self):
        return not self.running

    def submit(self, number, request, sink):
        self.running.append(number)
        self.log.append(number)

    def cancel(self, number, why=""):
        self.running = [one for one in self.running if one != number]

    def fail_all(self, error):
        self.running = []

    def forget(self):
        self.log.append("forget")


def turns():
    engine = Engine()
    return engine, AdapterTurns(engine, lambda scales: engine.log.append(scales), (1.0,))


def ask(turning, number, adapters=None, sink=None):
    turning.submit(number, turning.resolved(Request((1,), adapters=adapters)), sink)


def test_the_same_adapters_run_side_by_side():
    engine, turning = turns()
    ask(turning, 1)
    ask(turning, 2, (1.0,))
    assert engine.log == [1, 2]


def test_others_wait_until_the_engine_is_idle_and_nobody_overtakes_them():
    engine, turning = turns()
    ask(turning, 1)
    ask(turning, 2, (0.0,))
    ask(turning, 3)
    turning.settle()
    assert engine.log == [1]
    engine.running.clear()
    turning.settle()
    assert engine.log == [1, (0.0,), "forget", 2]
    turning.cancel(2)
    assert engine.log[-3:] == [(1.0,), "forget", 3]


def test_who_waits_can_be_cancelled_and_is_told_of_the_end():
    engine, turning = turns()
    told = []
    ask(turning, 1)
    ask(turning, 2, (0.0,))
    ask(turning, 3, (0.0,), told.append)
    turning.cancel(2)
    turning.fail_all(UnavailableError("stop"))
    assert told == [Failed(3, told[0].error)]
    assert str(told[0].error) == "stop"
    turning.settle()
    assert engine.log == [1]


def test_a_new_default_is_for_requests_that_come_later():
    _, turning = turns()
    before = turning.resolved(Request((1,)))
    turning.default = (0.5,)
    assert (before.adapters, turning.resolved(Request((1,))).adapters) == ((1.0,), (0.5,))
