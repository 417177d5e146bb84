"""Real models for tests: those that `make models` fetched. Tests that need a missing one skip, and the summary counts
them.
"""

from __future__ import annotations

from pathlib import Path

import fetch_models
import pytest


def real_model(name: str) -> Path:
    """The file of a model by its name in scripts/fetch_models.py; skips the test where it is not there."""
    assert name in fetch_models.FETCHED or name in fetch_models.WRITTEN, name
    path = fetch_models.path_of(name)
    if not path.is_file():
        pytest.skip(f"{name} is not in {fetch_models.folder()}: make models")
    return path
