"""Pieces of a call's arguments, read from the text as it comes: members, JSON values, Gemma's braces, tags.

All wait for more text where it ends, and raise MalformedError for what is no such piece.
"""

from __future__ import annotations

import json

from uad.calls.events import Call
from uad.calls.format import QUOTE, Tags
from uad.calls.source import FormatSource, MalformedError, Wait, words
from uad.calls.values import escaped, of_gemma, of_json, of_tags, of_text, quoted

MAX_HEAD = 256
"""Characters of a call's name with what belongs to it."""
MAX_BUFFERED = 1 << 20
"""Characters of arguments that are kept back because they are not written as JSON, or before the name is known."""
_CDATA = "<![CDATA["


def next_member(source: FormatSource) -> Wait[bool]:
    """Whether the object goes on; its end is passed over."""
    yield from source.blank()
    word = yield from source.take(words(",", "}"))
    yield from source.blank()
    return word != "}"


def raw(source: FormatSource) -> Wait[str]:
    """The text of one JSON value."""
    pieces: list[str] = []
    yield from source.json(pieces.append)
    return "".join(pieces)


def expect(source: FormatSource, text: str) -> Wait[None]:
    """Pass over this text, and blanks before it; raises MalformedError where it is missing."""
    yield from source.blank()
    if not (yield from source.take(words(text))):
        raise MalformedError(f"{text} is missing")


def gemma(source: FormatSource, call: Call) -> Wait[None]:
    """Gemma's arguments behind their first brace. What they are is known where they end."""
    marks = words(QUOTE, "{", "}")
    pieces, depth, in_string = ["{"], 1, False
    while depth:
        text, word = yield from source.collect(marks, MAX_BUFFERED)
        pieces += [text, word]
        if word == QUOTE:
            in_string = not in_string
        elif not in_string:
            depth += 1 if word == "{" else -1
    try:
        call.add(of_gemma("".join(pieces)))
    except ValueError:
        call.add(quoted("".join(pieces)))


def tagged(source: FormatSource, call: Call, tags: Tags, closer: str) -> Wait[None]:
    """Arguments in tags, up to what is none. The end of the call may begin as a tag does."""
    call.add("{")
    n, next_words, ends = 0, words(tags.key, closer), words(*tags.key_ends)
    while True:
        yield from source.blank()
        word = yield from source.take(next_words)
        if word != tags.key:
            source.at -= len(word)
            break
        key, end = yield from source.collect(ends, MAX_HEAD)
        call.add(f"{', ' if n else ''}{quoted(key.strip())}: ")
        yield from _value(source, call, tags, key.strip(), end)
        n += 1
    call.add("}")


def _value(source: FormatSource, call: Call, tags: Tags, key: str, end: str) -> Wait[None]:
    if tags.value:
        yield from expect(source, tags.value)
    types = call.tool.types_of(key)
    close = tags.value_end.replace("{key}", key)
    ends = words(close, f"\n{close}" if tags.lines else "")
    if tags.lines:
        yield from source.take(words("\n"))
    if tags.cdata and (yield from source.take(words(_CDATA))):
        ends = words(f"]]>{close}")
    if end in tags.text_ends or (end not in tags.json_ends and types == {"string"}):
        call.add('"')
        if not (yield from source.until(ends, lambda text: call.add(escaped(text)))):
            raise MalformedError("the text ends")
        call.add('"')
        return
    text, _ = yield from source.collect(ends, MAX_BUFFERED)
    if tags.nested and (tags.nested in text or types & {"array", "object"}):
        call.add(of_tags(text, tags.nested, call.tool.schema_of(key), call.tool.parameters))
    else:
        call.add(of_json(text) if end in tags.json_ends else of_text(text, types))


def json_text(raw: str, other: str = "") -> str:
    """What a JSON string says; `other` for what is none."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise MalformedError("not JSON") from None
    return value if isinstance(value, str) else other
