"""A browser for each file of tests, and a page of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.browser import Open, browsing, fake, served, visits


@pytest.fixture(scope="module")
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
