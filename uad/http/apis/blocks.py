"""The blocks of an answer, one after the other: thoughts, text and calls, each opened, added to and closed."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from uad.base.common.json_out import named_frame
from uad.base.types import TokenProb
from uad.http.apis.dialect import Dialect, new_id
from uad.http.requests.chat import Reading
from uad.http.requests.job import Job
from uad.text.calls.events import Arguments, CallEnd, CallEvent, CallStart, Content, Thought
from uad.text.calls.parser import AnswerParser

_SHORTEST_ID = 9  # a model's own id that is shorter is a number in its answer, and no name in a conversation


class BlockKind(enum.Enum):
    """Kinds of blocks in an answer."""

    THOUGHT = enum.auto()
    TEXT = enum.auto()
    CALL = enum.auto()


@dataclass(slots=True)
class Block:
    """A stretch of an answer of one kind."""

    kind: BlockKind
    index: int
    """The block's place among all blocks."""
    call_index: int = 0
    """The place of a call among all calls."""
    call_id: str = ""
    name: str = ""
    """The tool that a call is for."""
    texts: list[str] = field(default_factory=list)
    """All that was added; of a call the JSON of its arguments."""
    probs: list[TokenProb] = field(default_factory=list)
    """Log-probabilities of a text's tokens, where they were asked for."""

    @property
    def text(self) -> str:
        """All that was added, in one."""
        return "".join(self.texts)


class Opened(NamedTuple):
    """A block begins."""

    block: Block


class Added(NamedTuple):
    """A block goes on."""

    block: Block
    text: str
    probs: Sequence[TokenProb] = ()
    """Log-probabilities of the tokens that came since the last text."""
    at: int = -1
    """Where in the text of all tokens this text begins, in characters; -1: not known."""


class Closed(NamedTuple):
    """A block is whole, or is all that there will be."""

    block: Block


BlockStep = Opened | Added | Closed


class Blocks:
    """The blocks of one answer, as its pieces come. Ids of calls begin with `call_prefix`, where they are not the
    model's own.
    """

    def __init__(self, parser: AnswerParser, call_prefix: str) -> None:
        self.all: list[Block] = []
        self.n_calls = 0
        self._parser = parser
        self._call_prefix = call_prefix
        self._waiting: list[TokenProb] = []
        self._n_new = 0  # of the last piece

    def feed(self, text: str, probs: Sequence[TokenProb] = ()) -> list[BlockStep]:
        """The steps that a piece of the answer brings."""
        self._waiting += probs
        self._n_new = len(probs)
        return self._steps(self._parser.feed(text))

    def finish(self, is_cut: bool) -> list[BlockStep]:
        """The text that was kept back, and the end of the last block. is_cut: the answer ended at a limit."""
        self._n_new = 0
        steps = self._steps(self._parser.finish(is_cut))
        if self.all:
            last = self.all[-1]
            last.probs += self._waiting if last.kind is BlockKind.TEXT else ()
            steps.append(Closed(last))
        return steps

    def keep_open(self) -> list[BlockStep]:
        """An empty text in the block that is open. A text is opened where the answer has no block yet: it goes on in
        it, or closes it for one of another kind.
        """
        steps: list[BlockStep] = []
        if not self.all:
            self._open(steps, Block(BlockKind.TEXT, 0))
        steps.append(Added(self.all[-1], ""))
        return steps

    def _steps(self, events: Sequence[CallEvent]) -> list[BlockStep]:
        steps: list[BlockStep] = []
        for event in joined(events) if len(events) > 1 else events:
            match event:
                case Content() | Thought():
                    kind = BlockKind.TEXT if isinstance(event, Content) else BlockKind.THOUGHT
                    self._add(steps, kind, event.text, event.at)
                case CallStart():
                    call_id = event.id if len(event.id) >= _SHORTEST_ID else new_id(self._call_prefix, 24)
                    self._open(steps, Block(BlockKind.CALL, len(self.all), event.index, call_id, event.name))
                    self.n_calls += 1
                case Arguments():
                    self._add(steps, BlockKind.CALL, event.text)
        return steps

    def _add(self, steps: list[BlockStep], kind: BlockKind, text: str, at: int = -1) -> None:
        if not self.all or self.all[-1].kind is not kind:
            self._open(steps, Block(kind, len(self.all)))
        block, probs = self.all[-1], tuple[TokenProb, ...]()
        block.texts.append(text)
        if self._waiting:
            probs = self._probs_of(text) if kind is BlockKind.TEXT else self._drop_probs()
            block.probs += probs
        steps.append(Added(block, text, probs, at))

    def _open(self, steps: list[BlockStep], block: Block) -> None:
        if self.all:
            steps.append(Closed(self.all[-1]))
        if block.kind is BlockKind.CALL:
            self._drop_probs()
        self.all.append(block)
        steps.append(Opened(block))

    def _drop_probs(self) -> tuple[TokenProb, ...]:
        """Only texts have probabilities. Those of the last piece stay: a text may follow in it."""
        self._waiting = self._waiting[max(len(self._waiting) - self._n_new, 0) :]
        return ()

    def _probs_of(self, text: str) -> tuple[TokenProb, ...]:
        """Log-probabilities of the tokens that make up the text, of those that have come. Tokens before them are of
        marks or of white space; the text of those after them is kept back still.

        The tokens "</", "think>", "He", "y" and " " have come, and the text is "Hey": it begins at byte 8, where the
        second token ends, so the third and the fourth are its own, and " " waits.
        """
        ends = list(accumulate(len(prob.data) for prob in self._waiting))
        wanted = text.encode()
        start = b"".join(prob.data for prob in self._waiting).rfind(wanted)
        if start < 0:
            probs, self._waiting = tuple(self._waiting), []
            return probs
        first, after = bisect_right(ends, start), bisect_left(ends, start + len(wanted)) + 1
        probs, self._waiting = tuple(self._waiting[first:after]), self._waiting[after:]
        return probs


def joined(events: Iterable[CallEvent]) -> list[CallEvent]:
    """The same events, neighbouring pieces of one kind as one, without the ends of calls."""
    out: list[CallEvent] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Content) and isinstance(last, Content):
            out[-1] = Content(last.text + event.text, last.at)
        elif isinstance(event, Thought) and isinstance(last, Thought):
            out[-1] = Thought(last.text + event.text, last.at)
        elif isinstance(event, Arguments) and isinstance(last, Arguments) and event.index == last.index:
            out[-1] = Arguments(event.index, last.text + event.text)
        elif not isinstance(event, CallEnd):
            out.append(event)
    return out


class BlockDialect(Dialect):
    """Base of dialects whose answers are one sequence, made of blocks. Their streams have named events: each frame's
    first member is its `type`.
    """

    depth = 6
    event = staticmethod(named_frame)
    call_prefix = "call_"

    def __init__(self, job: Job, reading: Reading) -> None:
        super().__init__(job)
        self._blocks = Blocks(reading.parser(), self.call_prefix)
