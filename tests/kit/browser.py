"""A real Chromium on a page that a scripted runtime serves: for tests and scripts/screenshots.py."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from uad.base.config import ServerConfig
from uad.base.types import Origin
from uad.http.server import make_app, make_runner

CONFIG = ServerConfig(port=0, alias="toy", max_queue=8)
EXPECTED = ("status of 401", "net::ERR_")  # no key yet; the server of a test that is over
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where a Chromium is: CHROMIUM, or on the path."""
    return os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser without a window; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install '.[dev]'")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on the path: install one, or name it in CHROMIUM")
    with playwright.sync_playwright() as opened:
        browser = opened.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(fake: FakeRuntime, config: ServerConfig = CONFIG) -> Iterator[str]:
    """The address of a server over `fake`, which runs on a thread of its own."""
    loop, runner = asyncio.new_event_loop(), make_runner(make_app(fake, config))
    thread = threading.Thread(target=loop.run_forever, name="server")
    thread.start()

    def done(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    try:
        with fake:
            done(runner.setup())
            done(listen(runner, config))
            try:
                yield f"{base_url(runner, config)}/"
            finally:
                fake.go.set()
                done(runner.cleanup())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()


Open = Callable[..., Any]


@contextmanager
def visits(browser: Any, expected: tuple[str, ...] = EXPECTED) -> Iterator[Open]:
    """Opens pages, each in a fresh profile or as another tab of `beside`. Complaints in a console and requests to other
    hosts fail the test.
    """
    complaints: list[str] = []
    contexts = []

    def opened(url: str, beside: Any = None, **options: Any) -> Any:
        context = beside.context if beside else browser.new_context(viewport={"width": 1200, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda one: complaints.append(str(one)))
        own = url.split("#")[0].rstrip("/")
        page.on("request", lambda one: None if one.url.startswith(own) else complaints.append(f"asks {one.url}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [one for one in complaints if not any(words in one for words in expected)] == []


def by_sevens(place: int) -> Origin:
    return (Origin.MODEL, Origin.TARGET, Origin.SUFFIX, Origin.GRAMMAR)[place // 7 % 4]


def fake(text: str, **fields: Any) -> FakeRuntime:
    return FakeRuntime(script=lambda _: text.encode(), **{"by": by_sevens, "step": 5, "n_ctx": 1 << 20, **fields})


def say(page: Any, text: str = "hello") -> None:
    page.fill("#say", text)
    page.press("#say", "Enter")


def answered(page: Any) -> Any:
    """The last answer, once it is whole."""
    page.wait_for_selector(".turn.answer:last-child:not(.busy) footer:not([hidden])")
    return page.locator(".turn.answer .paper").last


def until(page: Any, wanted: str) -> None:
    """Wait for what JavaScript says. A property of an element that is not there yet is no error. The page's policy
    forbids Playwright's own way, which evaluates text inside it.
    """
    tried = f"(() => {{ try {{ return {wanted} }} catch (e) {{ if (!(e instanceof TypeError)) throw e }} }})()"
    for _ in range(1000):
        if page.evaluate(tried):
            return
        page.wait_for_timeout(10)
    raise AssertionError(f"it did not come to pass: {wanted}")
