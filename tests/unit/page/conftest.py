"""A browser for all files of this folder, and a page of it for each test. While it is open, nothing else can run a loop
of asyncio on this thread: the page's files by themselves are tests/unit/server/test_page_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.browser import Open, browsing, fake, served, visits


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with browsing() as opened:
        yield opened


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens the page of a server in a fresh profile; a complaint in the console fails the test."""
    with visits(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def blank(browser: Any) -> Iterator[Any]:
    """A page that is asked to draw, and nothing else."""
    with served(fake("x")) as url, visits(browser) as opened:
        yield opened(url)
