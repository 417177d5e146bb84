"""What the text of a call is put together from: exact texts, patterns, JSON values, choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from uad.calls.tools import Schema


@dataclass(frozen=True)
class Literal:
    """Exactly this text."""

    text: str


@dataclass(frozen=True)
class Pattern:
    """A text that a regular expression matches."""

    regex: str


@dataclass(frozen=True)
class Json:
    """A JSON value that a schema allows."""

    schema: Schema


@dataclass(frozen=True)
class FreeText:
    """Any text up to `until`, which follows it. It does not contain `without`, with which `until` ends."""

    until: str
    without: str


@dataclass(frozen=True)
class OneOf:
    """One of these texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Maybe:
    """These parts, or nothing."""

    parts: tuple[Part, ...]


Part: TypeAlias = Literal | Pattern | Json | FreeText | OneOf | Maybe
