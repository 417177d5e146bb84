"""Drafts that models of a folder get by themselves: when pairs are worked out, and what a failure costs."""

import asyncio
import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFWriter
from kit.headers import finish
from kit.router_kit import FakeChild, FakeLauncher, folder_model

from uad.base import gguf
from uad.base.common.once import warn_once
from uad.base.config import load_config
from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import GROUPS
from uad.base.config.load import folder_from
from uad.pairs import choose, header
from uad.pairs.conditions import conditions
from uad.pairs.records import PairRecord, add_record
from uad.router import child, folder
from uad.router.child import ProcessFailedError, ProcessLauncher
from uad.router.drafts import FolderDrafts
from uad.router.folder import read_folder
from uad.router.pool import ModelPool
from uad.router.serving import FolderWatch

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(folder, "_kept", [])
    warn_once.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def models(tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    for name in ("draft-gemma", "draft-zephyr", "target-chatml"):
        shutil.copy(SAMPLES / f"{name}.gguf", place)
    return place


@pytest.fixture
def headers(monkeypatch):
    """Files whose headers are read."""
    read, opened = [], gguf.GgufFile

    def counted(path):
        read.append(path.name)
        return opened(path)

    monkeypatch.setattr(header, "GgufFile", counted)
    return read


@pytest.fixture
def pairs(monkeypatch):
    """Pairs that are worked out, to the last."""
    worked, view = [], choose._PairTarget.view

    def counted(target, one):
        worked.append((target.path.name, one.path.name))
        return view(target, one)

    monkeypatch.setattr(choose._PairTarget, "view", counted)
    return worked


def config_of(place, *words):
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    return folder_from(parser.parse(["--models-dir", str(place), "--draft", "auto", *words]), {})


def keep(target, draft, gain):
    under = conditions(load_config(["--model", str(target), "--draft", "auto"], {}))
    add_record(target, draft, PairRecord(1000, 1.0, gain), under)


def write(path, words, rows):
    writer = GGUFWriter(path, "llama")
    writer.add_token_list(words)
    finish(writer, rows)


def test_a_folder_gets_the_drafts_that_are_known_to_gain(models):
    target, zephyr, gemma = (models / f"{name}.gguf" for name in ("target-chatml", "draft-zephyr", "draft-gemma"))
    every, drafts = read_folder(config_of(models)), FolderDrafts()
    assert {name: [path.name for path in drafts.choose(one)] for name, one in every.items()} == {
        "target-chatml": ["draft-zephyr.gguf"],
        "draft-zephyr": [],
        "draft-gemma": [],
    }
    assert not any("draft" in word.partition("=")[0] for one in every.values() for word in one.words)
    keep(target, gemma, 1.3)
    assert drafts.choose(every["target-chatml"]) == (gemma, zephyr)


def test_drafts_for_all_models_do_not_draft_for_themselves(models):
    zephyr, gemma = (str(models / f"draft-{name}.gguf") for name in ("zephyr", "gemma"))
    every = read_folder(config_of(models, "--draft", zephyr, "--draft", gemma))
    flags = {name: [word for word in one.words if word.startswith("--model-draft=")] for name, one in every.items()}
    assert flags == {
        "target-chatml": [f"--model-draft={zephyr}", f"--model-draft={gemma}"],
        "draft-zephyr": [f"--model-draft={gemma}"],
        "draft-gemma": [f"--model-draft={zephyr}"],
    }


def test_a_folder_that_is_as_it_was_is_not_read_again(models, headers, pairs):
    config = config_of(models)
    first = read_folder(config)
    assert sorted(headers) == ["draft-gemma.gguf", "draft-zephyr.gguf", "target-chatml.gguf"]
    for _ in range(5):
        assert read_folder(config) is first
    shutil.copy(models / "draft-zephyr.gguf", models / "new.gguf")
    assert sorted(read_folder(config)) == ["draft-gemma", "draft-zephyr", "new", "target-chatml"]
    assert headers[3:] == ["new.gguf"]
    assert pairs == []  # nothing was loaded


@pytest.mark.parametrize("change", ["preset", "elsewhere", "gone", "grown"])
def test_all_that_a_list_is_made_of_is_looked_at(models, tmp_path, change):
    other, preset = tmp_path / "other.gguf", tmp_path / "p.ini"
    shutil.copy(models / "draft-zephyr.gguf", other)
    preset.write_text(f"[mine]\nmodel = {other}\n", encoding="utf-8")
    config = config_of(models, "--models-preset", str(preset))
    first = read_folder(config)
    assert read_folder(config) is first
    match change:
        case "preset":
            preset.write_text(f"[mine]\nmodel = {other}\nalias = yours\n", encoding="utf-8")
        case "elsewhere":
            shutil.copy(models / "draft-gemma.gguf", other)
        case "gone":
            (models / "draft-gemma.gguf").unlink()
        case "grown":
            with (models / "draft-gemma.gguf").open("ab") as file:
                file.write(b"\0")
    assert read_folder(config) != first


def test_three_hundred_models_are_read_once_and_no_pair_before_one_is_loaded(tmp_path, headers, pairs):
    place = tmp_path / "models"
    place.mkdir()
    for family in range(4):
        write(place / f"f{family}.gguf", [f"{family}-{i}" for i in range(50)], 2)
        for i in range(74):
            data = (place / f"f{family}.gguf").read_bytes()
            (place / f"f{family}-{i}.gguf").write_bytes(data + bytes(400 * (i + 1)))
    big = place / "big.gguf"
    write(big, [f"0-{i}" for i in range(50)], 64)
    config, drafts = config_of(place), FolderDrafts()
    every = read_folder(config)
    for _ in range(3):
        read_folder(config)
    assert (len(every), len(headers), len(pairs)) == (301, 301, 0)
    drafts.choose(every["big"])
    n = len(pairs)
    assert 0 < n <= 300
    assert {target for target, _ in pairs} == {"big.gguf"}
    for _ in range(3):
        drafts.again(every, ["big"])
    assert (len(headers), len(pairs)) == (301, n)


def test_headers_that_take_too_long_are_read_once_the_router_listens(models, headers):
    config = config_of(models)
    early = read_folder(config, patience_s=0.0)
    assert (len(early), headers) == (3, [])
    late = read_folder(config)
    assert late == early  # nothing is loaded again for that
    assert len(headers) == 3
    assert late["draft-gemma"].facts.n_params > 0 == early["draft-gemma"].facts.n_params


def test_the_pool_learns_what_headers_say_and_keeps_what_is_loaded(models):
    async def main():
        config = config_of(models)
        pool = ModelPool(FakeLauncher(), 2, 10)
        pool.reload(read_folder(config, patience_s=0.0))
        watch = FolderWatch(config, pool)
        async with pool.using(pool.models["draft-gemma"]) as loaded:
            task = asyncio.create_task(watch.watch(0.0))
            while not pool.models["draft-gemma"].model.facts.n_params:
                await asyncio.sleep(0)
            task.cancel()
            assert pool.models["draft-gemma"].running.child is loaded
        await pool.close()

    asyncio.run(main())


def test_a_draft_is_changed_once_another_is_known_to_gain_more(models, pairs):
    target, gemma = models / "target-chatml.gguf", models / "draft-gemma.gguf"
    every, drafts = read_folder(config_of(models)), FolderDrafts()
    assert drafts.again(every, ["target-chatml"]) == every  # not loaded by this one
    drafts.choose(every["target-chatml"])
    n = len(pairs)
    assert drafts.again(every, ["target-chatml"]) == every
    keep(target, gemma, 1.5)
    changed = drafts.again(every, ["target-chatml", "gone"])
    assert {name for name in every if changed[name] != every[name]} == {"target-chatml"}
    assert drafts.choose(changed["target-chatml"])[0] == gemma
    assert drafts.again(changed, ["target-chatml"]) == changed
    assert {target for target, _ in pairs} == {"target-chatml.gguf"}
    assert len(pairs) <= 2 * n


def test_a_stored_curve_counts_from_the_next_look_on(models, cache, pairs):
    every, drafts = read_folder(config_of(models)), FolderDrafts()
    drafts.choose(every["target-chatml"])
    n = len(pairs)
    (cache / "profiles").mkdir(parents=True)
    drafts.again(every, ["target-chatml"])
    assert len(pairs) == 2 * n


def test_whatever_fails_costs_a_line_and_no_draft_is_loaded(models, caplog):
    def fails(target, files):
        raise ZeroDivisionError("no luck")

    every = read_folder(config_of(models))
    with caplog.at_level(logging.WARNING, "uad"):
        for _ in range(3):
            assert FolderDrafts(fails).choose(every["target-chatml"]) == ()
    assert caplog.messages == ["target-chatml: no draft can be chosen (ZeroDivisionError: no luck)"]


# --- processes


def launched(monkeypatch, model, fails):
    """The words of each process that is started; `fails` says what becomes of it."""
    words = []

    async def start(launcher, model, has_work, planned):
        words.append(model.words)
        if (code := fails(model.words)) is not None:
            raise ProcessFailedError("it ended", code)
        return FakeChild(model.name)

    monkeypatch.setattr(child.ProcessLauncher, "_start", start)
    drafts = FolderDrafts()
    monkeypatch.setattr(drafts, "choose", lambda model: (Path("/a.gguf"), Path("/b.gguf")))
    asyncio.run(ProcessLauncher({}, lambda *line: None, drafts).start(model, lambda: True))
    return words


MODEL = replace(folder_model("m"), words=("--model=/m.gguf", "--mmproj=auto"), drafts=(Path("/a.gguf"),))
CHOSEN = ("--draft=auto", "--draft-from=/a.gguf", "--draft-from=/b.gguf")


def test_a_process_gets_its_draft_as_one_that_was_chosen(monkeypatch):
    assert launched(monkeypatch, MODEL, lambda words: None) == [(*MODEL.words, *CHOSEN)]
    config = load_config([*MODEL.words, *CHOSEN], {})
    assert config.draft_from == (Path("/a.gguf"), Path("/b.gguf"))


def test_a_process_that_a_signal_ends_is_started_again_without_what_nobody_named(monkeypatch, caplog):
    found = launched(monkeypatch, MODEL, lambda words: -6 if "--mmproj=auto" in words else None)
    assert found == [(*MODEL.words, *CHOSEN), ("--model=/m.gguf",)]
    assert "m: its process ended by signal 6, and is started again without" in caplog.text


@pytest.mark.parametrize(("words", "code"), [(MODEL.words, 2), (("--model=/m.gguf", "--draft=/d.gguf"), -6)])
def test_an_error_of_the_target_or_of_what_was_named_is_one(monkeypatch, words, code):
    model = replace(MODEL, words=words, drafts=MODEL.drafts if code == 2 else ())
    with pytest.raises(ProcessFailedError):
        launched(monkeypatch, model, lambda words: code)


def test_a_choice_on_a_disk_that_stands_still_costs_the_draft(monkeypatch, caplog):
    words, is_over = [], threading.Event()

    async def start(launcher, model, has_work, planned):
        words.append(model.words)
        is_over.set()
        return FakeChild(model.name)

    monkeypatch.setattr(child.ProcessLauncher, "_start", start)
    monkeypatch.setattr(child, "_CHOOSING_S", 0.01)
    drafts = FolderDrafts()
    monkeypatch.setattr(drafts, "choose", lambda model: is_over.wait() and (Path("/a.gguf"),))
    asyncio.run(ProcessLauncher({}, lambda *line: None, drafts).start(MODEL, lambda: True))
    assert words == [MODEL.words]
    assert "m: no draft was chosen within 0.01 s" in caplog.text
