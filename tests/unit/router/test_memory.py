"""Whether a model fits beside others, by what the system says."""

import pytest
from kit.router_kit import FakeChild, folder_model

from uad.router.memory import has_memory
from uad.router.pool import RunningChild


@pytest.mark.parametrize(
    ("left", "mapped", "size", "fits"),
    [(10, 6, 5, False), (10, 6, 4, True), (10, 0, 10, True), (10, 0, 11, False), (None, 0, 99, True)],
)
def test_what_others_have_mapped_is_theirs(tmp_path, monkeypatch, left, mapped, size, fits):
    monkeypatch.setattr("uad.base.common.available._own", lambda root: iter(()))
    if left is None:
        monkeypatch.setattr("uad.router.memory.available", lambda root: ())
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemAvailable: {(left or 0) * 1024} kB\n")
    (tmp_path / "proc/7/status").write_text(f"Name: x\nRssFile: {mapped * 1024} kB\n")
    child = FakeChild("a", pid=7)
    model = folder_model("b", files=(("b", size << 20, 0, 0),))
    assert has_memory(model, [RunningChild(child, folder_model("a"))], tmp_path) is fits


def test_a_process_that_is_gone_has_mapped_nothing(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 1024 kB\n")
    gone = RunningChild(FakeChild("a", pid=8), folder_model("a"))
    assert has_memory(folder_model("b", files=(("b", 1 << 20, 0, 0),)), [gone], tmp_path)
