"""The segments of an answer, one after the other: thoughts, text and calls, each opened, added to and closed. And the
base of answers that are made of them.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from uad.apis.outcome import Outcome
from uad.apis.shapes import Shape
from uad.apis.spoken import id_of, joined
from uad.calls.events import Arguments, CallStart, Content, Event, Thought
from uad.calls.parser import AnswerParser
from uad.common.json_out import named_frame
from uad.events import Delta
from uad.requests.chat import Reading
from uad.requests.job import Job
from uad.types import TokenProb


class SegmentKind(enum.Enum):
    """What a segment of an answer is."""

    THOUGHT = enum.auto()
    TEXT = enum.auto()
    CALL = enum.auto()


@dataclass(slots=True)
class Segment:
    """A stretch of an answer of one kind. `index` is its place among all; a call's `text` is the JSON of its arguments.

    `call_id` and `name`, of the tool, are a call's. `probs` are those of the tokens of a text.
    """

    kind: SegmentKind
    index: int
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    probs: list[TokenProb] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that was added."""
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment begins."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Added:
    """A segment goes on. probs: those of the tokens that came since the last text, where they were asked for."""

    segment: Segment
    text: str
    probs: tuple[TokenProb, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """A segment is whole, or is all that there will be."""

    segment: Segment


Step = Opened | Added | Closed


class Segments:
    """The segments of one answer, as its pieces come. Ids of calls begin with `prefix`, where they are not the model's
    own.
    """

    def __init__(self, parser: AnswerParser, prefix: str) -> None:
        self.all: list[Segment] = []
        self._parser = parser
        self._prefix = prefix
        self._waiting: list[TokenProb] = []
        self._n_new = 0  # of the last piece

    @property
    def n_calls(self) -> int:
        """How many calls there are."""
        return sum(one.kind is SegmentKind.CALL for one in self.all)

    def feed(self, delta: Delta) -> list[Step]:
        """What a piece of the answer brings."""
        self._waiting += delta.probs
        self._n_new = len(delta.probs)
        return list(self._steps(self._parser.feed(delta.text)))

    def finish(self, is_cut: bool) -> list[Step]:
        """The text that was kept back, and the end of the last segment. is_cut: the answer ended at a limit."""
        self._n_new = 0
        steps = list(self._steps(self._parser.finish(is_cut)))
        if self.all:
            last = self.all[-1]
            last.probs += self._waiting if last.kind is SegmentKind.TEXT else ()
            steps.append(Closed(last))
        return steps

    def _steps(self, events: Iterable[Event]) -> Iterator[Step]:
        for event in joined(events):
            match event:
                case Thought():
                    yield from self._add(SegmentKind.THOUGHT, event.text)
                case Content():
                    yield from self._add(SegmentKind.TEXT, event.text)
                case CallStart():
                    call_id = id_of(event.id, self._prefix)
                    yield from self._open(Segment(SegmentKind.CALL, len(self.all), call_id, event.name))
                case Arguments():
                    yield from self._add(SegmentKind.CALL, event.text)

    def _add(self, kind: SegmentKind, text: str) -> Iterator[Step]:
        if not self.all or self.all[-1].kind is not kind:
            yield from self._open(Segment(kind, len(self.all)))
        segment = self.all[-1]
        probs = self._probs_of(text) if kind is SegmentKind.TEXT else self._drop_probs()
        segment.texts.append(text)
        segment.probs += probs
        yield Added(segment, text, probs)

    def _open(self, segment: Segment) -> Iterator[Step]:
        if self.all:
            yield Closed(self.all[-1])
        if segment.kind is SegmentKind.CALL:
            self._drop_probs()
        self.all.append(segment)
        yield Opened(segment)

    def _drop_probs(self) -> tuple[TokenProb, ...]:
        """Only texts have probabilities. Those of the last piece stay: a text may follow in it."""
        self._waiting = self._waiting[max(len(self._waiting) - self._n_new, 0) :]
        return ()

    def _probs_of(self, text: str) -> tuple[TokenProb, ...]:
        """Those of the tokens that hold the text, as far as they have come. Those before them are of marks or of white
        space; the text of those after them is kept back still.
        """
        ends = list(accumulate(len(prob.data) for prob in self._waiting))
        wanted = text.encode()
        start = b"".join(prob.data for prob in self._waiting).rfind(wanted)
        if start < 0:
            found, self._waiting = tuple(self._waiting), []
            return found
        first, behind = bisect_right(ends, start), bisect_left(ends, start + len(wanted)) + 1
        found, self._waiting = tuple(self._waiting[first:behind]), self._waiting[behind:]
        return found


class SegmentShape(Shape):
    """Base of answers of one sequence that are made of segments. Their streams have named events: each JSON text is an
    object that begins with its `type`.
    """

    depth = 6
    frame = staticmethod(named_frame)
    call_prefix = "call_"

    def __init__(self, job: Job, reading: Reading) -> None:
        self._job = job
        self._segments = Segments(reading.parser(), self.call_prefix)

    def _heard(self, outcomes: Sequence[Outcome]) -> Outcome:
        """The one sequence, whose kept pieces have become segments."""
        (outcome,) = outcomes
        for delta in outcome.deltas:
            self._segments.feed(delta)
        self._segments.finish(outcome.is_cut)
        return outcome
