"""Which models are loaded, without processes and without a clock."""

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic

import pytest
from kit.router_kit import Clock, FakeLauncher, folder_model, folder_of

from uad.router.instances import LoadState
from uad.router.load_queue import PATIENCE_S
from uad.router.pool import ModelPool
from uad.router.refusal import RoutingError


@asynccontextmanager
async def pool_of(*names, most=2, waiting=10, launcher=None, memory_left=lambda pids: math.inf):
    told = []
    launcher, clock = launcher or FakeLauncher(), Clock()
    pool = ModelPool(launcher, most, waiting, memory_left, lambda *event: told.append(event), clock)
    pool.launcher, pool.clock, pool.told = launcher, clock, told
    pool.reload(folder_of(*names))
    try:
        yield pool
    finally:
        for gate in (*launcher.gates.values(), *launcher.stops.values()):
            gate.set()
        await pool.close()


def run(test, *names, **more):
    async def main():
        async with asyncio.timeout(120), pool_of(*(names or ("a", "b", "c")), **more) as pool:
            return await test(pool)

    return asyncio.run(main())


async def use(pool, name):
    async with pool.using(pool.find(name)) as child:
        return child.name


async def settle():
    for _ in range(50):
        await asyncio.sleep(0)


class Held:
    """A request that answers until it is let go."""

    def __init__(self, pool, name):
        self.done, self.has_begun = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._hold(pool, name))

    async def _hold(self, pool, name):
        async with pool.using(pool.find(name)) as child:
            self.has_begun.set()
            await self.done.wait()
            return child

    async def end(self):
        self.done.set()
        return await self.task


async def held(pool, name):
    one = Held(pool, name)
    await one.has_begun.wait()
    return one


def loaded(pool):
    return {name for name, one in pool.models.items() if one.is_ready}


def test_a_model_is_loaded_for_its_first_request_and_stays():
    async def test(pool):
        assert [await use(pool, name) for name in "aba"] == ["a", "b", "a"]
        assert pool.launcher.names == ["a", "b"]

    run(test)


def test_the_one_used_longest_ago_makes_room():
    async def test(pool):
        for name in "abac":
            await use(pool, name)
        assert loaded(pool) == {"a", "c"}
        assert pool.models["b"].counts.n_evicted == 1

    run(test)


def test_without_a_limit_none_makes_room():
    async def test(pool):
        for name in "abc":
            await use(pool, name)
        assert loaded(pool) == {"a", "b", "c"}

    run(test, most=0)


def test_one_that_answers_never_makes_room_and_the_queue_waits_for_it():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        assert not waiting.done()
        assert not pool.launcher.started[0].stopped
        await busy.end()
        assert await waiting == "b"
        assert loaded(pool) == {"b"}

    run(test, most=1)


def test_requests_for_one_model_wait_for_one_load():
    async def test(pool):
        busy = await held(pool, "a")
        await use(pool, "b")
        assert await asyncio.gather(*(use(pool, "c") for _ in range(3))) == ["c"] * 3
        assert loaded(pool) == {"a", "c"}
        assert pool.launcher.names == ["a", "b", "c"]
        await busy.end()

    run(test)


def test_a_client_that_leaves_the_queue_costs_nobody_the_model():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        waiting.cancel()
        await settle()
        await busy.end()
        await settle()
        assert loaded(pool) == {"a"}
        assert pool.n_waiting == 0

    run(test, most=1)


def test_first_come_first_loaded():
    async def test(pool):
        busy, order = await held(pool, "a"), []

        async def ask(name):
            async with pool.using(pool.find(name)):
                order.append(name)

        tasks = []
        for name in "bc":
            tasks.append(asyncio.create_task(ask(name)))
            await settle()
        await busy.end()
        await asyncio.gather(*tasks)
        assert order == ["b", "c"]

    run(test, most=1)


def test_two_that_want_the_place_of_one_are_both_served():
    async def test(pool):
        await use(pool, "a")
        assert await asyncio.gather(use(pool, "b"), use(pool, "c")) == ["b", "c"]
        assert "a" not in loaded(pool)

    run(test, most=1)


def test_what_was_handed_over_when_its_client_left_is_free_again():
    async def test(pool):
        pool.launcher.gates["a"] = asyncio.Event()
        waiting = asyncio.create_task(use(pool, "a"))
        await settle()
        (waiter,) = pool.models["a"].waiters
        waiter.add_done_callback(lambda _: waiting.cancel())
        pool.launcher.gates["a"].set()
        await asyncio.wait([waiting])
        assert waiting.cancelled() or waiting.done()
        assert pool.models["a"].running.n_busy == 0
        assert await use(pool, "b") == "b"

    run(test, most=1)


def test_a_full_queue_refuses_with_a_time():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = [asyncio.create_task(use(pool, "b")) for _ in range(2)]
        await settle()
        with pytest.raises(RoutingError, match="2 requests wait") as refused:
            await use(pool, "c")
        assert (refused.value.problem.status, refused.value.problem.headers["Retry-After"]) == (503, "5")
        await busy.end()
        await asyncio.gather(*waiting)

    run(test, most=1, waiting=2)


def test_a_failed_load_tells_why_and_pauses_longer_each_time():
    async def test(pool):
        pool.launcher.fails["a"] = ("out of memory", 3)
        pauses = []
        for _ in range(8):
            with pytest.raises(RoutingError, match="could not be loaded: out of memory") as refused:
                await use(pool, "a")
            assert refused.value.problem.status == 502
            pauses.append(pool.models["a"].failure.again_at - pool.clock.now)
            with pytest.raises(RoutingError, match="out of memory") as refused:
                await use(pool, "a")
            assert refused.value.problem.status == 503
            assert refused.value.problem.headers["Retry-After"] == f"{pauses[-1]:.0f}"
            pool.clock.now += pauses[-1]
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
        assert pool.models["a"].failure.code == 3
        del pool.launcher.fails["a"]
        assert await use(pool, "a") == "a"
        assert pool.models["a"].failure is None

    run(test)


def test_a_load_that_is_asked_for_does_not_wait_for_the_pause():
    async def test(pool):
        pool.launcher.fails["a"] = ("no", 1)
        with pytest.raises(RoutingError):
            await use(pool, "a")
        pool.launcher.fails.clear()
        pool.load(pool.find("a"))
        await settle()
        assert loaded(pool) == {"a"}

    run(test)


def test_a_process_that_dies_is_started_again_on_demand():
    async def test(pool):
        await use(pool, "a")
        pool.launcher.started[0].die(-9, "killed")
        await settle()
        assert pool.models["a"].state is LoadState.UNLOADED
        assert (pool.models["a"].failure.code, pool.models["a"].failure.reason) == (-9, "killed")
        assert ("a", "model_status", {"status": "unloaded", "exit_code": -9, "reason": "killed"}) in pool.told
        pool.clock.now += 1
        assert await use(pool, "a") == "a"

    run(test)


def test_a_process_that_has_answered_fails_as_if_for_the_first_time():
    async def test(pool):
        for n in range(1, 4):
            pool.load(pool.find("a"))
            await settle()
            pool.launcher.started[-1].die(1, "x")
            await settle()
            assert pool.models["a"].n_failures == n
        pool.clock.now += 60
        await use(pool, "a")
        pool.launcher.started[-1].die(1, "x")
        await settle()
        assert pool.models["a"].n_failures == 1

    run(test)


def test_its_last_answer_counts_in_a_place_that_is_free_only_when_the_process_ends():
    async def test(pool):
        pool.launcher.stops["a"] = asyncio.Event()
        await use(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        assert pool.launcher.started[0].stopped
        assert pool.launcher.names == ["a"]
        pool.launcher.stops["a"].set()
        assert await waiting == "b"

    run(test, most=1)


def test_a_request_for_a_model_that_is_being_unloaded_waits_for_the_next_one():
    async def test(pool):
        pool.launcher.stops["a"] = asyncio.Event()
        await use(pool, "a")
        pool.unload(pool.find("a"))
        waiting = asyncio.create_task(use(pool, "a"))
        await settle()
        assert not waiting.done()
        pool.launcher.stops["a"].set()
        assert await waiting == "a"
        assert pool.launcher.names == ["a", "a"]

    run(test, most=1)


def test_unloading_ends_a_load_and_tells_who_waits():
    async def test(pool):
        pool.launcher.gates["a"] = asyncio.Event()
        waiting = asyncio.create_task(use(pool, "a"))
        await settle()
        pool.unload(pool.find("a"))
        with pytest.raises(RoutingError, match="unloaded while"):
            await waiting
        await settle()
        assert pool.launcher.n_cancelled == 1
        assert pool.models["a"].state is LoadState.UNLOADED

    run(test)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_what_is_so_already_is_refused(verb):
    async def test(pool):
        if verb == "load":
            await use(pool, "a")
        with pytest.raises(RoutingError, match="already running" if verb == "load" else "not running"):
            getattr(pool, verb)(pool.find("a"))

    run(test)


def test_a_changed_model_answers_to_its_end_and_is_loaded_anew():
    async def test(pool):
        busy = await held(pool, "a")
        old = pool.launcher.started[0]
        pool.reload({"a": replace(folder_model("a"), files=(("a", 1, 2, 3),)), "b": folder_model("b")})
        await settle()
        assert not old.stopped
        assert list(pool.models) == ["a", "b"]
        assert await use(pool, "a") == "a"
        assert pool.launcher.names == ["a", "a"]
        assert await busy.end() is old
        await settle()
        assert old.stopped
        assert loaded(pool) == {"a"}

    run(test)


def test_a_model_that_did_not_change_is_left_alone():
    async def test(pool):
        await use(pool, "a")
        pool.reload(folder_of("a", "d"))
        await settle()
        assert not pool.launcher.started[0].stopped
        assert await use(pool, "d") == "d"

    run(test)


def test_who_waits_for_a_model_that_is_gone_is_told():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        pool.reload(folder_of("a", "c"))
        with pytest.raises(RoutingError, match="'b' not found"):
            await waiting
        await busy.end()

    run(test, most=1)


def test_who_waits_for_a_model_that_changes_gets_the_new_one():
    async def test(pool):
        pool.launcher.gates["a"] = asyncio.Event()
        waiting = asyncio.create_task(use(pool, "a"))
        await settle()
        new = replace(folder_model("a"), words=("--ctx-size=1",))
        pool.reload({"a": new})
        pool.launcher.gates["a"].set()
        assert await waiting == "a"
        assert pool.models["a"].running.model is new
        assert pool.launcher.n_cancelled == 1

    run(test)


def test_memory_makes_room_one_by_one_and_a_model_alone_is_tried():
    async def test(pool):
        assert [await use(pool, name) for name in "abc"] == ["a", "b", "c"]
        assert loaded(pool) == {"c"}

    run(test, most=4, memory_left=lambda pids: -1)


def test_where_memory_lacks_a_busy_model_is_waited_for():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        assert not waiting.done()
        await busy.end()
        assert await waiting == "b"

    run(test, most=4, memory_left=lambda pids: -1)


def test_closing_tells_who_waits_and_ends_all():
    async def test(pool):
        await use(pool, "b")
        pool.launcher.gates["a"] = asyncio.Event()
        waiting = asyncio.create_task(use(pool, "a"))
        await settle()
        await pool.close()
        with pytest.raises(RoutingError, match="shutting down"):
            await waiting
        assert pool.launcher.started[0].stopped
        with pytest.raises(RoutingError, match="shutting down"):
            await use(pool, "c")

    run(test)


@pytest.mark.parametrize(
    "name", ["Qwen3-8B", "qwen3-8b", "Qwen3-8B:latest", "Qwen3-8B.gguf", "big", "BIG:latest", "library/qwen3-8b"]
)
def test_a_model_has_its_name_in_all_spellings(name):
    async def test(pool):
        pool.reload({"Qwen3-8B": replace(folder_model("Qwen3-8B"), aliases=("big",)), **folder_of("x")})
        assert pool.find(name).model.name == "Qwen3-8B"

    run(test)


def test_an_exact_name_wins_over_a_spelling():
    async def test(pool):
        assert pool.find("A").model.name == "A"
        assert pool.find("a").model.name == "a"

    run(test, "a", "A")


def test_an_unknown_name_gets_the_nearest():
    async def test(pool):
        with pytest.raises(RoutingError, match="model 'qwen3-7b' not found; did you mean 'qwen3-8b'") as refused:
            pool.find("qwen3-7b")
        assert refused.value.problem.status == 404

    run(test, "llama", "qwen3-8b")


def test_a_busy_model_takes_no_new_requests_once_another_has_waited():
    async def test(pool):
        first = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        pool.clock.now += PATIENCE_S - 1
        pool.step()
        second = await held(pool, "a")
        pool.clock.now += 1
        pool.step()
        third = asyncio.create_task(use(pool, "a"))
        await settle()
        assert not third.done()
        await first.end()
        assert not pool.launcher.started[0].stopped
        await second.end()
        assert [await waiting, await third] == ["b", "a"]
        assert pool.launcher.names == ["a", "b", "a"]

    run(test, most=1)


def test_a_request_that_may_not_load_is_refused_by_a_model_that_makes_room():
    async def test(pool):
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        await settle()
        pool.clock.now += PATIENCE_S
        pool.step()
        with pytest.raises(RoutingError, match="not loaded"):
            async with pool.using(pool.find("a"), loads=False):
                pass
        await busy.end()
        await waiting

    run(test, most=1)


def test_a_waiting_model_wakes_the_pool_by_itself(monkeypatch):
    monkeypatch.setattr("uad.router.load_queue.PATIENCE_S", 0.01)

    async def test(pool):
        pool._clock = monotonic
        busy = await held(pool, "a")
        waiting = asyncio.create_task(use(pool, "b"))
        while not pool.models["a"].instance.is_closed:
            await asyncio.sleep(0)
        await busy.end()
        assert await waiting == "b"

    run(test, most=1)


def test_two_loads_at_once_need_memory_for_both():
    async def test(pool):
        for name in "ab":
            pool.launcher.gates[name] = asyncio.Event()
        asked = [asyncio.create_task(use(pool, name)) for name in "ab"]
        await settle()
        assert [pool.models[name].state for name in "ab"] == ["loading", "unloaded"]
        for gate in pool.launcher.gates.values():
            gate.set()
        assert await asyncio.gather(*asked) == ["a", "b"]

    async def sized(pool):
        pool.reload({name: folder_model(name, files=((name, 6, 0, 0),)) for name in "ab"})
        await test(pool)

    run(sized, most=4, memory_left=lambda pids: 10 - 6 * len(list(pids)))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_the_end_of_an_old_process_is_not_held_against_its_successor(is_loaded):
    async def test(pool):
        busy = await held(pool, "a")
        pool.reload({"a": replace(folder_model("a"), words=("--new",))})
        if is_loaded:
            await use(pool, "a")
        pool.launcher.started[0].die(-11, "it crashed")
        await settle()
        assert pool.models["a"].failure is None
        assert pool.models["a"].n_failures == 0
        assert not any("exit_code" in data for _, _, data in pool.told)
        assert (("a", "model_status", {"status": "unloaded"}) in pool.told) is not is_loaded
        assert await use(pool, "a") == "a"
        busy.task.cancel()

    run(test)


def test_an_old_process_that_ends_as_asked_does_not_unload_its_successor_in_words():
    async def test(pool):
        busy = await held(pool, "a")
        pool.reload({"a": replace(folder_model("a"), words=("--new",))})
        await use(pool, "a")
        pool.told.clear()
        await busy.end()
        await settle()
        assert pool.launcher.started[0].stopped
        assert pool.told == []

    run(test)


def test_a_load_that_stood_still_is_503_with_a_time_and_lets_the_next_one_in():
    async def test(pool):
        pool.launcher.gates["a"] = asyncio.Event()
        waiting = [asyncio.create_task(use(pool, name)) for name in "ab"]
        await settle()
        pool.launcher.fails["a"] = ("its process did nothing for minutes, and was ended", -9, True)
        pool.launcher.gates["a"].set()
        with pytest.raises(RoutingError, match="'a' could not be loaded: its process did nothing") as refused:
            await waiting[0]
        assert refused.value.problem.status == 503
        assert refused.value.problem.headers["Retry-After"] == "1"
        assert await waiting[1] == "b"

    run(test, most=1)


def test_a_load_that_is_given_up_before_it_began_leaves_its_place():
    async def test(pool):
        pool.load(pool.find("a"))
        pool.unload(pool.find("a"))
        await settle()
        assert pool.models["a"].state is LoadState.UNLOADED
        assert await use(pool, "b") == "b"

    run(test, most=1)


def test_each_of_those_who_wait_has_an_error_of_its_own():
    """A shared one would keep the frames of all of them."""

    async def test(pool):
        pool.launcher.fails["a"] = ("no", 1)
        errors = await asyncio.gather(*(use(pool, "a") for _ in range(2)), return_exceptions=True)
        assert errors[0] is not errors[1]

    run(test)


def test_a_model_takes_its_files_size_until_its_process_has_planned():
    async def sized(pool):
        files = (("m", 5, 0, 0), ("mmproj", 2, 0, 0))
        pool.reload({"m": folder_model("m", files=files), "n": folder_model("n", files=files)})
        m, n = pool.find("m"), pool.find("n")
        assert m.n_bytes == n.n_bytes == 7
        pool.launcher.gates |= {"m": asyncio.Event(), "n": asyncio.Event()}
        first = asyncio.create_task(use(pool, "m"))
        await settle()
        assert m.instance.n_bytes == m.n_bytes == 4
        second = asyncio.create_task(use(pool, "n"))
        await settle()
        assert n.is_loading, "7 + 4 of 12: by the files' sizes there was no room for both"
        for gate in pool.launcher.gates.values():
            gate.set()
        assert await asyncio.gather(first, second) == ["m", "n"]
        pool.reload({"m": folder_model("m", files=(("m", 6, 1, 0),)), "n": n.model})
        assert (m.n_bytes, n.n_bytes) == (6, 7), "another file is another plan"

    launcher = FakeLauncher()
    launcher.plans["m"] = 4
    run(sized, most=4, launcher=launcher, memory_left=lambda pids: 12)
