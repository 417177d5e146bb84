"""matplotlib without a display, and figures written to the file of --plot. Knows nothing of what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uad.errors import ConfigError


def pyplot() -> Any:
    """matplotlib.pyplot, imported now. Raises ConfigError where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write the figure, in the format that the name says, and close it. Raises ConfigError where it cannot be written."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {path}: cannot be written ({error})") from None
    finally:
        pyplot().close(figure)
