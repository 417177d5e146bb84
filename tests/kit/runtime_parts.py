"""The parts of a runtime without models, on an engine of scripted ones."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

from kit.toys import TARGET_VOCAB
from uad.base.config import Config
from uad.engine.decode.engine import Engine
from uad.runtime.adapters import AdapterTurns
from uad.runtime.timing import TIMING


def parts_on(engine: Engine) -> SimpleNamespace:
    """What `uad.runtime.open.open_parts` makes, as far as a runtime asks for it."""
    return SimpleNamespace(
        engine=engine,
        turns=AdapterTurns(engine, lambda scales: None, ()),
        info=SimpleNamespace(target=SimpleNamespace(n_vocab=TARGET_VOCAB.n_vocab)),
        text=None,
        again=None,
        keeper=None,
        contexts=(),
        drafter=None,
        config=Config(target=None),  # type: ignore[arg-type]
        disk=None,
        timing=TIMING,
        stack=ExitStack(),
    )
