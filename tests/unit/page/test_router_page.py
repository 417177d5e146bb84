"""The page of a router, in a real Chromium: which model answers is chosen there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kit.browser import Open, answered, fake, say, until
from kit.router_kit import KEY, FakeLauncher, folder_of, routing

from uad.base.config import ServerConfig
from uad.http.server import make_app

TEXTS = {"a": "I am the first.", "b": "I am the other."}


@contextmanager
def served_folder(waits: tuple[str, ...] = (), go: list[Callable[[], None]] | None = None) -> Iterator[str]:
    """The address of a router over two scripted models, on a thread of its own. waits: models whose process starts
    only once what is put into `go` is called.
    """
    runtimes = {name: fake(text) for name, text in TEXTS.items()}
    ready, stop, url = threading.Event(), asyncio.Event(), []

    def make(name):
        return make_app(runtimes[name], ServerConfig(port=0, alias=name, api_keys=(KEY,), ui=False))

    async def main() -> None:
        loop.append(asyncio.get_running_loop())
        launcher = FakeLauncher(make)
        launcher.gates = {name: asyncio.Event() for name in waits}
        if go is not None:
            gates = tuple(launcher.gates.values())
            go.append(lambda: [loop[0].call_soon_threadsafe(gate.set) for gate in gates] and None)
        async with routing(folder_of("a", "b"), launcher=launcher) as one:
            url.append(str(one.session._base_url))
            ready.set()
            await stop.wait()

    loop: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    with runtimes["a"], runtimes["b"]:
        thread.start()
        assert ready.wait(120)
        try:
            yield url[0]
        finally:
            for one in runtimes.values():
                one.go.set()
            loop[0].call_soon_threadsafe(stop.set)
            thread.join(120)


def test_a_model_is_chosen_answers_and_is_still_chosen_after_a_reload(visit: Open) -> None:
    with served_folder() as url:
        page = visit(url)
        until(page, "document.getElementById('models').options.length === 2")
        assert page.title() == "a · uad"
        say(page)
        assert answered(page).inner_text() == TEXTS["a"]
        page.select_option("#models", "b")
        page.click("#new")
        say(page)
        assert answered(page).inner_text() == TEXTS["b"]
        page.reload()
        until(page, "document.getElementById('models').value === 'b'")
        until(page, "document.getElementById('models').selectedOptions[0].textContent === 'b (loaded)'")


def test_the_live_view_is_of_the_model_that_is_chosen(visit: Open) -> None:
    with served_folder() as url:
        page = visit(f"{url}#live")
        until(page, "document.getElementById('live').textContent.includes(\"model 'a' is not loaded\")")


def test_a_model_that_is_loaded_is_said_to_be_and_the_list_follows(visit: Open) -> None:
    go: list[Callable[[], None]] = []
    with served_folder(("a",), go) as url:
        page = visit(url)
        until(page, "document.getElementById('models').options.length === 2")
        assert not page.locator("#loading").is_visible()
        say(page)
        until(page, "document.getElementById('models').selectedOptions[0].textContent === 'a (loading)'")
        until(page, "document.getElementById('loading').textContent.startsWith('a is being loaded')")
        go[0]()
        assert answered(page).inner_text() == TEXTS["a"]
        until(page, "document.getElementById('models').selectedOptions[0].textContent === 'a (loaded)'")
        assert not page.locator("#loading").is_visible()


def test_a_list_that_may_be_open_stays_when_the_same_models_are_listed_again(visit: Open) -> None:
    with served_folder() as url:
        page = visit(url)
        until(page, "document.getElementById('models').options.length === 2")
        page.evaluate(
            """for (const state of ["hidden", "visible"]) {  // a page that is seen again lists the models again
                Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
                list = document.getElementById("models");
                list.options[0].textContent = "old";
            }"""
        )
        until(page, "document.getElementById('models').options[0].textContent !== 'old'")
        assert page.evaluate("list === document.getElementById('models')")


def test_the_list_of_models_is_as_wide_as_a_phone(visit: Open) -> None:
    with served_folder() as url:
        page = visit(url)
        page.set_viewport_size({"width": 375, "height": 700})
        until(page, "document.getElementById('models').options.length === 2")
        assert page.locator("#models").bounding_box()["width"] > 300
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
