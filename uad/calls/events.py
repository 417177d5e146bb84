"""What an answer says, event by event, and the emitters of them: white space is trimmed, a call is numbered. Knows no
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from uad.calls.tools import Tool


@dataclass(frozen=True, slots=True)
class Content:
    """What is said to the user. `at`: where in the answer's text it begins, in characters; -1: not known."""

    text: str
    at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought before. `at` as that of content."""

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


Event = Content | Thought | CallStart | Arguments | CallEnd


class TrimmedText:
    """Passes text on. White space at its end is kept back if it `holds`; `strip` drops that, and what comes before the
    next letter.
    """

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

    def __init__(self, index: int, tool: Tool, tell: Callable[[Event], None]) -> None:
        self.tool = tool
        self._index = index
        self._tell = tell

    def begin(self, id_: str) -> None:
        self._tell(CallStart(self._index, self.tool.name, id_))

    def add(self, text: str) -> None:
        """Emit a piece of the arguments' JSON text; an empty one is left out."""
        if text:
            self._tell(Arguments(self._index, text))

    def end(self) -> None:
        self._tell(CallEnd(self._index))
