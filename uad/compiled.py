"""The rooms that the installation compiles with mypyc where it can (`hatch_build.py`): what a round does besides computing logits.

Their modules are plain Python. Here it is only made sure that what was compiled is what the sources say. Knows nothing of the rooms.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from uad.errors import ConfigError

ROOMS = ("drafters", "policy")
DIGEST = "sources.sha256"


def sources(folder: Path) -> list[Path]:
    """The modules of a room: all but its `__init__`."""
    return [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def digest(folder: Path) -> str:
    """SHA-256 of the sources."""
    return hashlib.sha256(b"\0".join([path.name.encode() + b"\0" + path.read_bytes() for path in sources(folder)])).hexdigest()


def is_compiled() -> bool:
    """Whether this installation has compiled modules."""
    specs = [importlib.util.find_spec(f"uad.{room}.protocol") for room in ROOMS]
    return all(spec is not None and spec.origin is not None and not spec.origin.endswith(".py") for spec in specs)


def check(folder: Path) -> None:
    """Raises ConfigError where the compiled modules of a room were made from other sources."""
    made_from = folder / DIGEST
    if made_from.exists() and made_from.read_text(encoding="utf-8") != digest(folder):
        raise ConfigError(f"{folder} was changed since it was compiled: run make (or pip install) again, or delete *.so and *.sha256 in it")
