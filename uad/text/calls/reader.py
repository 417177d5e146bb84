"""Calls after their marker, in every format: as JSON, as Python's, or a name before arguments in JSON or in tags.

All readers wait for more text where it ends, and raise MalformedError for what is no such piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from uad.text.calls.events import Call, Emitter
from uad.text.calls.format import CallFormat, Tags, head_of
from uad.text.calls.source import EndedError, Following, FormatSource, MalformedError, SoughtTexts, Wait, bounded, words
from uad.text.calls.strict import StrictReader
from uad.text.calls.values import (
    ARGUMENTS,
    GEMMA,
    JSON,
    KEY,
    PYTHON,
    ValueReader,
    escaped,
    of_json,
    of_tags,
    of_text,
    quoted,
    read_whole,
)
from uad.text.calls.whole import WholeReader

MAX_HEAD_CHARS = 256
"""Characters of a call's name with what belongs to it."""
MAX_BUFFERED_CHARS = 1 << 20
"""Characters of a value that are kept back because its text is not yet JSON."""
_CDATA = "<![CDATA["
_INDENTS = ("", " ", "  ", "    ", "\t")
"""Indents that may stand before a closing tag on a line of its own."""
_CLOSERS = words("}", "]", ")")
_DOUBLED = words("{{")
_ARGUMENTS = ("arguments", "parameters")
_ASIDE = ("id", "type", "index")
"""Members of a call that say nothing of it."""
_FIRST = Following(rf"\)|{KEY}\s*=", rf"(?:{KEY})?\s*", words(), words(), commas=False)
"""The text after the bracket of a call in Python: a name, or the other bracket."""


class CallReader:
    """Reads calls from the source, and emits them. doubled: JSON objects may have doubled braces. is_exact: whether all
    were written as their format has them.
    """

    def __init__(self, source: FormatSource, emitter: Emitter, doubled: bool = False) -> None:
        self.is_exact = True
        self._doubled = doubled
        self._source = source
        self._emitter = emitter
        self._begin = emitter.call

    def attempt(self, read: Wait[None], format_: CallFormat | None = None, back: int = 0) -> Wait[bool]:
        """Whether a call begins `back` characters before this place. One that has begun stays, however it ends; after
        it, one that has not is content. Where none has begun, that place is where reading goes on.
        """
        source = self._source
        source.set_mark(back)
        self._emitter.has_begun = False
        try:
            yield from read
        except MalformedError:
            if not self._emitter.has_begun:
                pass
            elif source.is_marked:
                source.rewind()
            elif format_ is not None:
                yield from source.blanks()
                yield from source.take(words(format_.end, format_.finish))
        if not self._emitter.has_begun:
            source.rewind()
        source.clear_mark()
        return self._emitter.has_begun

    def calls(self, format_: CallFormat, word: str) -> Wait[None]:
        """Calls after a marker, up to what ends them."""
        source = self._source
        inside = words(format_.start, format_.finish, format_.begin)
        if word == format_.start:
            yield from self.call(format_)
            if not format_.begin:
                return
        elif not format_.start:
            yield from self._bodies(format_)
            yield from source.blanks()
            yield from source.take(words(format_.finish))
            return
        while True:
            yield from source.blanks()
            word = yield from source.take(inside)
            if word == format_.start:
                if self._emitter.has_begun:
                    source.set_mark(len(word))
                yield from self.call(format_)
            elif word != format_.begin:
                return

    def bare(self, format_: CallFormat) -> Wait[None]:
        """Calls that no marker announces."""
        yield from self._source.blanks()
        yield from self._source.take(words(*format_.prefixes))
        yield from self._bodies(format_)

    def channel_call(self, name: str, ends: SoughtTexts) -> Wait[None]:
        """A call that is a message of its own, in harmony."""
        yield from self._json_arguments(name, "", ends)
        yield from surplus(self._source, ends)

    def call(self, format_: CallFormat) -> Wait[None]:
        """One call after its start, with its end. One that has begun may lack its end."""
        if format_.body in ("json", "list", "python"):
            yield from self._bodies(format_)
        else:
            yield from self._headed(format_)
            yield from surplus(self._source, markers_of(format_))
        yield from self._source.blanks()
        yield from self._source.take(words(format_.end))

    def _bodies(self, format_: CallFormat) -> Wait[None]:
        """JSON objects, one after the other or in a list; or Python's calls."""
        source, read = self._source, self._python if format_.body == "python" else self._object
        stops = markers_of(format_)
        yield from source.blanks()
        is_list = yield from source.take(words("["))
        if format_.body == "list" and not is_list:
            raise MalformedError("no list")
        self.is_exact &= bool(is_list) == (format_.body == "list") or format_.body == "python"
        while True:
            yield from read(format_)
            yield from surplus(source, words(*stops.texts, ",", ";", "]" if is_list else "", "{"))
            source.set_mark()
            yield from source.blanks()
            took = yield from source.take(words(",", ";"))
            yield from source.blanks()
            char = yield from source.peek()
            if char in ("", "]") or (yield from source.stands(stops)):
                break
            if not (char == "{" or (took and format_.body == "python")):
                source.rewind()
                break
            source.set_mark()
        source.clear_mark()
        if is_list:
            yield from source.blanks()
            yield from source.take(words("]"))

    def _python(self, format_: CallFormat) -> Wait[None]:
        """A call with named arguments."""
        name, _ = yield from self._source.collect(words("("), MAX_HEAD_CHARS)
        if not (yield from self._source.follows(_FIRST, 0)):
            raise MalformedError("not a call with named arguments")
        call = self._begin(name.strip(), "")
        yield from ValueReader(self._source, call.add, PYTHON, markers_of(format_)).members(ARGUMENTS)
        call.end()

    def _object(self, format_: CallFormat) -> Wait[None]:
        """A call that is a JSON object. Arguments in front of the name are kept back. Members that mean nothing are the
        arguments where there are no others, else they are content.
        """
        # `{"name": "f", "arguments": {"a": 1}}` is emitted as it comes, since the name is known before. Of
        # `{"arguments": {"a": 1}, "name": "f"}` the arguments are kept until the name is there. `{"name": "f", "a": 1}`
        # has none: what means nothing else, `{"a": 1}`, is taken for them.
        source, stops = self._source, markers_of(format_)
        yield from source.blanks()
        if self._doubled and (yield from source.stands(_DOUBLED)):
            yield from WholeReader(source, self._emitter, format_.keys, doubled=True, judges=False).doubled()
            return
        yield from source.expect("{")
        call: Call | None = None
        name, id_, kept, n, is_doubled = "", "", "", 0, False
        others: list[str] = []
        while (yield from self._goes_on(call, stops, n)):
            n += 1
            quoted_key = yield from ValueReader(source, lambda text: None, JSON, stops).key()
            key = string_of(quoted_key)
            yield from source.expect(":")
            if not format_.keys.name:
                name, key = key, format_.keys.arguments
            yield from source.blanks()
            if key in (format_.keys.arguments, *_ARGUMENTS) and not (kept or call):
                if self._doubled and (yield from source.stands(_DOUBLED)):
                    kept, is_doubled = (yield from StrictReader(source, doubled=True).text({}, {})), True
                elif name and (yield from source.peek()) == "{":
                    call = self._begin(name, id_)
                    yield from self._told_json(call, stops)
                else:
                    kept = yield from arguments_text(source, stops)
                continue
            value = yield from raw(source, stops)
            if key == format_.keys.name:
                name = string_of(value)
            elif key == format_.keys.id:
                id_ = string_of(value) if value.startswith('"') else value
            elif key not in _ASIDE:
                others.append(f"{quoted_key}: {value}")
        rest = f"{{{', '.join(others)}}}"
        if call is None:
            if is_doubled and self._emitter.is_answered(name, kept):
                raise MalformedError("its result has just been given")
            call = self._begin(name, id_)
            call.add(kept or rest)
            rest = rest if kept else "{}"
        call.end()
        self._emitter.content.add(rest if len(rest) > len("{}") else "")

    def _goes_on(self, call: Call | None, stops: SoughtTexts, n: int) -> Wait[bool]:
        """Whether a call's object has another member. Text that is no member is content, where the call has begun."""
        if call is not None:
            self._source.set_mark()
        goes_on = yield from next_member(self._source, stops, is_first=not n)
        if not goes_on and call is not None:
            self._source.clear_mark()
        return goes_on

    def _told_json(self, call: Call, stops: SoughtTexts) -> Wait[None]:
        """Arguments as they come."""
        self._source.at += 1
        yield from ValueReader(self._source, call.add, JSON, stops).members(JSON.brackets["{"])

    def _headed(self, format_: CallFormat) -> Wait[None]:
        """A call whose name stands in front of its arguments."""
        source, stops = self._source, markers_of(format_)
        key = format_.tags.key if format_.tags else ""
        text, word = yield from source.collect(words(format_.name_end, key, format_.end), MAX_HEAD_CHARS)
        if word != format_.name_end:
            source.at -= len(word)
        name, id_ = head_of(format_, text)
        if format_.body == "gemma":
            call = self._begin(name, id_)
            schema = call.tool.parameters
            yield from ValueReader(source, call.add, GEMMA, stops, schema, of_text).members(GEMMA.brackets["{"])
            call.end()
        elif format_.tags is None or (yield from self._brace()):
            self.is_exact &= format_.tags is None
            yield from self._json_arguments(name, id_, stops)
        else:
            call = self._begin(name, id_)
            yield from TaggedArguments(source, call, format_, format_.tags, self._emitter.tools).read()
            call.end()

    def _brace(self) -> Wait[bool]:
        """Whether the next letter is a brace."""
        yield from self._source.blanks()
        return (yield from self._source.peek()) == "{"

    def _json_arguments(self, name: str, id_: str, stops: SoughtTexts) -> Wait[None]:
        """A call by its name, with JSON as its arguments, or with nothing."""
        if (yield from self._brace()):
            call = self._begin(name, id_)
            yield from self._told_json(call, stops)
        else:
            text = yield from arguments_text(self._source, stops)
            call = self._begin(name, id_)
            call.add(text)
        call.end()


@lru_cache(maxsize=64)
def _value_ends(format_: CallFormat, tags: Tags, names: tuple[str, ...]) -> Following:
    """The text that may follow an argument in tags: another one, the end of the call or of all, the next call."""
    key, ends = re.escape(tags.key), "|".join(map(re.escape, tags.key_ends))
    stops = words(format_.end, format_.finish, *(f"{format_.start}{name}" for name in names))
    return Following(
        rf"{key}[^<>\n/]{{1,{MAX_HEAD_CHARS}}}?(?:{ends})",
        rf"{key}[^\n]{{0,{MAX_HEAD_CHARS}}}",
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
        """Emit all arguments, up to something that is not one."""
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
        name, end = yield from source.collect(words(*tags.key_ends), MAX_HEAD_CHARS)
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
            self._add(f'{lead}"')
            if (
                not (yield from source.value(marks, self._ends, _without_first(n_skipped, self._call.add)))
                and source.is_cut
            ):
                raise EndedError
            self._call.add('"')
            return
        pieces: list[str] = []
        self._add("")
        try:
            is_whole = yield from source.value(marks, self._ends, bounded(pieces, MAX_BUFFERED_CHARS))
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

    def _marks(self, close: str) -> Wait[tuple[SoughtTexts, int]]:
        """The texts that may end a value, and how many characters before it are not its own. A value that begins on a
        line of its own ends before such a line.
        """
        # `<parameter=code>\nx = 1\n</parameter>` says "x = 1": both line breaks are the format's. The value ends at
        # "\n</parameter>", so a "</parameter>" inside of a line of it does not end it.
        source, tags = self._source, self._tags
        if tags.cdata and (yield from source.take(words(_CDATA))):
            return words(f"]]>{close}"), 0
        if not tags.lines:
            return words(close), 0
        lines = [f"\n{indent}{close}" for indent in _INDENTS]
        return (words(*lines), 1) if (yield from source.stands(words("\n"))) else (words(close, *lines), 0)

    def _add(self, text: str) -> None:
        self._source.clear_mark()
        self._call.add(text)


def _without_first(n_skipped: int, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Emits pieces as they stand in JSON, without the first characters of the first."""

    def add(text: str) -> None:
        nonlocal n_skipped
        tell(escaped(text[n_skipped:]))
        n_skipped = 0

    return add


def markers_of(format_: CallFormat) -> SoughtTexts:
    """A call in which something is missing ends before these: what ends calls, or else what begins the next one."""
    ends, starts = (format_.end, format_.finish), (format_.start, format_.begin)
    return words(*(text.strip() for text in (ends if any(ends) else starts)))


def next_member(source: FormatSource, stops: SoughtTexts, is_first: bool) -> Wait[bool]:
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


def raw(source: FormatSource, stops: SoughtTexts) -> Wait[str]:
    """One value as JSON."""
    pieces: list[str] = []
    yield from source.blanks()
    yield from ValueReader(source, pieces.append, JSON, stops).value()
    return "".join(pieces)


def arguments_text(source: FormatSource, stops: SoughtTexts) -> Wait[str]:
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
    """The text of a JSON string. Raises MalformedError for another value."""
    string = json.loads(value)
    if not isinstance(string, str):
        raise MalformedError("not a string")
    return string


def surplus(source: FormatSource, stops: SoughtTexts) -> Wait[None]:
    """Pass over closing brackets that nothing opened, where one of these texts stands after them, or nothing."""
    # Models write `{"name": "f", "arguments": {}}}</tool_call>` with one brace too many: it is passed over, as the
    # marker follows it. Of `}} and so on` nothing is: that is what the answer goes on with.
    source.set_mark()
    yield from source.blanks()
    while (yield from source.take(_CLOSERS)):
        yield from source.blanks()
        if (yield from source.stands(stops)) or not (yield from source.peek()):
            source.clear_mark()
            return
    source.rewind()
