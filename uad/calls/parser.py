"""The text of an answer, in pieces of any size, to what it says: thoughts, content, and calls with their arguments as
they come.

A text that is no call of a tool of the request is content, whatever it looks like. How the text is cut changes nothing
but the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from uad.calls.bodies import MAX_HEAD, surplus
from uad.calls.events import Call, Content, Event, Thought, TrimmedText
from uad.calls.format import CHANNEL_MARKERS, AnswerFormat, CallFormat, Header, header_of
from uad.calls.reader import CallReader
from uad.calls.source import FormatSource, MalformedError, Wait, Words, words
from uad.calls.tools import Calls

MAX_AGAIN = 1 << 20
"""Characters that are read again, because they looked like calls, before nothing is taken for a call any more. It
bounds the time.
"""


@dataclass(frozen=True)
class Start:
    """Where an answer begins: in the middle of a thought, or after the beginning of its content."""

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
        self._reader = CallReader(self._source, self._tools, self._begins, self._said.add)
        self._events: list[Event] = []
        self._n_calls = 0
        self._is_committed = False
        run = self._channels() if format_.channels else self._answer()
        self._run: Wait[None] | None = run
        next(run, None)

    @property
    def n_calls(self) -> int:
        """How many calls there are so far."""
        return self._n_calls if self._is_parallel else min(self._n_calls, 1)

    @property
    def is_exact(self) -> bool:
        """Whether all calls so far are written as their format has them."""
        return self._reader.is_exact

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
            if not (yield from self._try(self._reader.call(format_), format_)):
                self._source.rewind()
            self._source.clear_mark()

    def _bare(self) -> Wait[None]:
        """Calls that no marker announces: an answer that begins with a brace."""
        for format_ in (one for one in self._formats if one.is_bare):
            self._source.set_mark()
            yield from self._source.blanks()
            yield from self._source.take(words(*format_.prefixes))
            if not (yield from self._try(self._reader.bodies(format_), format_)):
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
        """Whether a call begins here. One that has begun stays, however it ends; after it, one that has not is
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
        """Calls after a marker, up to what ends them."""
        inside = words(format_.start, format_.finish, format_.begin)
        if word == format_.start:
            yield from self._reader.call(format_)
            if not format_.begin:
                return
        elif not format_.start:
            yield from self._reader.bodies(format_)
            yield from self._source.blanks()
            yield from self._source.take(words(format_.finish))
            return
        while True:
            yield from self._source.blanks()
            word = yield from self._source.take(inside)
            if word == format_.start:
                if self._is_committed:
                    self._source.set_mark(len(word))
                yield from self._reader.call(format_)
            elif word != format_.begin:
                return

    def _begins(self, name: str, id_: str) -> Call:
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
        """One message; returns the marker after it, empty at the end of the answer."""
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
        yield from self._reader.json_arguments(name, "", ends)
        yield from surplus(self._source, ends)
