"""Who waits, who is loaded next and who makes room: on a clock that only the test turns."""

import heapq
import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.router_kit import folder_model

from uad.router.instances import PooledModel
from uad.router.load_queue import PATIENCE_S, Load, LoadQueue, Refuse, Serve, Stop
from uad.router.refusal import broken, unknown

LONGEST_ANSWER_S, LONGEST_LOAD_S, LONGEST_STOP_S = 8.0, 6.0, 2.0


def model_of(name, n_bytes=0):
    return PooledModel(folder_model(name, files=((name, n_bytes, 0, 0),)))


class World:
    """Clients, processes and memory about a queue: it does what the queue says, and checks that it can be done."""

    def __init__(self, models, most, memory=float("inf"), most_waiting=1000, chance=None):
        self.models = {model.model.name: model for model in models}
        self.most, self.memory, self.now, self.chance = most, memory, 0.0, chance
        self.queue = LoadQueue(most, most_waiting, self._left)
        self.arrived, self.waits, self.refused, self.left, self.loads = {}, {}, {}, set(), []
        self._due, self._order, self._running = [], itertools.count(), {}
        self.on_free = lambda request: None

    def _left(self):
        return self.memory - sum(one.n_bytes for one in self.queue.instances if one.is_loaded)

    def at(self, seconds, what, *args):
        heapq.heappush(self._due, (self.now + seconds, next(self._order), what, args))

    def run(self, until):
        """Let time pass."""
        while True:
            times = [self._due[0][0]] if self._due else []
            times += [self.queue.wake_at] if self.queue.wake_at is not None else []
            if not times or min(times) > until:
                self.now = max(self.now, until)
                return
            assert min(times) >= self.now
            self.now = min(times)
            if self._due and self._due[0][0] <= self.now:
                _, _, what, args = heapq.heappop(self._due)
                what(*args)
            else:
                self.do(self.queue.step(self.now))
                assert self.queue.wake_at is None or self.queue.wake_at > self.now, "it would wake for ever"

    def ask(self, request, name, seconds, leaves_after=None):
        self.arrived[request] = (self.now, name, seconds)
        if leaves_after is not None:
            self.at(leaves_after, self.leave, request)
        self.do(self.queue.ask(self.models[name], request, self.now))

    def leave(self, request):
        if request not in self.waits and request not in self.refused:
            self.left.add(request)
            self.do(self.queue.leave(self.models[self.arrived[request][1]], request, self.now))
            self.on_free(request)

    def do(self, actions):
        for action in actions:
            match action:
                case Load(instance):
                    self.loads.append(instance.model.name)
                    alive = list(self.queue.instances)
                    assert not self.most or len(alive) <= self.most
                    assert len(alive) == 1 or sum(one.n_bytes for one in alive) <= self.memory
                    seconds = self.chance.uniform(0.1, LONGEST_LOAD_S) if self.chance else 1.0
                    self.at(seconds, self._loaded, instance)
                case Stop(instance, makes_room_for):
                    assert makes_room_for is None or not instance.n_busy, "running answers end normally"
                    assert not instance.is_retired or not instance.n_busy
                    self.at(self.chance.uniform(0, LONGEST_STOP_S) if self.chance else 0.0, self.end, instance)
                case Serve(request, instance):
                    came, name, seconds = self.arrived[request]
                    assert request not in self.waits
                    assert request not in self.left
                    assert instance.owner is self.models[name]
                    assert instance.is_ready
                    assert not instance.is_retired
                    self.waits[request] = self.now - came
                    self._running[request] = instance
                    self.at(seconds, self._done, request)
                case Refuse(request, _):
                    assert request not in self.waits
                    self.refused[request] = action.problem
                    self.at(1.0, self.on_free, request)

    def _loaded(self, instance):
        if instance not in self.queue.instances or instance.is_stopping:
            return
        if self.chance and self.chance.random() < 0.1:
            self.end(instance, broken("it failed").problem)
        else:
            self.do(self.queue.loaded(instance, self.now))

    def end(self, instance, problem=None):
        """Its process is gone, and with it its answers."""
        if instance in self.queue.instances:
            lost = [request for request, where in self._running.items() if where is instance]
            self.do(self.queue.ended(instance, problem, self.now))
            for request in lost:
                self._done(request)

    def _done(self, request):
        instance = self._running.pop(request, None)
        if instance is not None:
            self.do(self.queue.done(instance, self.now))
            self.on_free(request)

    def kill_any(self):
        if alive := list(self.queue.instances):
            self.end(self.chance.choice(alive))

    def change(self, name):
        self.do(self.queue.retire(self.models[name], None, self.now))


def asking_always(world, clients):
    """Each client asks again as soon as it has an answer, until time 250. clients: model, seconds, pause, patience."""
    of, numbers = {}, itertools.count()

    def again(client):
        if world.now < 250:
            request = next(numbers)
            of[request] = client
            name, seconds, _, patience = clients[client]
            world.ask(request, name, seconds, patience)

    def free(request):
        if request in of:
            world.at(clients[of[request]][2], again, of[request])

    world.on_free = free
    for client in range(len(clients)):
        world.at(0.01 * client, again, client)


CLIENTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.floats(2.0, LONGEST_ANSWER_S),
        st.sampled_from((0.0, 0.0, 0.3, 20.0)),
        st.sampled_from((None, None, None, 3.0, 40.0)),
    ),
    min_size=2,
    max_size=5,
)


@given(
    CLIENTS,
    st.integers(0, 2),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.integers(6, 12),
    st.integers(0, 12),
    st.integers(),
)
@example(
    [("a", 7.0, 0.0, None), ("a", 5.123, 0.0, None), ("a", 3.17, 0.0, None), ("b", 2.0, 0.0, None)],
    1,
    [1] * 3,
    12,
    0,
    0,
)
@example(
    [("a", 7.0, 0.0, None), ("a", 5.123, 0.0, None), ("a", 3.17, 0.0, None), ("b", 2.0, 0.0, None)], 0, [6] * 3, 8, 0, 0
)
def test_whoever_waits_is_served(clients, most, sizes, memory, n_faults, seed):
    """Whatever clients ask, processes fail, files change and clients leave."""
    chance = random.Random(seed)
    world = World([model_of(name, size) for name, size in zip("abc", sizes, strict=True)], most, memory, chance=chance)
    asking_always(world, clients)
    for _ in range(n_faults):
        world.at(chance.uniform(0, 250), world.kill_any)
        world.at(chance.uniform(0, 250), world.change, chance.choice("abc"))
    world.run(900)
    n = len(sizes)
    bound = n * (n * (PATIENCE_S + LONGEST_ANSWER_S + LONGEST_STOP_S) + LONGEST_LOAD_S + PATIENCE_S)
    assert max(world.waits.values(), default=0) <= bound
    assert world.arrived.keys() == world.waits.keys() | world.refused.keys() | world.left
    assert world.queue.n_waiting == 0
    assert not any(one.n_busy for one in world.queue.instances)


def test_a_model_without_pause_makes_room_for_one_that_waits():
    world = World([model_of("a"), model_of("b")], most=1)
    asking_always(world, [("a", seconds, 0.0, None) for seconds in (2.0, 1.3, 0.7)])
    world.run(20)
    world.ask("b", "b", 1.0)
    world.run(20 + PATIENCE_S - 0.1)
    assert world.queue.instances
    assert "b" not in world.waits
    n_before = len(world.waits)
    world.run(40)
    assert world.waits["b"] <= PATIENCE_S + 2.0 + 1.0
    assert len(world.waits) > n_before + 3, "who waited for a is served afterwards"


def test_the_busy_model_used_longest_ago_makes_room():
    world = World([model_of(name) for name in "abc"], most=2)
    asking_always(world, [("a", 2.0, 0.0, None), ("a", 1.3, 0.0, None)])
    world.ask("long", "b", 30.0)
    world.run(10)
    world.ask("c", "c", 1.0)
    world.run(10 + PATIENCE_S + 1)
    assert [one.model.name for one in world.queue.instances if one.is_closed] == ["b"]


def test_one_answer_without_end_keeps_nobody_waiting():
    """The model used longest ago writes for an hour: after a while another one makes room, and the first opens."""
    world = World([model_of(name) for name in "abc"], most=2)
    asking_always(world, [("a", 2.0, 0.0, None), ("a", 1.3, 0.0, None)])
    world.ask("long", "b", 3600.0)
    world.run(10)
    world.ask("c", "c", 1.0)
    world.ask("b", "b", 1.0)
    world.run(40)
    assert world.waits["c"] < 3 * PATIENCE_S
    assert world.waits["b"] < 3 * PATIENCE_S


def test_a_model_that_was_just_loaded_has_some_seconds():
    world = World([model_of("a"), model_of("b")], most=1)
    asking_always(world, [(name, seconds, 0.0, None) for name in "ab" for seconds in (0.5, 0.7123, 1.1377)])
    world.run(200)
    assert len(world.loads) > 20
    assert len(world.loads) <= 200 / (PATIENCE_S + 1.0) + 1


def test_running_answers_of_a_model_that_makes_room_end_normally():
    world = World([model_of("a"), model_of("b")], most=1)
    world.ask("first", "a", 30.0)
    world.run(5)
    world.ask("b", "b", 1.0)
    world.run(5 + PATIENCE_S + 1)
    (instance,) = world.queue.instances
    assert (instance.is_closed, instance.n_busy, instance.is_stopping) == (True, 1, False)
    world.ask("second", "a", 1.0)
    assert "second" not in world.waits
    world.run(40)
    assert world.loads == ["a", "b", "a"]
    assert world.waits.keys() == {"first", "b", "second"}


def test_a_place_that_nobody_wants_any_more_opens_again():
    world = World([model_of("a"), model_of("b")], most=1)
    world.ask("first", "a", 300.0)
    world.run(5)
    world.ask("b", "b", 1.0)
    world.run(5 + PATIENCE_S + 1)
    world.ask("second", "a", 1.0)
    world.leave("b")
    assert world.waits["second"] == 0
    assert world.queue.wake_at is None


@pytest.mark.parametrize(("sizes", "at_once"), [((6, 6), ["a"]), ((6, 4), ["a", "b"]), ((3, 3, 3, 3), ["a", "b", "c"])])
def test_what_is_loading_counts_with_its_bytes(sizes, at_once):
    world = World([model_of(name, size) for name, size in zip("abcd", sizes, strict=False)], most=0, memory=10)
    for name in world.models:
        world.ask(name, name, 1.0)
    assert world.loads == at_once
    world.run(20)
    assert world.waits.keys() == world.models.keys()


def test_a_load_that_stands_still_keeps_none_waiting_that_has_room():
    world = World([model_of(name, 1) for name in "abc"], most=2, memory=10)
    world.at = lambda seconds, what, *args: (
        None if what == world._loaded and args[0].model.name == "a" else World.at(world, seconds, what, *args)
    )
    for name in "abc":
        world.ask(name, name, 1.0)
    world.run(20)
    assert world.waits.keys() == {"b", "c"}


def test_a_full_queue_refuses_and_a_model_that_is_gone_too():
    world = World([model_of("a"), model_of("b")], most=1, most_waiting=2)
    world.ask(0, "a", 5.0)
    world.run(2)
    for request in (1, 2, 3):
        world.ask(request, "b", 1.0)
    assert "2 requests wait" in world.refused[3].message
    world.do(world.queue.retire(world.models["b"], unknown("b", []).problem, world.now))
    assert world.refused.keys() == {1, 2, 3}
    world.run(20)
    assert world.loads == ["a"]
