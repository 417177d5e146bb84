"""The text of an answer, in pieces of any size, to what it says: thoughts, content, and calls with their arguments as
they come.

A text that is no call of a tool of the request is content, whatever it looks like. How the text is cut changes nothing
but the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from uad.calls.events import Call, Content, Event, Thought, TrimmedText
from uad.calls.format import CHANNEL_MARKERS, AnswerFormat, CallFormat, Header, head_of, header_of
from uad.calls.notation import ARGUMENTS, GEMMA, JSON, PYTHON, ValueReader
from uad.calls.source import Ends, FormatSource, MalformedError, Wait, Words, words
from uad.calls.tools import Calls
from uad.calls.values import of_text

MAX_AGAIN = 1 << 20
"""Characters that are read again, because they looked like calls, before nothing is taken for a call any more. It
bounds the time.
"""
_ARGUMENTS = ("arguments", "parameters")
_ASIDE = ("id", "type", "index")
"""Members of a call that say nothing of it."""
_FIRST = Ends(
    r"\)|[^\s=,:(){}\[\]\"'<>]{1,256}\s*=", r"[^\s=,:(){}\[\]\"'<>]{0,256}\s*", words(), words(), commas=False
)
"""What stands behind the bracket of a call in Python: a name, or the other bracket."""


@dataclass(frozen=True)
class Start:
    """Where an answer begins: in the middle of a thought, or behind the beginning of its content."""

    in_thought: bool = False
    in_content: bool = False


class AnswerParser:
    """Feed text, get events. `shows_thoughts`: they are content, markers and all."""

    def __init__(
        self, format_: AnswerFormat, calls: Calls, start: Start = Start(), shows_thoughts: bool = False
    ) -> None:
        self._format = format_
        self._tools = {tool.name: tool for tool in calls.allowed()}
        self._is_parallel = calls.parallel
        self._shows_thoughts = shows_thoughts
        self._start = start
        self._formats = [one for one in format_.calls if not one.channels] if self._tools else []
        self._source = FormatSource()
        self._said = self._telling(Content, holds=bool(self._formats))
        self._events: list[Event] = []
        self._n_calls = 0
        self._is_committed = False
        self.is_exact = True  # false where calls are not quite as their format has them
        run = self._channels() if format_.channels else self._answer()
        self._run: Wait[None] | None = run
        next(run, None)

    @property
    def n_calls(self) -> int:
        """How many calls there are so far."""
        return self._n_calls if self._is_parallel else min(self._n_calls, 1)

    def feed(self, text: str) -> list[Event]:
        """The events that this piece brings."""
        self._source.add(text)
        self._go_on()
        return self._drained()

    def finish(self, is_cut: bool = True) -> list[Event]:
        """What was kept back. A call whose end is missing is closed, unless the answer was cut before the model ended
        it: then its arguments are what there is of them.
        """
        self._source.end(is_cut)
        self._go_on()
        self._said.flush()
        return self._drained()

    def _go_on(self) -> None:
        if self._run is not None:
            try:
                next(self._run)
            except StopIteration:
                self._run = None

    def _drained(self) -> list[Event]:
        events = self._events.copy()
        self._events.clear()
        return events

    # --- thoughts and content

    def _answer(self) -> Wait[None]:
        thought = self._format.thought
        if self._start.in_thought:
            yield from self._think()
        elif not self._start.in_content:
            yield from self._begin()
        openers = [text for one in self._formats for text in one.openers()]
        wanted = words(*openers, *thought.drop, *([thought.start] if thought.anywhere else []))
        yield from self._prompted()
        yield from self._bare()
        while word := (yield from self._source.until(wanted, self._said.add)):
            if word in thought.drop:
                continue
            if thought.anywhere and word == thought.start:
                self._said.add(word if self._shows_thoughts else "")
                yield from self._think()
            elif not (yield from self._calls_at(word)):
                self._said.add(word)

    def _begin(self) -> Wait[None]:
        """Thoughts at the front of an answer, or the end of thoughts alone, which says that there are none."""
        start, end = self._format.thought.start.strip(), self._format.thought.end.strip()
        self._source.set_mark()
        yield from self._source.blanks()
        word = yield from self._source.take(words(start, end))
        if not word or self._shows_thoughts:
            self._source.rewind()
        self._source.clear_mark()
        if word == start or (word and self._shows_thoughts):
            yield from self._think()
        elif word:
            self._said.strip()

    def _think(self) -> Wait[None]:
        """Thoughts up to their end."""
        end = words(self._format.thought.end.strip())
        if self._shows_thoughts:
            self._said.add((yield from self._source.until(end, self._said.add)))
            return
        yield from self._source.until(end, self._thoughts().add)
        self._said.strip()

    def _telling(self, kind: type[Content] | type[Thought], holds: bool) -> TrimmedText:
        """Texts passed on as events of one kind, each with its place."""

        def tell(text: str) -> None:
            self._events.append(kind(text, self._source.place - trimmed.n_kept - len(text)))

        trimmed = TrimmedText(tell, holds)
        return trimmed

    def _thoughts(self) -> TrimmedText:
        thoughts = self._telling(Thought, holds=True)
        thoughts.strip()
        return thoughts

    # --- calls

    def _prompted(self) -> Wait[None]:
        """An answer whose first marker is in the prompt, so that it begins with a tool's name, or with what says that
        it is content.
        """
        for format_ in (one for one in self._format.calls if one.plain and self._start == Start()):
            if (yield from self._source.take(words(format_.plain))) or format_ not in self._formats:
                continue
            self._source.set_mark()
            if not (yield from self._try(self._call(format_), format_)):
                self._source.rewind()
            self._source.clear_mark()

    def _bare(self) -> Wait[None]:
        """Calls that no marker announces: an answer that begins with a brace."""
        for format_ in (one for one in self._formats if one.is_bare):
            self._source.set_mark()
            yield from self._source.blanks()
            yield from self._source.take(words(*format_.prefixes))
            if not (yield from self._try(self._bodies(format_), format_)):
                self._source.rewind()
            self._source.clear_mark()

    def _calls_at(self, word: str) -> Wait[bool]:
        """Whether calls begin with this marker, which has been passed over; they are read then."""
        self._source.set_mark(len(word))
        for format_ in self._formats if self._source.n_again < MAX_AGAIN else ():
            if word in format_.openers() and (yield from self._try(self._calls(format_, word), format_)):
                self._source.clear_mark()
                self._said.strip()
                return True
            self._source.rewind()
            self._source.at += len(word)
        self._source.clear_mark()
        return False

    def _try(self, read: Wait[None], format_: CallFormat | None = None) -> Wait[bool]:
        """Whether a call begins here. One that has begun stays, however it ends; behind it, one that has not is
        content.
        """
        self._is_committed = False
        try:
            yield from read
        except MalformedError:
            if self._is_committed and self._source.is_marked:
                self._source.rewind()
            elif self._is_committed and format_ is not None:
                yield from self._source.blanks()
                yield from self._source.take(words(format_.end, format_.finish))
        return self._is_committed

    def _calls(self, format_: CallFormat, word: str) -> Wait[None]:
        """Calls behind a marker, up to what ends them."""
        inside = words(format_.start, format_.finish, format_.begin)
        if word == format_.start:
            yield from self._call(format_)
            if not format_.begin:
                return
        elif not format_.start:
            yield from self._bodies(format_)
            yield from self._source.blanks()
            yield from self._source.take(words(format_.finish))
            return
        while True:
            yield from self._source.blanks()
            word = yield from self._source.take(inside)
            if word == format_.start:
                if self._is_committed:
                    self._source.set_mark(len(word))
                yield from self._call(format_)
            elif word != format_.begin:
                return

    def _call(self, format_: CallFormat) -> Wait[None]:
        """One call behind its start, with its end. One that has begun may lack its end."""
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
        name, _ = yield from self._source.collect(words("("), MAX_HEAD)
        if not (yield from self._source.follows(_FIRST, 0)):
            raise MalformedError("not a call with named arguments")
        call = self._begins(name.strip())
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
            quoted_key = yield from ValueReader(source, str, JSON, stops).key()
            key = string_of(quoted_key)
            yield from source.expect(":")
            if not format_.keys.name:
                name, key = key, format_.keys.arguments
            yield from source.blanks()
            if key in (format_.keys.arguments, *_ARGUMENTS) and not (kept or call):
                if name and (yield from source.peek()) == "{":
                    call = self._begins(name, id_)
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
            call = self._begins(name, id_)
            call.add(kept or rest)
            rest = rest if kept else "{}"
        call.end()
        self._said.add(rest if len(rest) > len("{}") else "")

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
            call = self._begins(name, id_)
            schema = call.tool.parameters
            yield from ValueReader(source, call.add, GEMMA, stops, schema, of_text).members(GEMMA.brackets["{"])
            call.end()
        elif format_.tags is None or (yield from self._brace()):
            self.is_exact &= format_.tags is None
            yield from self._json_arguments(name, id_, stops)
        else:
            call = self._begins(name, id_)
            yield from TaggedArguments(source, call, format_, format_.tags, self._tools).read()
            call.end()

    def _brace(self) -> Wait[bool]:
        """Whether the next letter is a brace."""
        yield from self._source.blanks()
        return (yield from self._source.peek()) == "{"

    def _json_arguments(self, name: str, id_: str, stops: Words) -> Wait[None]:
        """A call by its name, with JSON as its arguments, or with nothing."""
        if (yield from self._brace()):
            call = self._begins(name, id_)
            yield from self._told_json(call, stops)
        else:
            text = yield from arguments_text(self._source, stops)
            call = self._begins(name, id_)
            call.add(text)
        call.end()

    def _begins(self, name: str, id_: str = "") -> Call:
        """The next call. Raises MalformedError for a name that no tool of the request has."""
        tool = self._tools.get(name)
        if tool is None:
            raise MalformedError("no such tool")
        self._is_committed = True
        self._source.clear_mark()
        self._said.strip()
        index, self._n_calls = self._n_calls, self._n_calls + 1
        is_told = self._is_parallel or index == 0
        call = Call(index, tool, self._events.append if is_told else lambda event: None)
        call.begin(id_)
        return call

    # --- harmony

    def _channels(self) -> Wait[None]:
        """An answer of messages, each with a header that says what it is."""
        ends = words(*(marker for marker in CHANNEL_MARKERS if marker not in ("<|message|>", "<|constrain|>")))
        starts = words("<|start|>", "<|channel|>", "<|message|>", " to=")
        begun = "final" if self._start.in_content else "analysis" if self._start.in_thought else ""
        header = Header(begun, "") if begun else None
        while True:
            if header is None:
                self._source.set_mark()
                word = yield from self._source.take(starts)
                self._source.rewind()
                self._source.clear_mark()
                header = (yield from self._header()) if word else Header("final", "")
            word = yield from self._message(header, ends)
            while word in ("<|end|>", "<|call|>", "<|return|>"):
                yield from self._source.blanks()
                word = yield from self._source.take(ends)
            if not word and not (yield from self._source.peek()):
                return
            if word == "<|channel|>":
                self._source.at -= len(word)
            header = (yield from self._header()) if word else Header("final", "")

    def _header(self) -> Wait[Header]:
        """What stands before a message. A text that is no header is content, its first marker too: else it would be
        found for ever.
        """
        self._source.set_mark()
        try:
            text, _ = yield from self._source.collect(words("<|message|>"), 2 * MAX_HEAD)
        except MalformedError:
            self._source.rewind()
            self._source.clear_mark()
            self._said.add((yield from self._source.take(words("<|channel|>"))))
            return Header("final", "")
        self._source.clear_mark()
        return header_of(text)

    def _message(self, header: Header, ends: Words) -> Wait[str]:
        """One message; returns the marker behind it, empty at the end of the answer."""
        if header.tool in self._tools:
            self._source.set_mark()
            if not (yield from self._try(self._channel_call(header.tool, ends))):
                self._source.rewind()
            self._source.clear_mark()
            if not self._is_committed:
                self._said.add(header.text)
            return (yield from self._source.until(ends, self._said.add))
        if header.tool:
            self._said.add(header.text)
            return (yield from self._source.until(ends, self._said.add))
        if header.channel != "analysis" or header.recipient:
            return (yield from self._source.until(ends, self._said.add))
        if not self._shows_thoughts:
            return (yield from self._source.until(ends, self._thoughts().add))
        self._said.add("<|channel|>analysis<|message|>")
        word = yield from self._source.until(ends, self._said.add)
        self._said.add("<|end|>" if word else "")
        return word

    def _channel_call(self, name: str, ends: Words) -> Wait[None]:
        """A call that is a message of its own."""
        yield from self._json_arguments(name, "", ends)
        yield from surplus(self._source, ends)
