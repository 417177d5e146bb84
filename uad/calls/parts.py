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
    """Any text up to `until`, which follows it. It does not contain `without`, with which `until` ends. must: regular
    expressions that all match the whole text; never: those of which none does.
    """

    until: str
    without: str
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneOf:
    """One of these texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Maybe:
    """These parts, or nothing."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class AnyRow:
    """One of these rows of parts."""

    rows: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True)
class NewName:
    """A name that is none of these."""

    taken: tuple[str, ...]


@dataclass(frozen=True)
class Argument:
    """One argument as it is written, with its name. One that is not required may be missing."""

    parts: tuple[Part, ...]
    is_required: bool


@dataclass(frozen=True)
class ArgumentList:
    """Arguments in this order, with `between` between those that are there, and then any number of `more`."""

    listed: tuple[Argument, ...]
    between: str = ""
    more: tuple[Part, ...] = ()


Part: TypeAlias = Literal | Pattern | Json | FreeText | OneOf | Maybe | AnyRow | NewName | ArgumentList
