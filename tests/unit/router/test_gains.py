"""What is kept of drafts that were chosen, from what their processes say."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from kit.router_kit import folder_model, routed

from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.pairs.records import PairRecord, add_record
from uad.router.folder import read_folder
from uad.router.gains import GainWatch

SAMPLES = Path(__file__).parents[3] / "samples"
DRAFT = Path("/models/small.gguf")


class Counting:
    """A process that has written `tokens`, in a hundredth of a second each, where a plain decode takes 0.015 s."""

    def __init__(self, slots=1, plain=((0, 14.0), (64, 15.0), (512, 16.0))):
        self.tokens, self.slots, self.plain = 100, slots, plain

    def __call__(self, name):
        app = web.Application()
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/live", self.live)
        app.router.add_post("/{path:.*}", self.answer)
        return app

    async def metrics(self, request):
        seconds = self.tokens / 100
        return web.Response(
            text=f"llamacpp:tokens_predicted_total {self.tokens}.0\nllamacpp:tokens_predicted_seconds_total {seconds}\n"
        )

    async def live(self, request):
        event = {"slots": [{"id": i} for i in range(self.slots)], "plain": self.plain, "curve": [20.0, 25.0]}
        return web.Response(text=f"data: {json.dumps(event)}\n\n", content_type="text/event-stream")

    async def answer(self, request):
        return web.Response()


def kept(counting, draft=DRAFT, looks=2):
    found = []

    def keep(target, small, more):
        found.append((target, small, more))
        return more

    async def test(one):
        await one.ask("POST", "/v1/completions", {"model": "a"})
        watch = GainWatch(one.pool, one.state.connections, keep)
        for _ in range(looks):
            await watch.look()
        counting.tokens += 20
        await watch.look()

    routed(test, {"a": replace(folder_model("a"), draft=draft)}, make=counting)
    return found


def test_what_was_written_since_the_last_look_is_kept():
    target = Path("/models/a.gguf")
    assert kept(Counting()) == [
        (target, DRAFT, PairRecord(100, 1.0, 1.5)),
        (target, DRAFT, PairRecord(20, pytest.approx(0.2), pytest.approx(0.3))),
    ]


def test_without_measured_depths_the_last_one_counts():
    assert [more.plain_seconds for _, _, more in kept(Counting(plain=()))] == [2.0, pytest.approx(0.4)]


def test_several_answers_at_a_time_are_not_measured():
    assert kept(Counting(slots=2)) == []


def test_a_draft_that_the_user_named_is_not_measured():
    assert kept(Counting(), draft=None) == []


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
