"""What `uad kernels` measures: passes of real graphs in uad's kernels and in llama.cpp's own, and reads of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from uad.llama.kernels import speed, use
from uad.llama.kernels.graphs import CpuBackend
from uad.tools.cli import kernels, main

STARTED = use.started()  # before a model without them is loaded: llama.cpp reads its list of buffers once


def cache(root: Path, cpu: int, index: int, level: str, size: str, cpus: str) -> None:
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in {"level": level, "size": size, "shared_cpu_list": cpus}.items():
        (folder / name).write_text(f"{text}\n")


def test_the_last_cache_is_all_of_the_highest_level(tmp_path: Path) -> None:
    for cpu in range(4):
        cache(tmp_path, cpu, 0, "1", "32K", str(cpu))
        cache(tmp_path, cpu, 3, "3", "16384K", "0-1" if cpu < 2 else "2-3")
    assert speed.last_cache(tmp_path) == 32 << 20


def test_a_cache_that_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    assert speed.last_cache(tmp_path) == 32 << 20, "where there is none, a usual one"
    cache(tmp_path, 0, 2, "2", "1M", "0")
    cache(tmp_path, 0, 3, "3", "?", "0")
    assert speed.last_cache(tmp_path) == 1 << 20


def test_a_read_of_memory_reads_all_of_it() -> None:
    with speed.MemoryRead(1001, 3) as read:
        assert read.n_bytes == 1004
        assert read.run() > 0


def test_llama_cpp_has_weights_in_the_first_buffer_that_takes_them() -> None:
    with CpuBackend() as backend:
        assert speed.place(backend, "f32", (8, 64)) == speed.PLAIN
        names = {speed.place(backend, name, (64, 256)) for name in ("q4_0", "q8_0", "bf16")}
        assert names <= set(speed.places(backend))


@pytest.mark.model
def test_a_small_type_is_measured_in_both_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "q8_0" not in STARTED.types:
        pytest.skip(STARTED.note())
    monkeypatch.setattr(kernels, "_SECONDS", 0.0)
    monkeypatch.setattr(kernels, "_LEAST_BYTES", 0)
    monkeypatch.setattr(speed, "last_cache", lambda: 1 << 20)
    before = use.counts()["products"]
    assert main(["kernels", "--types", "q8_0", "--size", "256x512", "-t", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["rows"], data["columns"], data["threads"]) == (STARTED.kind, 256, 512, 2)
    (only,) = data["types"]
    n = -(-(4 << 20) // (256 * 512 // 32 * 34))
    assert [(one["n"], one["matrices"]) for one in only["passes"]] == [(1, n), (8, n), (512, 1)]
    rates = [one[side][name] for one in only["passes"] for side in ("uad", "llama_cpp") for name in one[side]]
    assert all(rate > 0 for rate in (*rates, data["memory_gb_per_s"]))
    assert use.counts()["products"] - before == 6 * (n + n + 1), "five rounds and a first pass that does not count"


@pytest.mark.model
@pytest.mark.parametrize(
    ("size", "part"),
    [("64x100", "q8_0 has a multiple of 32 columns"), ("1x32", "choose a larger one"), ("1000000x1000000", "smaller")],
)
def test_a_size_that_cannot_be_measured_is_refused(size: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "q8_0" not in STARTED.types:
        pytest.skip(STARTED.note())
    size = size.replace("1000000", str(1 << 20))
    assert main(["kernels", "--types", "q8_0", "--size", size]) == 2
    err = capsys.readouterr().err
    assert f"--size {size}" in err
    assert part in err
