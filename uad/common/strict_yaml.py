"""Composing YAML so that every complaint names file, line and column. Knows no file and no key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from uad.errors import UadError

FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
T = TypeVar("T")


def place(path: Path, mark: Any) -> str:
    """path:line:column, counted from one; PyYAML has two classes of marks with the same attributes."""
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def explained(path: Path, error: type[UadError], work: Callable[[Any], T], fast: bool = False) -> T:
    """What `work` makes with a loader. Raises `error`, which says where the YAML is wrong.

    fast: the loader written in C; where it fails `work` is done again with the one in Python, whose errors say more.
    """
    if fast:
        try:
            return work(FAST)
        except yaml.YAMLError:
            pass
    try:
        return work(yaml.SafeLoader)
    except yaml.MarkedYAMLError as failure:
        context = f" ({failure.context})" if failure.context and failure.problem else ""
        where = place(path, failure.problem_mark or failure.context_mark)
        raise error(f"{where}: not valid YAML: {failure.problem or failure.context}{context}") from failure
    except (yaml.YAMLError, RecursionError) as failure:
        raise error(f"{path}: not valid YAML: {' '.join(str(failure).split())}") from failure
