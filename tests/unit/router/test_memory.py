"""How much memory is left beside loaded processes, by what the system says."""

import math

import pytest

from uad.router.memory import memory_left


@pytest.mark.parametrize(("available", "mapped", "left"), [(10, 6, 4), (10, 0, 10), (10, 12, -2), (None, 0, math.inf)])
def test_what_others_have_mapped_is_theirs(tmp_path, monkeypatch, available, mapped, left):
    monkeypatch.setattr("uad.base.common.available._own", lambda root: iter(()))
    if available is None:
        monkeypatch.setattr("uad.router.memory.available", lambda root: ())
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemAvailable: {(available or 0) * 1024} kB\n")
    (tmp_path / "proc/7/status").write_text(f"Name: x\nRssFile: {mapped * 1024} kB\n")
    assert memory_left([7], tmp_path) == left * (1 << 20)


def test_a_process_that_is_gone_has_mapped_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("uad.base.common.available._own", lambda root: iter(()))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 1024 kB\n")
    assert memory_left([8], tmp_path) == 1 << 20
