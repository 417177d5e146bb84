"""One call after its marker, in every format: as JSON, as Python's, or with its name in front of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection

from uad.calls.bodies import (
    MAX_HEAD,
    TaggedArguments,
    arguments_text,
    markers_of,
    next_member,
    raw,
    string_of,
    surplus,
)
from uad.calls.events import Call
from uad.calls.format import CallFormat, head_of
from uad.calls.notation import ARGUMENTS, GEMMA, JSON, KEY, PYTHON, ValueReader
from uad.calls.source import Following, FormatSource, MalformedError, Wait, Words, words
from uad.calls.values import of_text

_ARGUMENTS = ("arguments", "parameters")
_ASIDE = ("id", "type", "index")
"""Members of a call that say nothing of it."""
_FIRST = Following(rf"\)|{KEY}\s*=", rf"(?:{KEY})?\s*", words(), words(), commas=False)
"""What stands after the bracket of a call in Python: a name, or the other bracket."""


class CallReader:
    """Reads calls from the source. names: of the tools. begin: a new call of a tool, by its name and the call's id;
    raises MalformedError for a name that no tool has. say: adds to what is said beside calls.

    is_exact: whether all calls were written as their format has them.
    """

    def __init__(
        self,
        source: FormatSource,
        names: Collection[str],
        begin: Callable[[str, str], Call],
        say: Callable[[str], None],
    ) -> None:
        self.is_exact = True
        self._source = source
        self._names = names
        self._begin = begin
        self._say = say

    def call(self, format_: CallFormat) -> Wait[None]:
        """One call after its start, with its end. One that has begun may lack its end."""
        if format_.body in ("json", "list", "python"):
            yield from self.bodies(format_)
        else:
            yield from self._headed(format_)
            yield from surplus(self._source, markers_of(format_))
        yield from self._source.blanks()
        yield from self._source.take(words(format_.end))

    def bodies(self, format_: CallFormat) -> Wait[None]:
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
        name, _ = yield from self._source.collect(words("("), MAX_HEAD)
        if not (yield from self._source.follows(_FIRST, 0)):
            raise MalformedError("not a call with named arguments")
        call = self._begin(name.strip(), "")
        yield from ValueReader(self._source, call.add, PYTHON, markers_of(format_)).members(ARGUMENTS)
        call.end()

    def _object(self, format_: CallFormat) -> Wait[None]:
        """A call that is a JSON object. Arguments in front of the name are kept back. Members that mean nothing are the
        arguments where there are no others, else they are content.
        """
        source, stops = self._source, markers_of(format_)
        yield from source.expect("{")
        call: Call | None = None
        name, id_, kept, n = "", "", "", 0
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
                if name and (yield from source.peek()) == "{":
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
            call = self._begin(name, id_)
            call.add(kept or rest)
            rest = rest if kept else "{}"
        call.end()
        self._say(rest if len(rest) > len("{}") else "")

    def _goes_on(self, call: Call | None, stops: Words, n: int) -> Wait[bool]:
        """Whether a call's object has another member. What is none is content, where the call has begun."""
        if call is not None:
            self._source.set_mark()
        goes_on = yield from next_member(self._source, stops, is_first=not n)
        if not goes_on and call is not None:
            self._source.clear_mark()
        return goes_on

    def _told_json(self, call: Call, stops: Words) -> Wait[None]:
        """Arguments as they come."""
        self._source.at += 1
        yield from ValueReader(self._source, call.add, JSON, stops).members(JSON.brackets["{"])

    def _headed(self, format_: CallFormat) -> Wait[None]:
        """A call whose name stands in front of its arguments."""
        source, stops = self._source, markers_of(format_)
        key = format_.tags.key if format_.tags else ""
        text, word = yield from source.collect(words(format_.name_end, key, format_.end), MAX_HEAD)
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
            yield from self.json_arguments(name, id_, stops)
        else:
            call = self._begin(name, id_)
            yield from TaggedArguments(source, call, format_, format_.tags, self._names).read()
            call.end()

    def _brace(self) -> Wait[bool]:
        """Whether the next letter is a brace."""
        yield from self._source.blanks()
        return (yield from self._source.peek()) == "{"

    def json_arguments(self, name: str, id_: str, stops: Words) -> Wait[None]:
        """A call by its name, with JSON as its arguments, or with nothing."""
        if (yield from self._brace()):
            call = self._begin(name, id_)
            yield from self._told_json(call, stops)
        else:
            text = yield from arguments_text(self._source, stops)
            call = self._begin(name, id_)
            call.add(text)
        call.end()
