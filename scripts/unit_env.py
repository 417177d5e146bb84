"""Install what lint, types and unit tests need into this interpreter's environment: all dependencies of uad but
llama.cpp, and [dev].

uad itself is not installed: tests run from the checkout. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
LEFT_OUT = {"llama-cpp-python", "playwright", "uad-kernels"}


def requirements() -> list[str]:
    """Those of pyproject.toml, as pip takes them."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [one for one in dict.fromkeys(wanted) if re.split(r"[<>=!~\[; ]", one, maxsplit=1)[0] not in LEFT_OUT]


def main() -> int:
    """pip's exit code."""
    # most modules of the tools are never imported, and need not be compiled
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    return subprocess.run([*pip, *requirements()]).returncode


if __name__ == "__main__":
    sys.exit(main())
