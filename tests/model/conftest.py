"""Runtimes that the tests of this folder open: what a start measures of a model is measured once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.learned import learning_once
from kit.source_imports import needs_llama


@pytest.fixture(scope="module", autouse=True)
def learned_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of the module, so that its own fixtures may open runtimes."""
    if not needs_llama(request.path):
        yield
        return
    with learning_once():
        yield
