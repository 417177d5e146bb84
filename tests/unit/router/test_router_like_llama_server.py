"""What llama-server's own tests of its router ask for, in the same terms. Downloads and its cache of models uad does
not have: `POST` and `DELETE /models` are 501, and a preset hides nothing.
"""

import asyncio

import pytest
from aiohttp import web
from kit.router_kit import SECRET, FakeLauncher, echoing, folder_config, folder_of, routed

from uad.base.config import ServerConfig

CHAT = {"model": "a", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


def test_props_are_those_of_a_router():
    _, props = routed(lambda one: one.ask("GET", "/props"), config=folder_config(2, autoload=False))
    assert (props["role"], props["max_instances"], props["models_autoload"]) == ("router", 2, False)
    assert props["build_info"].startswith("b")


def test_a_known_model_answers_and_an_unknown_one_is_an_error():
    assert routed(lambda one: one.ask("POST", "/chat/completions", CHAT))[0] == 200
    status, body = routed(lambda one: one.ask("POST", "/chat/completions", {**CHAT, "model": "non-existent/model"}))
    assert (status, "error" in body) == (404, True)


def test_a_model_is_loaded_and_unloaded_by_name():
    async def test(one):
        assert await one.ask("POST", "/models/load", {"model": "a"}) == (200, {"success": True})
        await one.until("a", "loaded")
        assert (await one.ask("POST", "/models/load", {"model": "a"}))[0] == 400
        assert await one.ask("POST", "/models/unload", {"model": "a"}) == (200, {"success": True})
        await one.until("a", "unloaded")
        assert (await one.ask("POST", "/models/unload", {"model": "a"}))[0] == 400
        assert (await one.ask("POST", "/models/load", {"model": "zz"}))[0] == 404

    routed(test)


def test_the_model_used_longest_ago_makes_room():
    async def test(one):
        for name in "abc":
            await one.ask("POST", "/models/load", {"model": name})
            await one.until(name, "loaded")
        return [await one.status(name) for name in "abc"]

    assert routed(test, config=folder_config(2)) == ["unloaded", "loaded", "loaded"]


class Slow:
    """Models that answer once the test lets them."""

    def __init__(self):
        self.go, self.arrived = asyncio.Event(), asyncio.Event()
        self.order = []

    def __call__(self, name):
        app = echoing(name)

        @web.middleware
        async def wait(request, handler):
            if request.method == "POST":
                self.order.append(name)
                self.arrived.set()
                await self.go.wait()
            return await handler(request)

        app.middlewares.append(wait)
        return app


def tokenize(one, name):
    return asyncio.create_task(one.ask("POST", "/tokenize", {"model": name, "content": "hello world"}))


async def queued(one, n):
    while one.pool.n_waiting != n:
        await asyncio.sleep(0)


def with_slow(test, most):
    slow = Slow()
    return routed(lambda one: test(one, slow), make=slow, config=folder_config(most))


def test_a_queued_request_does_not_cost_a_busy_model_its_place():
    async def test(one, slow):
        busy = tokenize(one, "a")
        await slow.arrived.wait()
        waiting = tokenize(one, "b")
        await queued(one, 1)
        assert await one.status("a") == "loaded"
        slow.go.set()
        assert [(await task)[0] for task in (busy, waiting)] == [200, 200]
        return await one.status("a"), await one.status("b")

    assert with_slow(test, 1) == ("unloaded", "loaded")


def test_requests_for_one_missing_model_share_a_place():
    async def test(one, slow):
        for name in "ab":
            await one.ask("POST", "/models/load", {"model": name})
            await one.until(name, "loaded")
        busy = tokenize(one, "a")
        await slow.arrived.wait()
        waiting = [tokenize(one, "c") for _ in range(3)]
        while slow.order.count("c") < 3:
            await asyncio.sleep(0)
        slow.go.set()
        assert {(await task)[0] for task in (busy, *waiting)} == {200}
        return [await one.status(name) for name in "abc"]

    assert with_slow(test, 2) == ["loaded", "unloaded", "loaded"]


def test_a_client_that_leaves_the_queue_leaves_the_model_where_it_is(caplog):
    caplog.set_level("INFO", "uad.router")

    async def test(one, slow):
        busy = tokenize(one, "a")
        await slow.arrived.wait()
        waiting = tokenize(one, "b")
        await queued(one, 1)
        waiting.cancel()
        await queued(one, 0)
        slow.go.set()
        assert (await busy)[0] == 200
        return await one.status("a"), await one.status("b"), one.launcher.names

    assert with_slow(test, 1) == ("loaded", "unloaded", ["a"])
    (line,) = [text for text in caplog.messages if "client left" in text]
    assert line == "b: client left before the model was loaded; read 0 tokens, wrote 0"


def test_the_queue_is_served_in_the_order_of_arrival():
    async def test(one, slow):
        tasks = [tokenize(one, "a")]
        await slow.arrived.wait()
        for n, name in enumerate("bc", 1):
            tasks.append(tokenize(one, name))
            await queued(one, n)
        slow.go.set()
        await asyncio.gather(*tasks)
        return slow.order

    assert with_slow(test, 1) == ["a", "b", "c"]


def test_two_that_wait_for_the_same_place_are_both_served():
    async def test(one):
        await one.ask("POST", "/models/load", {"model": "a"})
        await one.until("a", "loaded")
        first, second = tokenize(one, "b"), tokenize(one, "c")
        return (await first)[0], (await second)[0], await one.status("a")

    assert routed(test, config=folder_config(1)) == (200, 200, "unloaded")


def test_without_autoload_a_model_is_loaded_by_request_only():
    async def test(one):
        before = await one.ask("POST", "/v1/chat/completions", CHAT)
        await one.ask("POST", "/models/load", {"model": "a"})
        await one.until("a", "loaded")
        return before, await one.ask("POST", "/v1/chat/completions", CHAT)

    (status, body), (then, _) = routed(test, config=folder_config(autoload=False))
    assert (status, then) == (400, 200)
    assert "model is not loaded" in body["error"]["message"]


def test_the_key_is_asked_for():
    async def test(one):
        without = await one.ask("POST", "/v1/chat/completions", CHAT)
        headers = {"Authorization": f"Bearer {SECRET}"}
        return without, await one.ask("POST", "/v1/chat/completions", CHAT, headers=headers)

    config = folder_config(server=ServerConfig(port=0, api_keys=(SECRET,)))
    (status, body), (then, _) = routed(test, config=config)
    assert (status, body["error"]["type"], then) == (401, "authentication_error", 200)


def test_the_list_is_read_again_on_request():
    async def test(one):
        before = await one.ask("GET", "/models")
        return before, await one.ask("GET", "/models?reload=1")

    (_, before), (_, after) = routed(test, folder_of("a"))
    assert [one["id"] for one in before["data"]] == ["a"]
    assert [one["id"] for one in after["data"]] == ["a", "new"]


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_a_model_must_be_named(verb):
    assert routed(lambda one: one.ask("POST", f"/models/{verb}", {}))[0] == 400


def test_a_load_that_fails_is_an_error_of_its_request():
    launcher = FakeLauncher(echoing)
    launcher.fails["a"] = ("x", 1)
    status, body = routed(lambda one: one.ask("POST", "/v1/chat/completions", CHAT), launcher=launcher)
    assert (status, "could not be loaded" in body["error"]["message"]) == (502, True)
