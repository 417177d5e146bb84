"""What is kept of drafts, from what the engine says that uses them."""

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from uad.base.events import EngineSnapshot, EngineView, SlotInfo, Totals
from uad.base.stats import DraftStats
from uad.pairs import gains
from uad.pairs.conditions import Conditions
from uad.pairs.gains import GainWatch
from uad.pairs.records import PairRecord, record_of

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, DRAFT = Path("/models/a.gguf"), Path("/models/small.gguf")
UNDER = Conditions()
SLOT = SlotInfo(0, None, 0, False)
VIEW = EngineView(curve=(15.0, 20.0))


@dataclass
class Engine:
    """It has written `tokens`, in a hundredth of a second each, where a plain decode takes 0.015 s."""

    tokens: int = 100
    slots: tuple[SlotInfo, ...] = (SLOT,)
    view: EngineView | None = VIEW

    def snapshot(self):
        return EngineSnapshot(self.slots, Totals(n_next=self.tokens, predicted_ms=10.0 * self.tokens), (), ())

    def look(self, show):
        if self.view is not None:
            show(self.view)


def kept(engine, n_looks=2):
    found = []

    def keep(target, draft, more, under):
        found.append((target, draft, more))
        return more

    watch = GainWatch(engine, TARGET, DRAFT, UNDER, keep)
    for _ in range(n_looks):
        watch.look()
    engine.tokens += 20
    watch.look()
    return found


def test_what_was_written_since_the_last_look_is_kept():
    assert kept(Engine()) == [
        (TARGET, DRAFT, PairRecord(100, 1.0, 1.5)),
        (TARGET, DRAFT, PairRecord(20, pytest.approx(0.2), pytest.approx(0.3))),
    ]


@pytest.mark.parametrize("engine", [Engine(slots=(SLOT, SLOT)), Engine(view=EngineView()), Engine(view=None)])
def test_what_is_not_known_is_not_kept(monkeypatch, engine):
    """Several answers at a time, costs that nobody knows, an engine that does not answer."""
    monkeypatch.setattr(gains, "_PATIENCE_S", 0.01)
    assert kept(engine) == []


def test_what_an_engine_could_not_say_is_kept_later(monkeypatch):
    monkeypatch.setattr(gains, "_PATIENCE_S", 0.01)
    found, engine = [], Engine(view=None)
    watch = GainWatch(engine, TARGET, DRAFT, UNDER, lambda target, draft, more, under: found.append(more) or more)
    watch.look()
    engine.view = EngineView(curve=(15.0,))
    watch.look()
    assert found == [PairRecord(100, 1.0, 1.5)]


def test_the_end_of_a_server_keeps_the_rest(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    target, draft = (SAMPLES / f"{name}.gguf" for name in ("target-chatml", "draft-zephyr"))
    with caplog.at_level(logging.INFO, "uad"), GainWatch(Engine(tokens=500), target, draft, UNDER):
        assert record_of(target, UNDER).of(draft, UNDER) == PairRecord()
    kept = record_of(target, UNDER).of(draft, UNDER)
    assert (kept.tokens, kept.seconds, kept.plain_seconds) == (500, 5.0, 7.5)
    assert "target-chatml.gguf with draft-zephyr.gguf: 1.50 times the speed without it" in caplog.messages


def test_what_look_ups_wrote_is_not_the_drafts_gain():
    """3,851 of 4,100 tokens were looked up, in 10 of 14 s; the other 249 took 4 s in place of 3.7."""
    found = []
    totals = Totals(n_next=4100, predicted_ms=14_000.0, draft=DraftStats(n_aided=3851, aided_ms=10_000.0))
    engine = Engine()
    engine.snapshot = lambda: EngineSnapshot((SLOT,), totals, (), ())
    GainWatch(engine, TARGET, DRAFT, UNDER, lambda target, draft, more, under: found.append(more) or more).look()
    assert found == [PairRecord(249, 4.0, pytest.approx(3.735))]


def test_a_target_alone_keeps_how_long_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    target = SAMPLES / "target-chatml.gguf"
    GainWatch(Engine(tokens=500), target, None, UNDER).look()
    assert record_of(target, UNDER).written_s == 5.0


def test_a_failure_costs_one_line(caplog):
    def fails(*anything):
        raise RuntimeError("out of luck")

    watch = GainWatch(Engine(), TARGET, DRAFT, UNDER, fails)
    with caplog.at_level(logging.WARNING, "uad"):
        watch._look()
        watch._look()
    assert caplog.messages == ["what drafts gain is not measured now: RuntimeError: out of luck"]
