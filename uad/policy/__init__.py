"""How far to draft. Arithmetic only: no model, no clock, no input or output.

Its modules are plain Python that the installation compiles with mypyc where it can (`hatch_build.py`), so that a round's decisions cost
some 15 µs. Here it is only made sure that what was compiled is what the sources say.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from uad.errors import ConfigError

_HERE = Path(__file__).parent


def sources(folder: Path) -> list[Path]:
    """The modules of the room in a folder: all but this one."""
    return [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def digest(folder: Path) -> str:
    """SHA-256 of the sources."""
    return hashlib.sha256(b"\0".join([path.name.encode() + b"\0" + path.read_bytes() for path in sources(folder)])).hexdigest()


def is_compiled() -> bool:
    """Whether this process runs the compiled modules."""
    from uad.policy import round as module

    return not module.__file__.endswith(".py")


_made_from = _HERE / "sources.sha256"
if _made_from.exists() and _made_from.read_text(encoding="utf-8") != digest(_HERE):
    raise ConfigError(f"{_HERE} was changed since it was compiled: run make (or pip install) again, or delete *.so and *.sha256 in it")
