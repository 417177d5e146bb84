"""Which turn of a conversation is open, and what the draft's format writes when one starts or ends. Must not know the target's format."""

from __future__ import annotations

from dataclasses import dataclass

from uad.templates.families import Family
from uad.templates.patterns import Item, Items, parse_marker
from uad.vocab.table import VocabTable

OUTSIDE = ""
_PREFIX = "prefix"
_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Mark:
    """A turn of `role` starts or ends in the target's stream. `whole` is false where only the special of an end marker was seen."""

    role: str
    is_start: bool
    whole: bool = True
    optional: bytes = b""


@dataclass(frozen=True, slots=True)
class Format:
    """A family's markers in the draft's vocabulary: begin of stream, and (start, end, end without trailing text) by role."""

    family: Family
    begin: Items
    turns: dict[str, tuple[Items, Items, Items]]

    @classmethod
    def of(cls, family: Family, draft: VocabTable) -> Format:
        begin = parse_marker(family.begin, draft)
        if draft.add_bos and draft.bos is not None and draft.bos not in begin:
            begin = (draft.bos, *begin)
        turns = {}
        for role, turn in family.roles.items():
            start, end = parse_marker(turn.start, draft), parse_marker(turn.end, draft)
            turns[role] = (start, end, bare(end) or end)
        return cls(family, begin, turns)

    def ids(self) -> frozenset[int]:
        """Every special that a marker of this format uses."""
        markers = [self.begin, *(marker for turn in self.turns.values() for marker in turn)]
        return frozenset(item for marker in markers for item in marker if isinstance(item, int))


def bare(items: Items) -> Items:
    """A marker up to its last special: what is there when the text after it has not come."""
    n = max((at + 1 for at, item in enumerate(items) if isinstance(item, int)), default=0)
    return items[:n]


class Turns:
    """State of one sequence: the open turn, as the target has it (`role`) and as the draft has it."""

    def __init__(self, format_: Format) -> None:
        self._format = format_
        self._written = OUTSIDE
        self._carried = False
        self.role = OUTSIDE

    @property
    def dropped(self) -> bool:
        """Whether the content of the open turn is left out for the draft."""
        return self._written == _DROPPED

    def apply(self, mark: Mark) -> list[Item]:
        """Moves on by one mark; what the draft's stream gets for it."""
        return self._start(mark.role) if mark.is_start else self._end(mark)

    def skip(self, mark: Mark) -> None:
        """Moves on by a mark whose text an explicit rule has written."""
        self._carried = False
        self.role = mark.role if mark.is_start else OUTSIDE
        role = self._format.family.role_of(mark.role)
        own_turn = role != "system" or self._format.family.system == "turn"
        self._written = (role if own_turn else "user") if mark.is_start else OUTSIDE

    def _start(self, role: str) -> list[Item]:
        out = self._close(whole=True) if self.role != OUTSIDE else []
        self.role = role
        written = self._format.family.role_of(role)
        if written == "system" and self._format.family.system != "turn":
            return out + self._start_system()
        if self._carried:
            self._carried = False
            if written == "user":
                self._written = written
                return out
            out += self._format.turns["user"][1]
        self._written = written
        return out + list(self._format.turns[written][0])

    def _start_system(self) -> list[Item]:
        if self._format.family.system == "drop":
            self._written = _DROPPED
            return []
        out = [] if self._carried else list(self._format.turns["user"][0])
        self._written, self._carried = _PREFIX, True
        return out + list(self._format.turns["system"][0])

    def _end(self, mark: Mark) -> list[Item]:
        if self.role == OUTSIDE:
            self._written = self._format.family.role_of(mark.role)
        out = self._close(mark.whole)
        self.role = OUTSIDE
        return out

    def _close(self, whole: bool) -> list[Item]:
        written, self._written = self._written, OUTSIDE
        if written == _DROPPED:
            return []
        if written == _PREFIX:
            return list(self._format.turns["system"][1])
        return list(self._format.turns[written][1 if whole else 2])
