"""The files of the prompt cache on a disk: which count, which go first, what is left alone. No model."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uad.base.errors import UadError
from uad.engine.decode.lower_level import StoredText
from uad.llama.memory import SavedSequence
from uad.runtime.slots.copies import SCALES
from uad.runtime.slots.disk import DiskTexts
from uad.runtime.slots.disk_files import DiskFiles, make_folder, name_of
from uad.runtime.slots.file import SavedSlot, SavedState, size_in_file, write_slot

FACTS = {"model file": "12-ab"}
OTHER = {"model file": "34-cd"}
SIZE = 1000


def text(folder: Path, first: int, age: float, facts: dict[str, str] = FACTS) -> Path:
    """A file of ten ids that was used so many seconds ago."""
    ids = np.arange(first, first + 10, dtype=np.int32)
    path = folder / name_of(facts, ids)
    state = SavedSequence(10, 0, np.zeros(SIZE, np.uint8), ())
    slot = SavedSlot(SavedState(facts, ids.tolist(), state), rate=7.5)
    assert write_slot(path, slot) == size_in_file(slot)
    aged(path, age)
    return path


def aged(path: Path, age: float) -> None:
    then = time.time() - age
    os.utime(path, (then, then))


def opened(folder: Path, most: int | None = None) -> DiskFiles:
    files = DiskFiles(folder, most, FACTS)
    files.look()
    return files


def test_an_index_is_made_of_headers(tmp_path: Path) -> None:
    path = text(tmp_path, 5, 0)
    ((name, outline),) = opened(tmp_path).texts.items()
    assert name == path.name
    assert (outline.ids.tolist(), outline.n_bytes, outline.slot.rate) == ([*range(5, 15)], path.stat().st_size, 7.5)
    assert outline.slot.target.state.end == 10
    assert len(outline.slot.target.state.data) == 0


def test_the_least_recently_used_goes_first_also_of_other_models(tmp_path: Path) -> None:
    old, other, newest = text(tmp_path, 0, 30), text(tmp_path, 10, 20, OTHER), text(tmp_path, 20, 10)
    size = newest.stat().st_size
    files = opened(tmp_path, most=3 * size + 100)
    files.make_room(size)
    assert [path.exists() for path in (old, other, newest)] == [False, True, True]
    files.make_room(2 * size)
    assert [path.exists() for path in (old, other, newest)] == [False, False, True]
    files.make_room(0)
    assert newest.exists()


def test_a_text_that_is_used_goes_later(tmp_path: Path) -> None:
    old, new = text(tmp_path, 0, 30), text(tmp_path, 10, 20)
    files = opened(tmp_path, most=2 * new.stat().st_size + 100)
    files.touch(old.name)
    files.make_room(new.stat().st_size)
    assert [path.exists() for path in (old, new)] == [True, False]


def test_what_is_not_the_cache_s_is_never_removed_and_does_not_count(tmp_path: Path) -> None:
    for name in ("talk.bin", "0123.uadtext", f"{'0' * 32}.uadtext.old", f".{'0' * 31}.uadtext.part"):
        (tmp_path / name).write_bytes(b"x" * 10_000)
        aged(tmp_path / name, 9999)
    (tmp_path / f"{'1' * 32}.uadtext").symlink_to(tmp_path / "talk.bin")
    (tmp_path / f"{'2' * 32}.uadtext").mkdir()
    before = sorted(tmp_path.iterdir())
    files = opened(tmp_path, most=1)
    files.make_room(1)
    assert files.n_bytes == 0
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_killed_server_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, young = (tmp_path / f".{'0' * 32}.uadtext.{letters}" for letters in ("abc", "xyz"))
    for path in (old, young):
        path.write_bytes(b"x" * 50)
    aged(old, 3600)
    files = opened(tmp_path)
    assert [path.exists() for path in (old, young)] == [False, True]
    assert files.n_bytes == 50


def test_damaged_files_count_and_are_named_once_by_what_is_wrong(tmp_path: Path, caplog) -> None:
    paths = [text(tmp_path, 10 * i, i) for i in range(5)]
    for path in paths[:4]:
        path.write_bytes(b"nothing of a slot")
    paths[4].write_bytes(paths[4].read_bytes()[:-1])
    files = opened(tmp_path)
    files.look()
    assert files.texts == {}
    assert files.n_bytes == sum(path.stat().st_size for path in paths)
    lines = [record.getMessage() for record in caplog.records]
    assert sorted(line.partition("cannot be used: ")[2] for line in lines) == [
        "it is not a slot of uad",
        "its header makes no sense",
    ]
    assert sum(" and 1 more cannot be used" in line for line in lines) == 1


def test_files_of_another_model_are_no_warning(tmp_path: Path, caplog) -> None:
    text(tmp_path, 0, 0, OTHER)
    with caplog.at_level(logging.INFO, "uad"):
        opened(tmp_path)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "it is of another model file (34-cd; here it is 12-ab)" in record.getMessage()


def test_a_file_that_is_written_anew_is_used_again(tmp_path: Path) -> None:
    path = text(tmp_path, 0, 0)
    path.write_bytes(b"")
    files = opened(tmp_path)
    assert files.texts == {}
    text(tmp_path, 0, 0)
    files.look()
    assert list(files.texts) == [path.name]


def test_a_file_that_was_cut_after_it_was_read_is_not_used(tmp_path: Path) -> None:
    path = text(tmp_path, 0, 0)
    files = opened(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    files.look()
    assert files.texts == {}


def test_what_was_refused_when_it_was_read_stays_refused(tmp_path: Path, caplog) -> None:
    path = text(tmp_path, 0, 0)
    files = opened(tmp_path)
    aged(path, 5)
    files.refuse(path.name, UadError("no"))
    files.look()
    assert files.texts == {}
    path.unlink()
    files.refuse(path.name, UadError("no"))
    assert len(caplog.records) == 1


def test_a_folder_that_is_gone_is_empty_and_said_once(tmp_path: Path, caplog) -> None:
    folder = tmp_path / "texts"
    make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    files = opened(folder)
    folder.rmdir()
    assert not files.has_changed
    files.look()
    files.look()
    assert len(caplog.records) == 1


def test_another_server_s_files_show_as_a_change(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert not files.has_changed
    text(tmp_path, 0, 0)
    assert files.has_changed
    files.look()
    assert not files.has_changed


@pytest.mark.parametrize("most", [None, 10**9])
def test_where_there_is_room_nothing_goes(tmp_path: Path, most: int | None) -> None:
    path = text(tmp_path, 0, 9999)
    opened(tmp_path, most).make_room(1000)
    assert path.exists()


def test_a_folder_of_another_user_is_one_warning(tmp_path: Path, monkeypatch, caplog) -> None:
    """It can be neither read nor written, and answers go on without it."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    files = DiskFiles(tmp_path, None, FACTS)
    copies = SimpleNamespace(target=SimpleNamespace(context=SimpleNamespace(n_vocab=10)))
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "uad"):
        patched.setattr(os, "scandir", refuse)
        patched.setattr(tempfile, "TemporaryFile", refuse)
        disk = DiskTexts(files, copies, 100, time.perf_counter)
    disk.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"--cache-disk: {tmp_path} cannot be read (Permission denied); answers go on without it"
    ]
    assert not files.is_readable
    files.look()
    assert files.is_readable


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskTexts]:
    """Texts in an empty folder, of which a slot can go on from any id."""
    context = SimpleNamespace(n_vocab=100)
    facts = FACTS | {SCALES: "()"}
    copies: Any = SimpleNamespace(
        target=SimpleNamespace(context=context), facts=facts, draft_facts=None, reach_of=lambda _, n: n
    )
    one = DiskTexts(DiskFiles(tmp_path, None, FACTS), copies, 100, time.perf_counter)
    yield one
    one.close()


def write(disk: DiskTexts, *ids: int) -> None:
    state = SavedSequence(len(ids), 0, np.zeros(SIZE, np.uint8), ())
    slot = SavedSlot(SavedState({**FACTS, SCALES: "()"}, (), state))
    disk.write(StoredText(list(ids), slot, SIZE), rate=1.0)
    disk.settle()


def found(disk: DiskTexts, *prompt: int) -> tuple[str, int] | None:
    text = disk.find(prompt)
    return None if text is None else (text.name, text.n)


def test_texts_that_part_at_their_last_id_have_files_of_their_own(disk: DiskTexts) -> None:
    names = []
    for last in (1, 2):
        write(disk, 5, 5, last)
        names.append(found(disk, 5, 5, last, 9))
    assert [n for _, n in names] == [3, 3]
    assert names[0] != names[1]
    assert disk.counts().n_disk_texts == 2
    assert found(disk, 5, 5, 3)[1] == 2
    assert found(disk, 3) is None


def test_a_longer_text_takes_the_place_of_what_it_begins_with_and_not_the_other_way_round(disk: DiskTexts) -> None:
    write(disk, 5, 6)
    write(disk, 5, 6, 7)
    name, n = found(disk, 5, 6, 7)
    assert n == 3
    write(disk, 5, 6)
    assert found(disk, 5, 6) == (name, 2)
    assert disk.counts().n_disk_texts == 1


def test_the_text_that_a_prompt_goes_on_from_furthest_is_taken(disk: DiskTexts) -> None:
    for ids in ((5, 1), (5, 6, 7, 1), (5, 6, 2)):
        write(disk, *ids)
    assert [found(disk, 5, *rest)[1] for rest in ((1, 9), (6, 7, 9), (6, 2), (6, 7, 1))] == [2, 3, 3, 4]
