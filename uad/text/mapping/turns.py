"""Which turn of a conversation is open, and what the draft's format writes when one starts or ends. Must not know the
target's format.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from uad.text.mapping.families import REASONING, Family
from uad.text.mapping.patterns import Item, Items, bare, is_white, parse_marker, rest_of
from uad.text.vocab.table import VocabTable

BEGIN, OUTSIDE = "^", ""
"""States before the first turn and between turns. Inside one it is the role, `role!` where its text has not begun, or
`role/span`.
"""
_PREFIX = "prefix"
_DROPPED = "dropped"


class TurnKind(Enum):
    """Kinds of events: a turn starts or ends, a span inside the assistant's turn does, or a turn's text begins without
    a span.
    """

    START = "start"
    END = "end"
    OPEN = "open"
    CLOSE = "close"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something happens to the turn of a role, or to a span, in the target's stream. `whole` is false where only the
    special of an end marker was seen.
    """

    role: str
    kind: TurnKind
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Format:
    """A family's markers in the draft's vocabulary: begin of stream, (start, end, end without trailing text) by role,
    and what an answer begins with: `opening` always, `rest` unless thoughts come first.
    """

    family: Family
    begin: Items
    no_system: Items
    turns: dict[str, tuple[Items, Items, Items]]
    opening: Items
    rest: Items
    spans: dict[str, tuple[Items, Items]]

    @classmethod
    def of(cls, family: Family, draft: VocabTable) -> Format:
        """The family in the draft's ids, with BOS in front where the vocabulary adds it."""
        begin = parse_marker(family.begin, draft)
        if draft.add_bos and draft.bos is not None and draft.bos not in begin:
            begin = (draft.bos, *begin)
        turns = {}
        for role, turn in family.roles.items():
            start, end = parse_marker(turn.start, draft), parse_marker(turn.end, draft)
            turns[role] = (start, end, bare(end) or end)
        opening = parse_marker(family.opening, draft)
        spans = {
            name: (parse_marker(wrap.start, draft), parse_marker(wrap.end, draft))
            for name, wrap in family.spans.items()
        }
        rest = rest_of(turns["assistant"][0], opening)
        return cls(family, begin, parse_marker(family.no_system, draft), turns, opening, rest, spans)

    def ids(self) -> frozenset[int]:
        """Every special that a marker of this format uses for turns."""
        markers = [
            self.begin,
            self.no_system,
            self.opening,
            *(marker for turn in self.turns.values() for marker in turn),
        ]
        return frozenset(item for marker in markers for item in marker if isinstance(item, int))


class Turns:
    """State of one sequence: the open turn, as the target has it (`role`) and as the draft has it. `may_think`: after
    the start of an answer it is open whether thoughts come, so what follows is written when that is known.
    """

    def __init__(
        self, format_: Format, may_think: bool = False, bare_system: bool = False, bare_thoughts: bool = False
    ) -> None:
        self._format = format_
        self._bare_thoughts = bare_thoughts
        self._may_think = may_think
        self._bare_system = bare_system
        self._written = OUTSIDE
        self._carried = False
        self._begun = False
        self._rest: Items = ()
        self._span_is_empty = False
        self.role = OUTSIDE
        self.state = BEGIN

    @property
    def dropped(self) -> bool:
        """Whether the content of the open turn is left out for the draft."""
        return self._written == _DROPPED

    @property
    def waiting(self) -> bool:
        """Whether the next text begins something, so that `text` must be asked."""
        return self.state[-1:] in ("!", BEGIN) or bool(self._rest) or self._span_is_empty

    def text(self) -> list[Item]:
        """Text of the open turn comes: what stands before it."""
        # `assistant!` is an answer of which only the start has come. Its first text settles what was left open there:
        # the `rest` of the start is written, unless text itself is a thought, in families whose thoughts have no start.
        self._span_is_empty = False
        if self.state == BEGIN:
            self.state = OUTSIDE
            if self._bare_system and not self._begun:
                out = self._start("system")
                self.state = "system"
                return out
            return []
        if self._bare_thoughts and self.state == "assistant!":
            out = self.apply(Mark(REASONING, TurnKind.OPEN))
            self._span_is_empty = False
            return out
        self.state = self.state.removesuffix("!")
        return self._settle()

    def apply(self, mark: Mark) -> list[Item]:
        """Moves on by one mark; what the draft's stream gets for it."""
        match mark.kind:
            case TurnKind.START:
                out = self._start(mark.role)
                self.state = self.role + "!"
            case TurnKind.END:
                out = self._end(mark)
                self.state = OUTSIDE
            case TurnKind.OPEN:
                out = self._open(mark.role)
                self.state = f"{self.role}/{mark.role}"
            case TurnKind.CLOSE:
                out = self._close_span(mark.role)
                self.state = self.role
            case TurnKind.SETTLE:
                out = [] if is_white(self._rest) else self._settle()
                self.state = self.role
        return out

    def skip(self, mark: Mark) -> None:
        """Moves on by a mark whose text an explicit rule has written."""
        if mark.kind not in (TurnKind.START, TurnKind.END):
            return
        self._carried, self._begun, self._rest, self._span_is_empty = False, True, (), False
        is_start = mark.kind is TurnKind.START
        self.role = mark.role if is_start else OUTSIDE
        self.state = self.role
        role = self._format.family.role_of(mark.role)
        own_turn = role != "system" or self._format.family.system == "turn"
        self._written = (role if own_turn else "user") if is_start else OUTSIDE

    def _start(self, role: str) -> list[Item]:
        out = self._close(whole=True) if self.role != OUTSIDE else []
        self.role = role
        written = self._format.family.role_of(role)
        if not self._begun and written != "system":
            out += self._format.no_system
        self._begun = True
        if written == "system" and self._format.family.system != "turn":
            return out + self._start_system()
        if self._carried:
            self._carried = False
            if written == "user":
                self._written = written
                return out
            out += self._format.turns["user"][1]
        self._written = written
        if written != "assistant":
            return out + list(self._format.turns[written][0])
        # DeepSeek V3.1's answers without thoughts start with `<|Assistant|><think></think>`. `opening` is the special,
        # and `rest` the tags: they are written once the target's next token shows that no thoughts come, or now if none
        # can.
        self._rest = self._format.rest
        out += self._format.opening
        return out if self._may_think or is_white(self._rest) else out + self._settle()

    def _settle(self) -> list[Item]:
        rest, self._rest = self._rest, ()
        return list(rest)

    def _start_system(self) -> list[Item]:
        if self._format.family.system == "drop":
            self._written = _DROPPED
            return []
        out = [] if self._carried else list(self._format.turns["user"][0])
        self._written, self._carried = _PREFIX, True
        return out + list(self._format.turns["system"][0])

    def _open(self, span: str) -> list[Item]:
        self._span_is_empty = True
        if self._written != "assistant" or span not in self._format.spans:
            return self._settle()
        if span == REASONING:
            self._rest = ()
        return self._settle() + list(self._format.spans[span][0])

    def _close_span(self, span: str) -> list[Item]:
        was_empty, self._span_is_empty = self._span_is_empty, False
        if self._written == "assistant" and span in self._format.spans:
            return list(self._format.spans[span][1])
        if span == REASONING and not was_empty:
            self._rest = (b"\n\n",)
        return []

    def _end(self, mark: Mark) -> list[Item]:
        if self.role == OUTSIDE:
            self._written = self._format.family.role_of(mark.role)
        out = self._close(mark.whole)
        self.role = OUTSIDE
        return out

    def _close(self, whole: bool) -> list[Item]:
        written, self._written, self._span_is_empty = self._written, OUTSIDE, False
        if written == _DROPPED:
            return []
        if written == _PREFIX:
            return list(self._format.turns["system"][1])
        return self._settle() + list(self._format.turns[written][1 if whole else 2])
