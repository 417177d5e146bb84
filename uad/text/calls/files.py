"""Formats of calls as data: one YAML file each in `calls/` of a directory of mappings, read strictly, and what is wrong
with them, without any model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.yaml_fields import Fields, field_names, files_of, load_all, read_yaml
from uad.base.errors import MappingError
from uad.text.calls.format import BODIES, CallFormat, Keys, Tags
from uad.text.calls.recognise import read_call

_KEYS = ("calls", *field_names(CallFormat)[1:])
"""A file has the fields of a format; its name is the value of `calls`."""


@dataclass(frozen=True)
class CallFile:
    """A format, the id that its example gives, and where it is."""

    format: CallFormat
    example_id: str
    path: Path


def load_calls(path: Path) -> CallFile:
    """One file. Raises MappingError that names file, line, column and what was expected."""
    fields = Fields(path, read_yaml(path), _KEYS)
    example = fields.child("example", ("text", "id"))
    format_ = fields.record(
        CallFormat,
        name=fields.name("calls", "format"),
        body=fields.choice("body", BODIES, "json"),
        keys=fields.child("keys", field_names(Keys)).record(Keys) if fields.has("keys") else Keys(),
        tags=fields.child("tags", field_names(Tags)).record(Tags) if fields.has("tags") else None,
        example=example.text("text"),
    )
    _check(fields, format_)
    return CallFile(format_, example.text("id", ""), path)


def load_all_calls(directories: Iterable[Path]) -> dict[str, CallFile]:
    """All files of the directories by name; an earlier directory wins over a later one."""
    return load_all(directories, "calls", load_calls)


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


def _check(fields: Fields, format_: CallFormat) -> None:
    """Refuse what no parser could follow."""
    if (format_.tags is not None) != (format_.body == "tagged"):
        raise fields.fail("tags", "'tags' belong to the body 'tagged', and to no other")
    if format_.tags is not None and not format_.tags.key_ends:
        raise fields.fail("tags", "nothing ends an argument's name; give 'key_end', 'text_ends' or 'json_ends'")
    if format_.body == "named" and not (format_.start and format_.name_end) and not format_.channels:
        raise fields.fail("body", "the body 'named' needs 'start' and 'name_end'")
    if format_.is_bare and format_.body != "json":
        raise fields.fail("body", "a format without 'begin' and 'start' must have the body 'json'")
    if format_.head and not _has_name(format_.head):
        raise fields.fail("head", "'head' must be a regular expression with a group 'name'")


def _has_name(pattern: str) -> bool:
    try:
        return "name" in re.compile(pattern).groupindex
    except re.error:
        return False
