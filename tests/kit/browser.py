"""A real Chromium on a page that a scripted runtime serves: for tests, and for who takes screenshots."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from uad.config import ServerConfig
from uad.server import make_app, make_runner

CONFIG = ServerConfig(port=0, alias="toy", max_queue=8)
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
        thread.join(10)
        loop.close()
