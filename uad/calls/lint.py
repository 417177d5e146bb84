"""What is wrong with files of formats of calls, all of them at once, without any model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from uad.calls.events import Arguments, CallStart, Content
from uad.calls.files import CallFile, load_calls
from uad.calls.format import AnswerFormat
from uad.calls.parser import AnswerParser
from uad.calls.tools import Calls, Tool
from uad.errors import MappingError

_TOOL = Tool("look_up", {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}})


def lint_calls(directories: Sequence[Path]) -> tuple[int, tuple[str, ...]]:
    """How many files there are, and the errors. Each begins with the file."""
    paths = [path for directory in directories for path in sorted((directory / "calls").glob("*.yaml"))]
    return len(paths), tuple(error for path in paths for error in _errors(path))


def _errors(path: Path) -> Iterator[str]:
    try:
        file = load_calls(path)
    except MappingError as error:
        yield str(error)
        return
    if not is_read(file):
        yield (
            f'{path}:1:1: the example does not call look_up with {{"word": "tea", "n": 3}} in this format, and '
            "nothing else"
        )


def is_read(file: CallFile) -> bool:
    """Whether a format reads its own example."""
    parser = AnswerParser(AnswerFormat((file.format,)), Calls((_TOOL,)))
    events = parser.feed(file.format.example) + parser.finish()
    calls = [(event.name, event.id) for event in events if isinstance(event, CallStart)]
    text = "".join(event.text for event in events if isinstance(event, Arguments))
    said = "".join(event.text for event in events if isinstance(event, Content))
    return calls == [("look_up", file.example_id)] and not said.strip() and _is_json(text)


def _is_json(text: str) -> bool:
    try:
        return bool(json.loads(text) == {"word": "tea", "n": 3})
    except ValueError:
        return False
