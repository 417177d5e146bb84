"""Formats of calls as data: one YAML file each in `calls/` of a directory of mappings, read strictly."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from uad.calls.format import BODIES, CallFormat, Keys, Tags
from uad.common.yaml_fields import Fields, read_yaml

_TEXTS = ("begin", "finish", "start", "end", "name_end", "head", "plain")
_KEYS = ("calls", "title", "body", *_TEXTS, "prefixes", "hints", "lazy", "keys", "tags", "channels", "example")
_TAGS = ("key", "key_end", "text_ends", "json_ends", "value", "value_end", "lines", "cdata", "nested")


@dataclass(frozen=True)
class CallFile:
    """A format, the id that its example gives, and where it is."""

    format: CallFormat
    example_id: str
    path: Path


def load_calls(path: Path) -> CallFile:
    """One file. Raises MappingError that names file, line, column and what was expected."""
    fields = Fields(path, read_yaml(path), _KEYS)
    name = fields.text("calls")
    if name != path.stem:
        raise fields.fail("calls", f"the format is called '{name}' but the file '{path.name}'; they must agree")
    example = fields.child("example", ("text", "id"))
    format_ = CallFormat(
        name=name,
        title=fields.text("title"),
        body=fields.choice("body", BODIES, "json"),
        prefixes=fields.texts("prefixes"),
        hints=fields.texts("hints"),
        lazy=fields.texts("lazy"),
        keys=_keys(fields),
        tags=_tags(fields) if fields.has("tags") else None,
        channels=fields.flag("channels"),
        example=example.text("text"),
        **{key: fields.text(key, "") for key in _TEXTS},
    )
    _check(fields, format_)
    return CallFile(format_, example.text("id", ""), path)


def load_all_calls(directories: Iterable[Path]) -> dict[str, CallFile]:
    """All files of the directories by name; an earlier directory wins over a later one."""
    found: dict[str, CallFile] = {}
    for directory in directories:
        for path in sorted((directory / "calls").glob("*.yaml")):
            if path.stem not in found:
                found[path.stem] = load_calls(path)
    return found


def _keys(fields: Fields) -> Keys:
    if not fields.has("keys"):
        return Keys()
    keys = fields.child("keys", ("name", "arguments", "id"))
    return Keys(keys.text("name", "name"), keys.text("arguments", "arguments"), keys.text("id", "id"))


def _tags(fields: Fields) -> Tags:
    tags = fields.child("tags", _TAGS)
    return Tags(
        key=tags.text("key"),
        key_end=tags.text("key_end", ""),
        text_ends=tags.texts("text_ends"),
        json_ends=tags.texts("json_ends"),
        value=tags.text("value", ""),
        value_end=tags.text("value_end"),
        lines=tags.flag("lines"),
        cdata=tags.flag("cdata"),
        nested=tags.text("nested", ""),
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
