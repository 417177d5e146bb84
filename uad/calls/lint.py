"""What is wrong with files of formats of calls, all of them at once, without any model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from uad.calls.files import load_calls
from uad.calls.recognise import read_call
from uad.common.yaml_fields import files_of
from uad.errors import MappingError


def lint_calls(directories: Sequence[Path]) -> tuple[int, tuple[str, ...]]:
    """How many files there are, and the errors. Each begins with the file."""
    paths = list(files_of(directories, "calls"))
    return len(paths), tuple(error for path in paths for error in _errors(path))


def _errors(path: Path) -> Iterator[str]:
    try:
        file = load_calls(path)
    except MappingError as error:
        yield str(error)
        return
    read = read_call(file.format.example, file.format, "look_up", {"word": "tea", "n": 3})
    if read is None or read.id != file.example_id or read.beside.strip():
        yield (
            f'{path}:1:1: the example does not call look_up with {{"word": "tea", "n": 3}} in this format, and '
            "nothing else"
        )
