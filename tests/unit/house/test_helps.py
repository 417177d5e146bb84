"""An optional help never ends the whole: what nobody named, or was only kept for the next time, may fail in any way. It
costs one line in the log, and the rest serves. All such helps, each with the ways in which it is made to fail; those
that need a model are in `tests/model/test_helps_models.py`.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uad.base.common import available, files
from uad.base.common.once import warn_once
from uad.base.config import DraftingConfig, load_config
from uad.base.errors import ConfigError
from uad.drafts.lookup import store
from uad.drafts.lookup.store import StoreFile
from uad.llama.footprint import NeedUnknownError
from uad.llama.kernels import proven
from uad.pairs import choose, costs, header, records
from uad.pairs import files as model_files
from uad.pairs.conditions import Conditions
from uad.pairs.records import PairRecord
from uad.router import drafts, memory
from uad.runtime import lookups
from uad.runtime.costs import fit, profile_store
from uad.runtime.slots import disk_files
from uad.tools.cli import cost_plot
from uad.tools.cli.pairs import with_helps
from uad.tools.hub import fetch

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, DRAFT = SAMPLES / "target-chatml.gguf", SAMPLES / "draft-zephyr.gguf"
UNDER = Conditions("here", "so")


@dataclass
class Cache:
    """The user's cache folder, and the lines that are logged or said."""

    folder: Path
    patch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture
    said: list[str]

    @property
    def lines(self) -> list[str]:
        """Warnings, and what a command says."""
        return [*self.said, *(entry.getMessage() for entry in self.log.records if entry.levelno >= logging.WARNING)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Cache:
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    warn_once.cache_clear()
    return Cache(tmp_path / "cache", monkeypatch, caplog, [])


# --- ways to fail


def raises(error: BaseException) -> Callable[..., Any]:
    def fail(*anything: object, **more: object) -> Any:
        raise error

    return fail


CONTENTS = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no JSON": b"{",
    "another JSON": b"[1, 2]",
    "null": b"null",
    "a number": b"1e999",
    "nested deep": b"[" * 100_000,
    "another version": b'{"version": 99}',
    "without its fields": b'{"version": 2}',
    "NaN": b'{"version": 2, "written_s": NaN, "drafts": {}}',
    "words for numbers": b'{"version": 2, "written_s": "many", "drafts": {"a": {"tokens": []}}}',
    "huge": b" " * (5 << 20),
}


def damaged(file: Path) -> Iterator[str]:
    """A file, damaged in all these ways, one after the other; then a folder in its place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        file.write_bytes(content)
        yield name
    file.unlink()
    file.mkdir()
    yield "a folder"
    file.rmdir()


ERRORS = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    ConfigError("no home"),
    RuntimeError("can't start new thread"),
    MemoryError(),
    KeyError("x"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
]
HELPS: dict[str, Callable[[Cache], Iterator[str]]] = {}
"""By what helps. Each makes it fail in one way after the other, checks that the rest goes on, and says which way it
was.
"""


def helps(what: str) -> Callable[[Callable[[Cache], Iterator[str]]], Callable[[Cache], Iterator[str]]]:
    def add(way: Callable[[Cache], Iterator[str]]) -> Callable[[Cache], Iterator[str]]:
        HELPS[what] = way
        return way

    return add


@helps("a stored record of a pair")
def _record_read(cache: Cache) -> Iterator[str]:
    for name in damaged(records._file(TARGET, UNDER)):
        assert records.record_of(TARGET, UNDER).drafts == {}
        yield "" if name == "another version" else name  # of an older uad: no line
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(records, "identity", raises(error))
            assert records.record_of(TARGET, UNDER).drafts == {}
        yield repr(error)


@helps("keeping a record of a pair")
def _record_kept(cache: Cache) -> Iterator[str]:
    more = PairRecord(500, 1.0, 1.5)
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(records, "write_atomically", raises(error))
            assert records.add_record(TARGET, DRAFT, more, UNDER).gain == 1.5
        yield repr(error)
    file = records._file(TARGET, UNDER)
    for name in damaged(file):
        if name != "a folder":
            assert records.add_record(TARGET, DRAFT, more, UNDER).gain == 1.5
            yield "" if name == "another version" else name
    (cache.folder / "pairs").rmdir()
    (cache.folder / "pairs").write_text("a file in place of the folder", encoding="utf-8")
    assert records.add_record(TARGET, DRAFT, more, UNDER).gain == 1.5
    yield "a file in place of the folder"


@helps("a stored cost curve, for the choice of a draft")
def _curve_of_a_pair(cache: Cache) -> Iterator[str]:
    for name in damaged(cache.folder / "profiles" / "any.json"):
        costs._curve._kept.clear()
        assert costs.stored() == []
        yield name
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(costs, "curves_folder", raises(error))
            assert costs.stored() == []
        yield repr(error)


@helps("a stored cost curve, for the policy")
def _curve_of_a_model(cache: Cache) -> Iterator[str]:
    key = profile_store.ProfileKey("name", {})
    for name in damaged(profile_store.path(key)):
        assert profile_store.load(key) is None
        yield name


@helps("the choice of a draft, for one target")
def _choice(cache: Cache) -> Iterator[str]:
    config = load_config(["--target", str(TARGET), "--draft", "auto"], {})
    for where, name in ((choose, "best"), (choose, "recorded"), (model_files, "find_models")):
        for error in ERRORS:
            with cache.patch.context() as patch:
                patch.setattr(where, name, raises(error))
                assert with_helps(config, cache.said.append).draft is None
            yield f"{name}: {error!r}"


@helps("the choice of a draft, in a folder")
def _choice_in_a_folder(cache: Cache) -> Iterator[str]:
    from kit.router_kit import folder_model

    model = replace(folder_model("m", path=TARGET), drafts=(DRAFT,), words=(f"--model={TARGET}",))
    for name in ("recorded", "conditions", "load_config"):
        for error in ERRORS:
            with cache.patch.context() as patch:
                patch.setattr(drafts, name, raises(error))
                assert drafts.FolderDrafts().choose(model) == ()
            yield f"{name}: {error!r}"


@helps("candidates whose files are damaged")
def _candidates(cache: Cache) -> Iterator[str]:
    file = cache.folder / "candidate.gguf"
    for name in damaged(file):
        header.facts._kept.clear()
        assert [view.draft for view in choose.views(TARGET, [file, DRAFT])] == [DRAFT]
        cache.said.append(name)  # it is no candidate: the list of models says why
        yield name


@helps("the look for a projector")
def _projector(cache: Cache) -> Iterator[str]:
    config = load_config(["--target", str(TARGET), "--mmproj", "auto"], {})
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(model_files, "beside", raises(error))
            assert with_helps(config, cache.said.append).vision.path is None
        yield repr(error)


@helps("a projector of a repository")
def _projector_of_a_hub(cache: Cache) -> Iterator[str]:
    config = load_config(["--hf-repo", "u/r"], {})
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(fetch._Repository, "projector", raises(error))
            patch.setattr(fetch._Repository, "fetch", lambda self, report: TARGET)
            found = fetch.fetched(config, lambda what, share: None, sees=True)
            assert (found.target.path, found.vision.path) == (TARGET, None)
        yield repr(error)


@helps("the hub's cache, of which the newest snapshot serves")
def _hub_cache(cache: Cache) -> Iterator[str]:
    cache.patch.setenv("HF_HUB_CACHE", str(cache.folder))
    cache.patch.setenv("HF_HUB_OFFLINE", "1")
    cache.patch.delenv("LLAMA_CACHE", raising=False)
    repository = cache.folder / "models--u--r"
    snapshot = repository / "snapshots" / "1f2e"
    snapshot.mkdir(parents=True)
    (snapshot / "m.gguf").write_bytes(b"GGUF")
    ref = repository / "refs" / "main"
    ref.parent.mkdir()
    config = load_config(["--hf-repo", "u/r"], {})
    for content in (b"\xff\xfe", b"a\0b"):
        ref.write_bytes(content)
        assert fetch.fetched(config, lambda what, share: None).target.path == snapshot / "m.gguf"
        if content == b"a\0b":
            cache.said += [] if cache.lines else ["a name that no folder has"]
        yield repr(content)


@helps("the proof of the kernels, as it was stored")
def _proof(cache: Cache) -> Iterator[str]:
    for name in damaged(cache.folder / "kernels" / "any.json"):
        assert proven._read(cache.folder / "kernels" / "any.json", ("Q8_0",)) is None
        cache.said.append(name)  # it is tried again
        yield name


@helps("the look at how much memory is left")
def _memory_left(cache: Cache) -> Iterator[str]:
    for name in ("_table", "_groups", "_own"):
        for error in ERRORS:
            with cache.patch.context() as patch:
                patch.setattr(available, name, raises(error))
                assert available.available() == ()
                assert memory.memory_left([os.getpid()]) == math.inf
            yield f"{name}: {error!r}"


@helps("what contexts would take, for --fit")
def _fit(cache: Cache) -> Iterator[str]:
    sizes: Any = SimpleNamespace(target=SimpleNamespace(n_snapshots=0, n_ctx_train=2048, n_seq=1, has_state=False))
    for error in [*ERRORS, NeedUnknownError("no")]:
        if not isinstance(error, ConfigError):  # the user's
            sizes.of = raises(error)
            assert fit.fitted(sizes, 512, [available.Limit(1 << 40, "here")]) == fit.Fitted(512, 0)
            yield repr(error)


@helps("what look-ups learned, in a file")
def _learned(cache: Cache) -> Iterator[str]:
    file = StoreFile(cache.folder / "learned", "suffix", 3, "v")
    for name in damaged(file.path):
        assert file.load() is None
        yield name
    vocab: Any = SimpleNamespace(pieces=(), special_names={})
    config = DraftingConfig(types=("suffix",))
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(lookups, "build_one", raises(error))
            assert lookups.build_lookups(config, vocab, 1) == ()
        yield repr(error)


@helps("keeping what look-ups learned")
def _learned_kept(cache: Cache) -> Iterator[str]:
    file = StoreFile(cache.folder / "learned", "suffix", 3, "v")
    drafter: Any = SimpleNamespace(origin="suffix", close=lambda: file.save(np.zeros((1, 3), np.int32)))
    for error in ERRORS:
        with cache.patch.context() as patch:
            patch.setattr(store, "write_atomically", raises(error))
            lookups.close_lookup(drafter)
        yield repr(error)
    file.path.mkdir()
    lookups.close_lookup(drafter)
    yield "a folder in its place"


@helps("the prompt cache on a disk")
def _texts_on_disk(cache: Cache) -> Iterator[str]:
    name = disk_files.name_of({}, np.ones(1, np.int32))
    for way in damaged(cache.folder / name):
        if way != "a folder":  # nothing of the cache's own
            files = disk_files.DiskFiles(cache.folder, None, {})
            files.look()
            assert all(outline is None for outline in files.texts.values()) or not files.texts
            yield way
    for error in ERRORS:
        files = disk_files.DiskFiles(cache.folder, None, {})
        with cache.patch.context() as patch:
            patch.setattr(disk_files.os, "scandir", raises(error))
            files.look()
        assert not files.texts
        yield repr(error)


@pytest.mark.parametrize("what", HELPS)
def test_an_optional_help_never_ends_the_whole(what: str, cache: Cache) -> None:
    n = 0
    for way in HELPS[what](cache):
        assert len(cache.lines) == (1 if way else 0), f"{way}: {cache.lines}"
        cache.log.clear()
        cache.said.clear()
        warn_once.cache_clear()
        n += 1
    assert n >= 2


def test_a_plot_without_a_matplotlib_that_works_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was named, so this is an error; but no traceback."""
    import matplotlib as mpl

    for error in (RuntimeError("numpy"), AttributeError("_ARRAY_API"), OSError("no folder")):
        monkeypatch.setattr(mpl, "use", raises(error))
        with pytest.raises(ConfigError, match="which cannot be loaded"):
            cost_plot.pyplot()


def test_what_is_written_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({"old": 1}), encoding="utf-8")
    monkeypatch.setattr(files.os, "fsync", raises(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        files.write_atomically(file, b"{}")
    assert json.loads(file.read_text(encoding="utf-8")) == {"old": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["kept.json"]
