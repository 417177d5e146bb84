"""The runtime's door, on a scripted target: what is told to requests that come while it closes."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from toys import TARGET_VOCAB, Collector, ScriptedModel, make_engine

from uad.config import Config
from uad.errors import UnavailableError
from uad.runtime import Runtime, runtime
from uad.types import Request


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    info = SimpleNamespace(target=SimpleNamespace(n_vocab=TARGET_VOCAB.n_vocab))
    parts = SimpleNamespace(engine=make_engine(ScriptedModel(TARGET_VOCAB)), info=info, prompts=None, stack=ExitStack())
    monkeypatch.setattr(runtime, "build", lambda *_: parts)
    return Runtime.open(Config(target=None))


def test_a_request_that_meets_the_close_is_refused_and_not_forgotten(opened: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened._engine, "check", lambda request: opened.close())
    with pytest.raises(UnavailableError, match="shutting down"):
        opened.submit(Request((1,)), Collector())
