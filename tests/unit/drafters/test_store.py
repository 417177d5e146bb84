"""Files of what drafters learned: whole or not at all, of this version and this vocabulary."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.toys import TARGET_VOCAB

from uad.drafts.lookup.store import StoreError, StoreFile, fingerprint

ROWS = np.arange(12, dtype=np.int32).reshape(6, 2) - 3
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path):
    return StoreFile(tmp_path / "store", "things", 2, "0123")


@in_one_folder
@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)), max_size=20))
def test_what_is_saved_is_read(file, rows):
    given_rows = np.array(rows, dtype=np.int32).reshape(-1, 2)
    file.save(given_rows)
    assert np.array_equal(file.read(), given_rows)
    assert [path.name for path in file.path.parent.iterdir()] == ["store"]


@in_one_folder
@given(st.data())
def test_a_file_cut_anywhere_is_refused(file, data):
    file.save(ROWS)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(StoreError):
        file.read()


@in_one_folder
@given(st.data())
def test_a_changed_byte_of_the_rows_is_found(file, data):
    file.save(ROWS)
    whole = bytearray(file.path.read_bytes())
    start = whole.index(b"\n") + 1
    whole[data.draw(st.integers(start, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    file.path.write_bytes(whole)
    with pytest.raises(StoreError, match="checksum"):
        file.read()


@in_one_folder
@given(st.binary(max_size=200))
def test_other_files_are_refused(file, content):
    file.path.write_bytes(content)
    with pytest.raises(StoreError, match="not a store of uad"):
        file.read()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "it has version 2 of the format, this program reads version 1"),
        ({"format": "other"}, "not a store of uad"),
        ({"kind": "answers"}, "it is a store of answers, not of things"),
        ({"width": 3}, "its rows have 3 numbers, those of this program"),
        ({"vocabulary": "9"}, "another model's vocabulary"),
        ({"rows": 7}, "48 bytes of rows instead of 56"),
        ({"rows": -1}, "damaged"),
        ({"rows": "6"}, "damaged"),
        ({"rows": True}, "damaged"),
        ({"crc32": None}, "damaged"),
    ],
)
def test_reasons(file, change, reason):
    file.save(ROWS)
    line, body = file.path.read_bytes().split(b"\n", 1)
    file.path.write_bytes(json.dumps(json.loads(line) | change).encode() + b"\n" + body)
    with pytest.raises(StoreError, match=reason):
        file.read()


def test_a_refused_file_is_one_clear_line_and_is_kept(file, caplog):
    file.save(ROWS)
    before = file.path.read_bytes()
    assert replace(file, vocabulary="9").load() is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    reason = (
        "it was written with another model's vocabulary; the file is kept as it is, and the server goes on without it"
    )
    assert record.getMessage() == f"{file.path}: not used: {reason}"
    assert file.path.read_bytes() == before


def test_no_file_yet_is_no_rows(file, caplog):
    assert file.load().shape == (0, 2)
    assert not caplog.records


def test_a_file_that_cannot_be_written_is_named_when_it_is_read(tmp_path, caplog):
    """Not only when the server stops, and all that was learned is lost."""
    assert StoreFile(tmp_path / "no folder" / "store", "things", 2, "0123").load().shape == (0, 2)
    assert "cannot be written (No such file or directory)" in caplog.text


def test_a_folder_in_its_place_is_refused(file, caplog):
    file.path.mkdir()
    assert file.load() is None
    assert "Is a directory" in caplog.text


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_save_that_fails_leaves_the_old_file(file, caplog, monkeypatch, broken):
    file.save(ROWS)
    before = file.path.read_bytes()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    file.save(ROWS[:1])
    assert "could not be written: No space left on device" in caplog.text
    assert file.path.read_bytes() == before
    assert [path.name for path in file.path.parent.iterdir()] == ["store"]


def test_fingerprints_tell_vocabularies_apart():
    name = fingerprint(TARGET_VOCAB)
    pieces = TARGET_VOCAB.pieces
    assert name == fingerprint(replace(TARGET_VOCAB, name="the same under another name"))
    assert name != fingerprint(replace(TARGET_VOCAB, pieces=(*pieces[:40], pieces[41], pieces[40], *pieces[42:])))
    assert name != fingerprint(
        replace(TARGET_VOCAB, pieces=(*pieces[:40], pieces[40] + pieces[41][:1], pieces[41][1:], *pieces[42:]))
    )
    specials = {f"{text}x": id_ for text, id_ in TARGET_VOCAB.specials.items()}
    assert name != fingerprint(replace(TARGET_VOCAB, specials=specials))
