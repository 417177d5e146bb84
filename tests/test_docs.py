"""The documentation keeps up with the code."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from uad.cli import COMMANDS, cost_plot, main
from uad.cli.serve import curl
from uad.config import ServerConfig
from uad.errors import ConfigError

ROOT = Path(__file__).parent.parent
PARTS = [["bench", "requests"], *(["mapping", part] for part in ("show", "derive", "check", "lint"))]


def draw_speed() -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("draw_speed", ROOT / "lab" / "draw_speed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(ratio: float, share: float | None, same: bool = True) -> dict[str, object]:
    return {"ratio": ratio, "oracle_ratio": None, "oracle_share": share, "same_text": same}


def test_every_module_has_its_line() -> None:
    script = ROOT / "scripts" / "modules.py"
    result = subprocess.run([sys.executable, script, "--check"], check=False)
    assert result.returncode == 0, "docs/modules.md is out of date: run python scripts/modules.py"


def test_the_readme_shows_the_curl_line_that_make_serve_prints() -> None:
    assert curl("http://127.0.0.1:8080", ServerConfig(), can_chat=True) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_only_files_that_exist() -> None:
    for name in re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS), *PARTS], ids=" ".join)
def test_help_names_no_file_that_a_wheel_lacks(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # argparse ends like that
        assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: uad" in text
    assert not re.findall(r"\b(?:samples|docs|scripts|tests)/\S+", text)


def test_a_missing_plotting_library_is_said_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'uad\[lab\]'"):
        cost_plot.pyplot()


def test_remedies_name_extras_and_versions_never_a_bare_package() -> None:
    for path in (ROOT / "uad").rglob("*.py"):
        assert not re.findall(r"pip install \w+", path.read_text(encoding="utf-8")), path


def test_a_cell_is_the_median_of_all_its_runs() -> None:
    draw = draw_speed()
    assert draw.combined([run(0.97, 0.8), run(1.01, None), run(0.98, 0.9, same=False)]) == (
        0.98,
        None,
        pytest.approx(0.85),
        False,
        (0.97, 1.01, 0.98),
    )


def test_no_run_is_left_out_of_the_table() -> None:
    draw = draw_speed()
    cells = draw.read(ROOT / "lab" / "speed.jsonl")
    n_runs = (ROOT / "lab" / "speed.jsonl").read_text(encoding="utf-8").count('"policy": "auto"')
    assert sum(len(cell.runs) for cell in cells.values()) == n_runs
    assert draw.table(cells) in (ROOT / "lab" / "toys.md").read_text(encoding="utf-8"), "run python lab/draw_speed.py, copy its table"
