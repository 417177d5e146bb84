"""`--cache-disk` on the command line: a directory that cannot be made, one that is made, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.models import TARGET
from kit.process import Server, uad

pytestmark = pytest.mark.model


def test_a_directory_that_cannot_be_made_ends_the_start_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = uad("serve", "--target", str(TARGET), "--cache-disk", str(tmp_path / "file" / "texts"))
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "--cache-disk" in line]
    assert "the directory" in line
    assert "cannot be made (Not a directory)" in line


def test_a_directory_is_made_and_named_at_start(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "texts"
    args = ["--target", str(TARGET), "-c", "512", "-t", "1", "--cache-disk", str(folder), "--cache-disk-size", "64"]
    with Server(tmp_path / "log", args) as server:
        assert folder.is_dir()
        assert f"prompt cache on disk: {folder}, 0 texts of this model" in server.log.read_text()
        assert "0 bytes of 64 MiB" in server.log.read_text()
