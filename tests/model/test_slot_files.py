"""Files of slots: what is written is read again, what cannot be used is refused by name, and the old file stays."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uad.base.common import files
from uad.base.config import KvOverride, LoraConfig, ModelConfig, Place
from uad.base.errors import InvalidRequestError, UadError
from uad.llama.memory import Checkpoint, SavedSequence
from uad.runtime.slots import copies
from uad.runtime.slots.copies import kept_model, kept_target
from uad.runtime.slots.file import SavedSlot, SavedState, file_in, read_slot, write_slot
from uad.text.vocab.table import VocabTable

FACTS = {"model file": "12-ab", "type of cached keys": "f16"}
DRAFT_FACTS = {"model file": "3-cd"}


def state(facts: dict[str, str], n: int, skip: int = 0) -> SavedState:
    rng = np.random.default_rng(n)
    marks = tuple(Checkpoint(pos, rng.integers(0, 256, 5 * pos, np.uint8)) for pos in (2, 3))
    return SavedState(facts, tuple(range(n)), SavedSequence(n, 1, rng.integers(0, 256, 999, np.uint8), marks), skip)


SLOT = SavedSlot(state(FACTS | {"scales": "()"}, 7), (state(DRAFT_FACTS, 9, skip=2),))


def same(one: SavedState | None, other: SavedState | None) -> bool:
    if one is None or other is None:
        return one is other
    texts = [(dict(x.facts), list(x.ids), x.skip, x.state.end, x.state.first) for x in (one, other)]
    pairs = zip(one.state.marks, other.state.marks, strict=True)
    return (
        texts[0] == texts[1]
        and np.array_equal(one.state.data, other.state.data)
        and all(a.pos == b.pos and np.array_equal(a.data, b.data) for a, b in pairs)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "slot.bin"
    write_slot(path, SLOT)
    return path


def why(path: Path, facts: dict[str, str] = FACTS) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        read_slot(path, facts, [DRAFT_FACTS])
    return str(caught.value)


def test_what_was_written_is_read_again(path: Path) -> None:
    found, size = read_slot(path, FACTS, [DRAFT_FACTS])
    assert same(found.target, SLOT.target)
    assert same(found.drafts[0], SLOT.drafts[0])
    assert size == path.stat().st_size == write_slot(path, SLOT)


def test_an_empty_slot_has_a_file_too(tmp_path: Path) -> None:
    empty = SavedState(FACTS, (), SavedSequence(0, 0, np.empty(0, np.uint8), ()))
    write_slot(tmp_path / "empty", SavedSlot(empty))
    found, _ = read_slot(tmp_path / "empty", FACTS, [])
    assert same(found.target, empty)
    assert not found.drafts


@pytest.mark.parametrize("facts", [None, {"model file": "another"}])
def test_a_draft_that_is_not_here_is_left_out(path: Path, facts: dict[str, str] | None) -> None:
    found, _ = read_slot(path, FACTS, [facts])
    assert same(found.target, SLOT.target)
    assert not found.drafts


@pytest.mark.parametrize("what", FACTS)
def test_a_file_of_another_model_is_refused_and_the_difference_named(path: Path, what: str) -> None:
    message = why(path, FACTS | {what: "mine"})
    assert f"slot.bin: it is of another {what} ({FACTS[what]}; here it is mine)" in message


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("type_k", "q8_0", "type of cached keys"),
        ("type_v", "q8_0", "type of cached values"),
        ("swa_full", True, "kind of sliding window"),
        ("rope_freq_base", 5000.0, "scaling of positions"),
        ("yarn_beta_slow", 2.0, "scaling of positions"),
        ("overrides", (KvOverride("llama.expert_used_count", 3),), "set of overrides"),
        ("loras", (LoraConfig(Path(__file__)),), "set of adapters"),
    ],
)
def test_a_state_is_of_each_setting_that_changes_it(setting: str, value: object, what: str) -> None:
    context: Any = SimpleNamespace(
        vocab=VocabTable("made", (b"a",), {}, list),
        has_flash_attention=True,
        memory=SimpleNamespace(way="positions", n_snapshots=0),
    )
    own = ModelConfig(Path(__file__))
    before, after = (kept_model(config, context).facts for config in (own, replace(own, **{setting: value})))
    assert [name for name in before if before[name] != after[name]] == [what]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("exact", ["way to compute"]),
        ("kernels", ["set of kernels"]),
        ("library", ["set of kernels"]),
        ("rearranged", ["set of kernels"]),
        ("build", ["build of llama.cpp"]),
        ("worker", ["sample of its numbers"]),
        ("cells", ["number of the window's cells"]),
        ({"devices": ()}, ["set of devices"]),
        ({"tensor_split": (1.0, 2.0)}, ["set of devices"]),
        ({"places": (Place("exps", "CPU"),)}, ["set of devices"]),
        ({"n_threads": 3}, ["number of threads and rows"]),
        ({"n_ubatch": 64}, ["number of threads and rows"]),
    ],
    ids=str,
)
def test_a_targets_state_is_of_all_that_decides_its_bits(change: Any, what: list[str], monkeypatch) -> None:
    def facts(change: Any) -> dict[str, str]:
        fields = change if isinstance(change, dict) else {}
        own = {"kernels": f"avx2 0.1.0 {'b' if change == 'library' else 'a'}: q8_0"} if change != "kernels" else {}
        monkeypatch.setattr(copies.kernels, "of", lambda config: SimpleNamespace(facts=own))
        monkeypatch.setattr(copies.kernels, "keep_rows", lambda config: False)
        monkeypatch.setattr(copies, "rearranged", lambda config: SimpleNamespace(is_on=change != "rearranged"))
        monkeypatch.setattr(copies.native, "build_digest", lambda: "b" if change == "build" else "a")
        monkeypatch.setattr(copies, "digest", lambda context: "b" if change == "worker" else "a")
        context: Any = SimpleNamespace(
            vocab=VocabTable("made", (b"a",), {}, list),
            has_flash_attention=True,
            memory=SimpleNamespace(way="positions", n_snapshots=0, n_window_cells=512 if change == "cells" else 256),
        )
        config = replace(ModelConfig(Path(__file__), n_threads=1), **fields)
        return dict(kept_target(config, context, exact=change == "exact").facts)

    before, after = facts(None), facts(change)
    assert [name for name in before if before[name] != after[name]] == what


def test_where_rows_keep_their_bits_threads_and_batches_may_differ(monkeypatch) -> None:
    monkeypatch.setattr(copies, "digest", lambda context: "a")
    monkeypatch.setattr(copies.kernels, "keep_rows", lambda config: True)
    context: Any = SimpleNamespace(
        vocab=VocabTable("made", (b"a",), {}, list),
        has_flash_attention=True,
        memory=SimpleNamespace(way="positions", n_snapshots=0, n_window_cells=0),
    )
    configs = (ModelConfig(Path(__file__), n_threads=n, n_ubatch=64 * n) for n in (1, 2))
    one, other = (kept_target(config, context, exact=False).facts for config in configs)
    assert one == other


def test_every_cut_and_every_changed_byte_is_found(path: Path) -> None:
    data = path.read_bytes()
    for at in (*range(60), *range(60, len(data), 97), len(data) - 1):
        path.write_bytes(data[:at])
        assert "slot.bin" in why(path), f"cut at {at}"
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert "slot.bin" in why(path), f"changed at {at}"
    path.write_bytes(data + b"\0")
    assert "its checksum is wrong" in why(path)


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused_by_its_number(path: Path, version: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, version)
    path.write_bytes(data)
    assert f"it has version {version} of the format, this program reads 1" in why(path)


def test_files_of_others_are_no_slots(path: Path) -> None:
    for data in (b"", b"ggsq", b"GGUF" + bytes(100), bytes(5000)):
        path.write_bytes(data)
        assert "it is not a slot of uad" in why(path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b'"data": 999', b'"data": -99'),
        (b'"end": 7', b'"end": x'),
        (b'"skip": 0', b'"skip":""'),
        (b"[[2,", b"[[[,"),
        (b'"marks": [[2, 10]', b'"marks": [[".",2]'),
        (b'"first"', b'"fir__"'),
        (b'"facts": {', b'"fact_": {'),
    ],
)
def test_a_header_that_makes_no_sense_is_refused_though_its_checksum_is_right(
    right: bytes, wrong: bytes, path: Path
) -> None:
    data = path.read_bytes()
    body = data[24:].replace(right, wrong, 1)
    assert body != data[24:]
    path.write_bytes(data[:20] + struct.pack("<I", zlib.crc32(body)) + body)
    assert "its header makes no sense" in why(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "gone.bin: there is no such file" in why(tmp_path / "gone.bin")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "../a",
        "a..b",
        "a.",
        "a ",
        " a",
        "a\x00b",
        "a\nb",
        "a\x7fb",
        "a\x85b",
        "a:b",
        "a*",
        "a?",
        'a"b',
        "<a",
        "a>",
        "a|b",
        "a．b",
        "a∕b",
        "a∖b",
        "\ufeffa",
        "�",
        "ä" * 128,
        "a" * 256,
    ],
)
def test_a_name_that_could_be_a_path_is_no_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Invalid filename$"):
        file_in(tmp_path, name)


@pytest.mark.parametrize("name", ["slot1.bin", ".hidden", "ä" * 127, "a b", "日本", "a" * 255])
def test_other_names_are_files_in_the_folder(name: str, tmp_path: Path) -> None:
    path = file_in(tmp_path, name)
    write_slot(path, SLOT)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_links_are_followed_neither_to_read_nor_to_write(path: Path) -> None:
    link, broken = path.with_name("link"), path.with_name("broken")
    link.symlink_to(path)
    broken.symlink_to(path.with_name("nowhere"))
    before = path.read_bytes()
    for one in (link, broken):
        assert "it is a link" in why(one)
        with pytest.raises(InvalidRequestError, match="it is a link"):
            write_slot(one, SavedSlot(SLOT.target))
        assert one.is_symlink()
    assert path.read_bytes() == before


def test_folders_and_pipes_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(UadError, match=name):
            read_slot(tmp_path / name, FACTS, [])
        with pytest.raises(InvalidRequestError, match="a folder or a device"):
            write_slot(tmp_path / name, SLOT)


def test_a_file_that_another_name_shares_is_replaced_and_not_written_into(path: Path) -> None:
    other = path.with_name("other")
    os.link(path, other)
    before = other.read_bytes()
    write_slot(path, SavedSlot(SLOT.target))
    assert other.read_bytes() == before != path.read_bytes()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_is_an_error_and_the_old_file_stays(step: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, step, full)
    with pytest.raises(UadError, match=r"^Unable to save slot: slot\.bin: No space left on device$") as caught:
        write_slot(path, SavedSlot(SLOT.target))
    assert not isinstance(caught.value, InvalidRequestError)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_longer_than_the_system_allows_leaves_the_old_one(path: Path) -> None:
    """In a process of its own, whose files have 64 KiB at most."""
    code = (
        "import resource, signal, sys; from pathlib import Path; import numpy as np\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "from uad.llama.memory import SavedSequence; from uad.runtime.slots.file import *\n"
        "one = SavedState({}, (1,), SavedSequence(1, 0, np.zeros(1 << 20, np.uint8), ()))\n"
        "try: write_slot(Path(sys.argv[1]), SavedSlot(one))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    before = path.read_bytes()
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=240, check=True
    )
    assert said.stdout == "UadError Unable to save slot: slot.bin: File too large\n"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file(step: str, path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; import numpy as np\n"
        "from uad.llama.memory import SavedSequence; from uad.runtime.slots.file import *\n"
        f"os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "one = SavedState({}, (1,), SavedSequence(1, 0, np.zeros(1 << 20, np.uint8), ()))\n"
        "write_slot(Path(sys.argv[1]), SavedSlot(one))\n"
    )
    before = path.read_bytes()
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=240)
    assert ended.returncode == -9
    assert path.read_bytes() == before
    assert same(read_slot(path, FACTS, [DRAFT_FACTS])[0].target, SLOT.target)
