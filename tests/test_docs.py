"""The documentation keeps up with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from uad.cli.serve import curl
from uad.config import ServerConfig

ROOT = Path(__file__).parent.parent


def test_every_module_has_its_line() -> None:
    script = ROOT / "scripts" / "modules.py"
    result = subprocess.run([sys.executable, script, "--check"], check=False)
    assert result.returncode == 0, "docs/modules.md is out of date: run python scripts/modules.py"


def test_the_readme_shows_the_curl_line_that_make_serve_prints() -> None:
    assert curl("http://127.0.0.1:8080", ServerConfig(), can_chat=True) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_only_files_that_exist() -> None:
    import re

    for name in re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / name).exists(), name
