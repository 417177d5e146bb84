"""The text of an answer, in pieces of any size, to what it says: thoughts, content, and calls with their arguments as
they come.

A text that is no call of a tool of the request is content, whatever it looks like. How the text is cut changes nothing
but the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from uad.text.calls.events import CallEvent, Emitter
from uad.text.calls.format import CHANNEL_MARKERS, AnswerFormat, Keys, MessageHeader, header_of
from uad.text.calls.reader import MAX_HEAD_CHARS, CallReader
from uad.text.calls.source import FormatSource, MalformedError, SoughtTexts, Wait, words
from uad.text.calls.tools import Calls
from uad.text.calls.whole import WholeReader

MAX_AGAIN_CHARS = 1 << 20
"""Characters that are read again, because they looked like calls, before nothing is taken for a call any more. It
bounds the time.
"""


@dataclass(frozen=True)
class Start:
    """Where an answer begins: in the middle of a thought, or after the beginning of its content."""

    in_thought: bool = False
    in_content: bool = False


class AnswerParser:
    """Feed text, get events. `shows_thoughts`: they are content, markers and all. whole: the members of JSON objects
    that are calls without markers, where they are the whole answer; None: such answers are content.
    """

    def __init__(
        self,
        format_: AnswerFormat,
        calls: Calls,
        start: Start = Start(),
        shows_thoughts: bool = False,
        whole: Keys | None = None,
    ) -> None:
        self._format = format_
        self._is_parallel = calls.parallel
        self._shows_thoughts = shows_thoughts
        self._start = start
        self._formats = [known for known in format_.calls if not known.channels] if calls.allowed() else []
        self._source = FormatSource()
        self._emitter = Emitter(self._source, calls, holds=bool(self._formats))
        self._content = self._emitter.content
        self._reader = CallReader(self._source, self._emitter, format_.doubled)
        self._whole = None
        if whole and calls.allowed():
            self._whole = WholeReader(self._source, self._emitter, whole, format_.doubled)
        run = self._channels() if format_.channels else self._answer()
        self._run: Wait[None] | None = run
        next(run, None)

    @property
    def n_calls(self) -> int:
        """How many calls there are so far."""
        return self._emitter.n_calls if self._is_parallel else min(self._emitter.n_calls, 1)

    @property
    def is_exact(self) -> bool:
        """Whether all calls so far are written as their format has them."""
        return self._reader.is_exact

    def feed(self, text: str) -> list[CallEvent]:
        """The events that this piece brings."""
        self._source.add(text)
        self._go_on()
        return self._emitter.drain()

    def finish(self, is_cut: bool = True) -> list[CallEvent]:
        """The events of the text that was kept back. A call whose end is missing is closed, unless the answer was cut
        before the model ended it: then its arguments are what there is of them.
        """
        self._source.end(is_cut)
        self._go_on()
        self._content.flush()
        return self._emitter.drain()

    def _go_on(self) -> None:
        # A reader is a generator that yields where it needs more text, so that it is written as if the text were whole:
        # fed "<tool_" it stands in `until`, which yields; fed "call>" it goes on right there. Nothing is parsed twice
        # but what is marked, because it may turn out to be no call.
        if self._run is not None:
            try:
                next(self._run)
            except StopIteration:
                self._run = None

    # --- thoughts and content

    def _answer(self) -> Wait[None]:
        thought = self._format.thought
        if self._start.in_thought:
            yield from self._think()
        elif not self._start.in_content:
            yield from self._begin()
        openers = [text for known in self._formats for text in known.openers()]
        wanted = words(*openers, *thought.drop, *([thought.start] if thought.anywhere else []))
        # An answer whose first marker is in the prompt begins with a tool's name, or with what says that it is content.
        for format_ in (plain for plain in self._format.calls if plain.plain and self._start == Start()):
            if not (yield from self._source.take(words(format_.plain))) and format_ in self._formats:
                yield from self._reader.attempt(self._reader.call(format_), format_)
        for format_ in (bare for bare in self._formats if bare.is_bare):
            yield from self._reader.attempt(self._reader.bare(format_), format_)
        if self._whole is not None and not (self._start.in_content or self._emitter.n_calls):
            yield from self._reader.attempt(self._whole.read())
        while word := (yield from self._source.until(wanted, self._content.add)):
            if word in thought.drop:
                continue
            if thought.anywhere and word == thought.start:
                self._content.add(word if self._shows_thoughts else "")
                yield from self._think()
            elif not (yield from self._calls_at(word)):
                self._content.add(word)

    def _begin(self) -> Wait[None]:
        """Thoughts at the front of an answer, or the end of thoughts alone, which says that it has no thoughts."""
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
            self._content.strip()

    def _think(self) -> Wait[None]:
        """Thoughts up to their end."""
        end = words(self._format.thought.end.strip())
        if self._shows_thoughts:
            self._content.add((yield from self._source.until(end, self._content.add)))
            return
        yield from self._source.until(end, self._emitter.thoughts().add)
        self._content.strip()

    def _calls_at(self, word: str) -> Wait[bool]:
        """Whether calls begin with this marker, which has been passed over; they are read then."""
        for format_ in self._formats if self._source.n_again < MAX_AGAIN_CHARS else ():
            if word not in format_.openers():
                continue
            if (yield from self._reader.attempt(self._reader.calls(format_, word), format_, back=len(word))):
                self._content.strip()
                return True
            self._source.at += len(word)
        return False

    # --- harmony

    def _channels(self) -> Wait[None]:
        """An answer of messages, each with a header that says what it is."""
        # `<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>`: a header
        # up to `<|message|>`, then text up to any marker that ends a message or begins the next header. An answer
        # without a header at its front is what the user reads.
        ends = words(*(marker for marker in CHANNEL_MARKERS if marker not in ("<|message|>", "<|constrain|>")))
        starts = words("<|start|>", "<|channel|>", "<|message|>", " to=")
        begun = "final" if self._start.in_content else "analysis" if self._start.in_thought else ""
        header = MessageHeader(begun, "") if begun else None
        while True:
            if header is None:
                self._source.set_mark()
                word = yield from self._source.take(starts)
                self._source.rewind()
                header = (yield from self._header()) if word else MessageHeader("final", "")
            word = yield from self._message(header, ends)
            while word in ("<|end|>", "<|call|>", "<|return|>"):
                yield from self._source.blanks()
                word = yield from self._source.take(ends)
            if not word and not (yield from self._source.peek()):
                return
            if word == "<|channel|>":
                self._source.at -= len(word)
            header = (yield from self._header()) if word else MessageHeader("final", "")

    def _header(self) -> Wait[MessageHeader]:
        """The header of a message. A text that is no header is content, its first marker too: otherwise that would be
        found forever.
        """
        self._source.set_mark()
        try:
            text, _ = yield from self._source.collect(words("<|message|>"), 2 * MAX_HEAD_CHARS)
        except MalformedError:
            self._source.rewind()
            self._content.add((yield from self._source.take(words("<|channel|>"))))
            return MessageHeader("final", "")
        self._source.clear_mark()
        return header_of(text)

    def _message(self, header: MessageHeader, ends: SoughtTexts) -> Wait[str]:
        """One message; returns the marker after it, empty at the end of the answer."""
        if header.tool in self._emitter.tools:
            if not (yield from self._reader.attempt(self._reader.channel_call(header.tool, ends))):
                self._content.add(header.text)
            return (yield from self._source.until(ends, self._content.add))
        if header.tool:
            self._content.add(header.text)
            return (yield from self._source.until(ends, self._content.add))
        if header.channel != "analysis" or header.recipient:
            return (yield from self._source.until(ends, self._content.add))
        if not self._shows_thoughts:
            return (yield from self._source.until(ends, self._emitter.thoughts().add))
        self._content.add("<|channel|>analysis<|message|>")
        word = yield from self._source.until(ends, self._content.add)
        self._content.add("<|end|>" if word else "")
        return word
