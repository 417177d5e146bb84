"""Types of tensors that no table here has: their sizes are asked, and what a file says of itself is read without."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from uad.base import gguf
from uad.base.errors import ModelLoadError
from uad.base.gguf import BLOCKS, GgufFile, all_tensors, read_texts, type_sizes

NEW = 251


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with an F32 tensor and one of a new type."""
    values = text("words") + struct.pack("<IIQ", gguf.ARRAY, gguf.STRING, 1) + text("a")
    tensors = text("old") + struct.pack("<IQIQ", 1, 8, 0, 0) + text("new") + struct.pack("<IQQIQ", 2, 64, 3, NEW, 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 2, 1) + values + tensors
    file = tmp_path / "model.gguf"
    file.write_bytes(head + bytes(-len(head) % 32) + bytes(32 + 3 * 18))
    return file


@pytest.fixture(autouse=True)
def asked(monkeypatch) -> list[int]:
    """Nobody can be asked but this; returns what was asked for."""
    monkeypatch.setattr(gguf, "_askable", [])
    return []


def test_a_type_that_is_not_in_the_table_is_asked_for(path, asked) -> None:
    def sizes(kind: int) -> tuple[int, int] | None:
        asked.append(kind)
        return (64, 18) if kind == NEW else None  # of F32 it knows nothing

    gguf.ask_for_types(sizes)
    gguf.ask_for_types(sizes)
    with GgufFile(path) as file:
        assert [(one.name, one.n_bytes) for one in file.tensors] == [("old", 32), ("new", 54)]
    assert asked == [0, NEW], "once each"
    assert type_sizes(NEW + 1) is None


def test_a_type_that_nobody_knows_is_an_error_of_the_tensors_alone(path) -> None:
    with GgufFile(path) as file:
        assert file.texts("words") == ["a"]
        with pytest.raises(ModelLoadError, match=rf"tensor new is of type {NEW}.* a newer llama-cpp-python"):
            _ = file.tensors
    with pytest.raises(ModelLoadError, match=f"type {NEW}"):
        list(all_tensors(path))
    assert read_texts(path, ["words"]) == {"words": ["a"]}, "its text is tokenized as quickly as any other's"


def test_the_first_who_knows_a_type_is_believed(path) -> None:
    gguf.ask_for_types(lambda kind: None)
    assert type_sizes(8) == BLOCKS[8] == (32, 34)
    gguf.ask_for_types(lambda kind: (64, 20))
    gguf.ask_for_types(lambda kind: (32, 99))
    assert type_sizes(NEW) == type_sizes(8) == (64, 20), "whoever reads the file in the end"


def test_a_file_that_ends_within_a_tensor_of_a_known_type_is_damaged(path) -> None:
    gguf.ask_for_types(lambda kind: (64, 1000) if kind == NEW else None)
    with pytest.raises(ModelLoadError, match="damaged or truncated"):
        GgufFile(path)


@pytest.mark.parametrize("n_bytes", [4, 23, 24, 100, 1000])
def test_a_header_that_is_cut_is_said_so_in_words(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes((Path(__file__).parents[3] / "samples" / "draft-gemma.gguf").read_bytes()[:n_bytes])
    with pytest.raises(ModelLoadError) as error:
        GgufFile(path)
    assert "unpack" not in str(error.value)
