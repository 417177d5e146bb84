"""A server process beside bodies of 20 MiB: its stream and /health go on. scripts/stalls.py measures many more shapes.

Bounds are generous: these bodies stopped everything for two to ten seconds where they were validated on the event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from kit.models import TARGET
from kit.pace import best_of
from kit.process import Server
from kit.source_imports import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from stalls import SHAPES, Site

pytestmark = pytest.mark.model
MOST = 0.75  # seconds
MIB = 1 << 20
SOME = {
    "prompt of empty texts": "400",
    "unknown member": "400",
    "one message of parts": "400",
    "chat_template_kwargs": "400",
    "prompt of texts and ids": "400",
    "/detokenize of ids": "400",
    "messages of 2,000 characters": "400",
    "60,000 parts": "400",
    "/detokenize of 262,000 ids": "200",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    args = ["--target", str(TARGET), "--no-draft", "-np", "3", "-c", "24000", "-t", "1"]
    with Server(tmp_path_factory.mktemp("stalls") / "log", args) as server:
        yield Site(server.url)


@pytest.mark.parametrize("name", SOME)
def test_a_stream_and_health_go_on_beside_a_large_body(site: Site, name: str) -> None:
    path, make = SHAPES[name]
    body = make(20 * MIB)
    seen = best_of(
        3, lambda: site.seen_beside(path, body, timeout=30), lambda one: max(one.waits.stream, one.waits.health) < MOST
    )
    assert seen.status.startswith(SOME[name]), seen
    assert seen.waits.errors == []
    assert 0 < seen.waits.stream < MOST, seen
    assert 0 < seen.waits.health < MOST, seen
