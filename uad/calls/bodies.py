"""Pieces of a call, read from the text as it comes: members of its object, arguments that are JSON or in tags.

All wait for more text where it ends, and raise MalformedError for what is no such piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from uad.calls.events import Call
from uad.calls.format import CallFormat, Tags
from uad.calls.notation import JSON, ValueReader, read_whole
from uad.calls.scalars import escaped, quoted
from uad.calls.source import EndedError, Following, FormatSource, MalformedError, Wait, Words, bounded, words
from uad.calls.values import of_json, of_tags, of_text

MAX_HEAD = 256
"""Characters of a call's name with what belongs to it."""
MAX_BUFFERED = 1 << 20
"""Characters of a value that are kept back because its text is not yet JSON."""
_CDATA = "<![CDATA["
_INDENTS = ("", " ", "  ", "    ", "\t")
"""What may stand before a closing tag on a line of its own."""
_CLOSERS = words("}", "]", ")")


def markers_of(format_: CallFormat) -> Words:
    """A call in which something is missing ends before these: what ends calls, or else what begins the next one."""
    ends, starts = (format_.end, format_.finish), (format_.start, format_.begin)
    return words(*(text.strip() for text in (ends if any(ends) else starts)))


def next_member(source: FormatSource, stops: Words, is_first: bool) -> Wait[bool]:
    """Whether the object goes on; its end is passed over. That may be missing, and a comma may stand before it."""
    yield from source.blanks()
    comma = "" if is_first else (yield from source.take(words(",")))
    yield from source.blanks()
    if (yield from source.take(words("}"))):
        return False
    if not (yield from source.peek()):
        if source.is_cut:
            raise EndedError
        return False
    if (yield from source.stands(words(*stops.texts, "]"))):
        return False
    if not (comma or is_first):
        raise MalformedError("a comma is missing")
    return True


def raw(source: FormatSource, stops: Words) -> Wait[str]:
    """One value as JSON."""
    pieces: list[str] = []
    yield from source.blanks()
    yield from ValueReader(source, pieces.append, JSON, stops).value()
    return "".join(pieces)


def arguments_text(source: FormatSource, stops: Words) -> Wait[str]:
    """Arguments that are not passed on as they come: an object, one in a string, or what stands for none."""
    yield from source.blanks()
    if (yield from source.stands(stops)) or not ((yield from source.peek()) or source.is_cut):
        return "{}"
    value = yield from raw(source, stops)
    text = (string_of(value) if value.startswith('"') else value).strip()
    if text in ("", "null") or not text.strip("[] \n"):
        return "{}"
    if not text.startswith("{"):
        raise MalformedError("arguments must be an object")
    try:
        return read_whole(text, JSON, repairs=True)
    except ValueError as error:
        raise MalformedError(str(error)) from None


def string_of(value: str) -> str:
    """What a JSON string says. Raises MalformedError for another value."""
    found = json.loads(value)
    if not isinstance(found, str):
        raise MalformedError("not a string")
    return found


def surplus(source: FormatSource, stops: Words) -> Wait[None]:
    """Pass over closing brackets that nothing opened, where one of these texts stands after them, or nothing."""
    source.set_mark()
    yield from source.blanks()
    while (yield from source.take(_CLOSERS)):
        yield from source.blanks()
        if (yield from source.stands(stops)) or not (yield from source.peek()):
            source.clear_mark()
            return
    source.rewind()
    source.clear_mark()


@lru_cache(maxsize=64)
def _value_ends(format_: CallFormat, tags: Tags, names: tuple[str, ...]) -> Following:
    """What may follow an argument in tags: another one, the end of the call or of all, the next call."""
    key, ends = re.escape(tags.key), "|".join(map(re.escape, tags.key_ends))
    stops = words(format_.end, format_.finish, *(f"{format_.start}{name}" for name in names))
    return Following(
        rf"{key}[^<>\n/]{{1,{MAX_HEAD}}}?(?:{ends})",
        rf"{key}[^\n]{{0,{MAX_HEAD}}}",
        stops,
        words(tags.key),
        commas=False,
    )


class TaggedArguments:
    """Arguments in tags. names: of the tools of the request."""

    def __init__(self, source: FormatSource, call: Call, format_: CallFormat, tags: Tags, names: Iterable[str]) -> None:
        self._source = source
        self._call = call
        self._tags = tags
        self._closer = format_.end
        self._ends = _value_ends(format_, tags, tuple(names))
        self._lead = ""

    def read(self) -> Wait[None]:
        """Emit all of them, up to what is none."""
        self._call.add("{")
        try:
            while (yield from self._argument()):
                self._lead = ", "
        except EndedError:
            self._call.add("" if self._source.is_cut else "}")
            raise
        except MalformedError:
            self._call.add("}")
            raise
        self._call.add("}")

    def _argument(self) -> Wait[bool]:
        """One argument, if there is another. The end of the call may begin as a tag does."""
        source, tags = self._source, self._tags
        source.set_mark()
        yield from source.blanks()
        word = yield from source.take(words(tags.key, self._closer))
        if word != tags.key:
            source.at -= len(word)
            source.clear_mark()
            return False
        name, end = yield from source.collect(words(*tags.key_ends), MAX_HEAD)
        if tags.value:
            yield from source.expect(tags.value)
        yield from self._value(name.strip(), end)
        return True

    def _value(self, name: str, end: str) -> Wait[None]:
        source, tags, tool = self._source, self._tags, self._call.tool
        types = tool.types_of(name)
        marks, n_skipped = yield from self._marks(tags.value_end.replace("{key}", name))
        lead = f"{self._lead}{quoted(name)}: "
        if end in tags.text_ends or (end not in tags.json_ends and types == {"string"}):
            self._told(f'{lead}"')
            if not (yield from source.value(marks, self._ends, _behind(n_skipped, self._call.add))) and source.is_cut:
                raise EndedError
            self._call.add('"')
            return
        pieces: list[str] = []
        self._told("")
        try:
            is_whole = yield from source.value(marks, self._ends, bounded(pieces, MAX_BUFFERED))
        except MalformedError:
            self._call.add(lead + quoted("".join(pieces)[n_skipped:]))
            raise
        text = "".join(pieces)[n_skipped:]
        if not is_whole and source.is_cut:
            self._call.add(f'{lead}"{escaped(text)}')
            raise EndedError
        if tags.nested and (tags.nested in text or types & {"array", "object"}):
            self._call.add(lead + of_tags(text, tags.nested, tool.schema_of(name), tool.parameters))
        else:
            self._call.add(lead + (of_json(text) if end in tags.json_ends else of_text(text, types)))

    def _marks(self, close: str) -> Wait[tuple[Words, int]]:
        """The texts that may end a value, and how many characters before it are not its own. A value that begins on a
        line of its own ends before such a line.
        """
        source, tags = self._source, self._tags
        if tags.cdata and (yield from source.take(words(_CDATA))):
            return words(f"]]>{close}"), 0
        if not tags.lines:
            return words(close), 0
        lines = [f"\n{indent}{close}" for indent in _INDENTS]
        return (words(*lines), 1) if (yield from source.stands(words("\n"))) else (words(close, *lines), 0)

    def _told(self, text: str) -> None:
        self._source.clear_mark()
        self._call.add(text)


def _behind(n_skipped: int, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Emits pieces as they stand in JSON, without the first characters of the first."""

    def add(text: str) -> None:
        nonlocal n_skipped
        tell(escaped(text[n_skipped:]))
        n_skipped = 0

    return add
