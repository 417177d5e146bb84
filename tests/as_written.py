"""uad without its compiled modules, in another process: for tests that compare, or that count what only the interpreter sees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import uad

ROOT = Path(uad.__file__).parent
MADE = ("*.so", "*.pyd", "*.sha256")


def copy_to(folder: Path) -> Path:
    """The package as it is written, ready for `run`."""
    shutil.copytree(ROOT, folder / "uad", ignore=shutil.ignore_patterns(*MADE, "__pycache__"))
    return folder


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python code with the package that lies in this folder, and with the modules of the tests and of the lab."""
    tests = Path(__file__).parent
    path = os.pathsep.join(map(str, (folder, tests, tests.parent / "lab")))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
