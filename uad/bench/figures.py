"""matplotlib without a display, and figures written to files that flags name. Knows nothing of what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uad.errors import ConfigError

SUFFIXES = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise ConfigError for a --plot that could not be drawn later: before minutes of measuring, not after."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--plot {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    check_folder("--plot", path)
    pyplot()


def check_folder(flag: str, path: Path) -> None:
    """Raise ConfigError if there is no folder for this file."""
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{flag} {path}: there is no directory {path.parent}")


def pyplot() -> Any:
    """matplotlib.pyplot, imported now. Raises ConfigError where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'uad[bench]'") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path, flag: str = "--plot") -> None:
    """Write the figure, in the format that the name says, and close it. Raises ConfigError where it cannot be written."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{flag} {path}: cannot be written ({error})") from None
    finally:
        pyplot().close(figure)
