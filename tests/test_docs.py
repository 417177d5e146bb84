"""The documentation keeps up with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_module_has_its_line() -> None:
    script = ROOT / "scripts" / "modules.py"
    result = subprocess.run([sys.executable, script, "--check"], check=False)
    assert result.returncode == 0, "docs/modules.md is out of date: run python scripts/modules.py"


def test_the_readme_names_only_files_that_exist() -> None:
    import re

    for name in re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / name).exists(), name
