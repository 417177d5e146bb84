"""The page of a router, in a real Chromium: which model answers is chosen there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kit.browser import Open, answered, fake, say, until
from kit.router_kit import KEY, folder_of, routing

from uad.base.config import ServerConfig
from uad.http.server import make_app

TEXTS = {"a": "I am the first.", "b": "I am the other."}


@contextmanager
def served_folder() -> Iterator[str]:
    """The address of a router over two scripted models, on a thread of its own."""
    runtimes = {name: fake(text) for name, text in TEXTS.items()}
    ready, stop, url = threading.Event(), asyncio.Event(), []

    def make(name):
        return make_app(runtimes[name], ServerConfig(port=0, alias=name, api_keys=(KEY,), ui=False))

    async def main() -> None:
        loop.append(asyncio.get_running_loop())
        async with routing(folder_of("a", "b"), make=make) as one:
            url.append(str(one.session._base_url))
            ready.set()
            await stop.wait()

    loop: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    with runtimes["a"], runtimes["b"]:
        thread.start()
        assert ready.wait(10)
        try:
            yield url[0]
        finally:
            for one in runtimes.values():
                one.go.set()
            loop[0].call_soon_threadsafe(stop.set)
            thread.join(10)


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
