"""What is kept of drafts, from what the engine says that uses them."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.base.events import EngineSnapshot, EngineView, SlotInfo, Totals
from uad.pairs import gains
from uad.pairs.gains import GainWatch
from uad.pairs.records import PairRecord, add_record, record_of
from uad.router.folder import read_folder

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, DRAFT = Path("/models/a.gguf"), Path("/models/small.gguf")
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

    def keep(target, draft, more):
        found.append((target, draft, more))
        return more

    watch = GainWatch(engine, TARGET, DRAFT, keep)
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
    watch = GainWatch(engine, TARGET, DRAFT, lambda target, draft, more: found.append(more) or more)
    watch.look()
    engine.view = EngineView(curve=(15.0,))
    watch.look()
    assert found == [PairRecord(100, 1.0, 1.5)]


def test_the_end_of_a_server_keeps_the_rest(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    target, draft = (SAMPLES / f"{name}.gguf" for name in ("target-chatml", "draft-zephyr"))
    with caplog.at_level(logging.INFO, "uad"), GainWatch(Engine(tokens=500), target, draft):
        assert record_of(target, draft) == PairRecord()
    assert record_of(target, draft) == PairRecord(500, 5.0, 7.5)
    assert "target-chatml.gguf with draft-zephyr.gguf: 1.50 times the speed without it" in caplog.messages


def test_a_folder_gets_the_drafts_that_are_known_to_gain(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("draft-gemma", "draft-zephyr", "target-chatml"):
        shutil.copy(SAMPLES / f"{name}.gguf", folder)
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    config = folder_from(parser.parse(["--models-dir", str(folder), "--draft", "auto"]), {})
    target, zephyr, gemma = (folder / f"{name}.gguf" for name in ("target-chatml", "draft-zephyr", "draft-gemma"))
    models = read_folder(config)
    assert {name: one.draft for name, one in models.items()} == {
        "target-chatml": zephyr,
        "draft-zephyr": None,
        "draft-gemma": None,
    }
    assert f"--model-draft={zephyr}" in models["target-chatml"].words
    assert not any("auto" in word for one in models.values() for word in one.words)
    add_record(target, gemma, PairRecord(1000, 1.0, 1.3))
    assert read_folder(config)["target-chatml"].draft == gemma
