"""The events of an answer, and the emitter of them: white space is trimmed, a call is numbered. Knows no format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from uad.text.calls.judge import same
from uad.text.calls.source import FormatSource, MalformedError
from uad.text.calls.tools import Calls, Tool


@dataclass(frozen=True, slots=True)
class Content:
    """Text said to the user. `at`: where in the answer's text it begins, in characters; -1: not known."""

    text: str
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Thought:
    """Text that the model thought beforehand. `at`: as for content."""

    text: str
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool. `id` is the model's own, empty where it gives none."""

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the JSON text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is whole. It does not come where the answer ends in the middle of one."""

    index: int


CallEvent = Content | Thought | CallStart | Arguments | CallEnd


class TrimmedText:
    """Passes text on. White space at its end is kept back if it `holds`; `strip` drops that, and what comes before the
    next letter.
    """

    # "Let me look. " before a call says "Let me look.": the blank is kept back until something follows it. If that is a
    # letter, both are passed on; if it is a call, `strip` drops the blank, and the "\n\n" after the call too.

    def __init__(self, tell: Callable[[str], None], holds: bool) -> None:
        self._tell = tell
        self._holds = holds
        self._kept = ""
        self._strips = False

    def add(self, text: str) -> None:
        """Pass on what was kept, and the text up to where something is to be kept back again."""
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        text, self._kept = self._kept + text, ""
        if self._holds:
            shown = text.rstrip()
            text, self._kept = shown, text[len(shown) :]
        if text:
            self._tell(text)

    @property
    def n_kept(self) -> int:
        """How many characters are kept back."""
        return len(self._kept)

    def strip(self) -> None:
        """Drop what is kept, and white space that follows."""
        self._kept, self._strips = "", True

    def flush(self) -> None:
        """Pass on what is kept."""
        text, self._kept = self._kept, ""
        if text:
            self._tell(text)


class Call:
    """One call as it is emitted."""

    def __init__(self, index: int, tool: Tool, tell: Callable[[CallEvent], None]) -> None:
        self.tool = tool
        self._index = index
        self._tell = tell

    def add(self, text: str) -> None:
        """Emit a piece of the arguments' JSON text; an empty one is left out."""
        if text:
            self._tell(Arguments(self._index, text))

    def end(self) -> None:
        self._tell(CallEnd(self._index))


class Emitter:
    """Collects the events of an answer. holds: white space at the end of content is kept back, since a call may follow.

    has_begun: whether a call has begun since this was last set to false.
    """

    def __init__(self, source: FormatSource, calls: Calls, holds: bool) -> None:
        self.tools = {tool.name: tool for tool in calls.allowed()}
        self.n_calls = 0
        self.has_begun = False
        self._answered = calls.answered
        self._is_parallel = calls.parallel
        self._source = source
        self._events: list[CallEvent] = []
        self.content = self._trimmed(Content, holds)

    def drain(self) -> list[CallEvent]:
        """The events since this was last asked."""
        events = self._events.copy()
        if events:
            self._events.clear()  # not a new list: calls that are open add to this one
        return events

    def thoughts(self) -> TrimmedText:
        """Takes one thought."""
        thoughts = self._trimmed(Thought, holds=True)
        thoughts.strip()
        return thoughts

    def call(self, name: str, id_: str) -> Call:
        """The next call; id_: the model's own. Raises MalformedError for a name that no tool of the request has."""
        tool = self.tools.get(name)
        if tool is None:
            raise MalformedError("no such tool")
        self.has_begun = True
        self._source.clear_mark()
        self.content.strip()
        index, self.n_calls = self.n_calls, self.n_calls + 1
        tell = self._events.append if self._is_parallel or index == 0 else lambda event: None
        tell(CallStart(index, name, id_))
        return Call(index, tool, tell)

    def is_answered(self, name: str, arguments: str) -> bool:
        """Whether the model has just been given the result of this call. Models repeat such a call in the braces that
        their template shows: as a call it would be made again and again.
        """
        return any(name == called and same(json.loads(arguments), given) for called, given in self._answered)

    def _trimmed(self, kind: type[Content] | type[Thought], holds: bool) -> TrimmedText:
        """Texts passed on as events of one kind, each with its place."""

        def tell(text: str) -> None:
            self._events.append(kind(text, self._source.place - trimmed.n_kept - len(text)))

        trimmed = TrimmedText(tell, holds)
        return trimmed
