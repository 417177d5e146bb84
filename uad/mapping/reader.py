"""What to look for in a target's stream: the patterns of a family in the target's vocabulary, by state. Must not know
the draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from uad.mapping.families import REASONING, TOOL_CALL, Family
from uad.mapping.patterns import Items, bare, is_white, normalise, parse_marker, rest_of
from uad.mapping.rules import Step
from uad.mapping.turns import BEGIN, OUTSIDE, Mark, TurnKind
from uad.vocab.table import VocabTable

Patterns = dict[Items, Step]
_ORDER = ("assistant", "user", "system", "tool", "developer")


@dataclass(frozen=True)
class _Marker:
    """A turn of the family in its own vocabulary; `tails` are what may follow the start before the text begins."""

    role: str
    start: Items
    tails: tuple[Items, ...]
    end: Items

    def opens(self) -> Mark:
        return Mark(self.role, TurnKind.START)

    def closes(self, whole: bool = True) -> Mark:
        return Mark(self.role, TurnKind.END, whole)


def reader_patterns(family: Family, vocab: VocabTable) -> dict[str, Patterns]:
    """Patterns by state: between turns everything may match; inside one its own end does, and starts that begin with a
    special.
    """
    markers = _markers(family, vocab)
    starts: Patterns = {}
    for marker in markers:
        _add_starts(starts, marker, markers)
    if family.system == "prefix":
        _add_wrapped_system(starts, family, vocab)
    special_starts = {items: step for items, step in starts.items() if isinstance(items[0], int)}
    states = {marker.role: special_starts | _ends(marker, markers) for marker in markers}
    if family.system == "prefix":
        states["system"] = special_starts | _wrapped_system_end(family, vocab)
    outside = starts.copy()
    for marker in markers:
        for items, step in _ends(marker, markers).items():
            if isinstance(items[0], int):
                outside.setdefault(items, step)
    _add_spans(states, family, vocab)
    for marker in markers:
        tails = {tail: Step((Mark(marker.role, TurnKind.SETTLE),)) for tail in marker.tails}
        spans = _openings(family, vocab) if marker.role == "assistant" else {}
        states[marker.role + "!"] = tails | states[marker.role] | spans
    return {OUTSIDE: outside, BEGIN: _begin(family, vocab, _leading(markers), outside, states), **states}


def _leading(markers: list[_Marker]) -> Patterns:
    """Whole starts of turns that may come first."""
    return {
        marker.start: Step((marker.opens(),))
        for marker in markers
        if marker.start and marker.role in ("user", "assistant")
    }


def has_bare_system(family: Family) -> bool:
    """Whether text before the first turn is a system message."""
    return family.system == "turn" and not family.roles["system"].start


def has_bare_thoughts(family: Family) -> bool:
    """Whether text right after the opening of an answer is a thought."""
    return family.reasoning is not None and not family.reasoning.start


def _begin(
    family: Family, vocab: VocabTable, starts: Patterns, outside: Patterns, states: dict[str, Patterns]
) -> Patterns:
    """What may stand before the first turn: the beginning, what stands for no system message, and all that begins a
    turn.
    """
    patterns: Patterns = {}
    for marker in (family.begin, family.no_system):
        items = _without_bos(marker, vocab)
        if items:
            patterns[items] = Step()
    absent = _without_bos(family.no_system, vocab)
    if absent:
        # With what follows, because the start of a system message may begin with the whole of it.
        patterns |= {tuple(normalise((*absent, *items))): step for items, step in starts.items()}
    extra = states["system"] if has_bare_system(family) else {}
    return patterns | {items: step for items, step in (extra | outside).items() if items not in patterns}


def _without_bos(marker: str, vocab: VocabTable) -> Items:
    return tuple(item for item in parse_marker(marker, vocab) if item != vocab.bos)


def _markers(family: Family, vocab: VocabTable) -> list[_Marker]:
    found = []
    for role in sorted(family.roles, key=_ORDER.index):
        if role == "system" and family.system != "turn":
            continue
        turn = family.roles[role]
        stripped = family.opening if role == "assistant" else turn.start.rstrip(" ")
        start = parse_marker(stripped, vocab)
        texts = [turn.start, family.prompt or turn.start] if role == "assistant" else [turn.start]
        tails = [rest_of(parse_marker(text, vocab), start) for text in texts]
        found.append(_Marker(role, start, tuple(tail for tail in tails if tail), parse_marker(turn.end, vocab)))
    return found


def _add_starts(starts: Patterns, marker: _Marker, markers: list[_Marker]) -> None:
    if not marker.start:
        return
    step = Step((marker.opens(),))
    starts.setdefault(marker.start, step)
    if isinstance(marker.start[0], bytes) and marker.start[0][:1] == b" ":
        starts.setdefault(tuple(normalise((marker.start[0][1:], *marker.start[1:]))), step)
    lead = tuple(takewhile(lambda item: isinstance(item, int), marker.start))
    for part in (bare(marker.start), lead):
        if part and part not in starts:
            shared = sum(other.start[: len(part)] == part for other in markers) > 1
            starts[part] = Step((Mark("user", TurnKind.START),)) if shared else step


def _ends(marker: _Marker, markers: list[_Marker]) -> Patterns:
    assistant = next(other for other in markers if other.role == "assistant")
    implied = (assistant.opens(),) if marker.role == "user" and not assistant.start else ()
    ends: Patterns = {}
    if is_white(marker.end):
        for other in markers:
            if other.start and (marker.end or isinstance(other.start[0], bytes)):
                items = tuple(normalise((*marker.end, *other.start)))
                ends.setdefault(items, Step((marker.closes(), other.opens())))
        return ends
    ends[marker.end] = Step((marker.closes(), *implied))
    if bare(marker.end):
        ends.setdefault(bare(marker.end), Step((marker.closes(whole=False), *implied)))
    return ends


def _openings(family: Family, vocab: VocabTable) -> Patterns:
    """Thoughts after the start of an answer, also as the prompt begins them (often with or without the white space of
    the marker).
    """
    if family.reasoning is None or not family.reasoning.start:
        return {}
    step = Step((Mark(REASONING, TurnKind.OPEN),))
    patterns = {parse_marker(family.reasoning.start, vocab): step}
    prompted = (family.prompt or "")[len(family.opening) :]
    if prompted.strip() and prompted.strip() == family.reasoning.start.strip():
        patterns[rest_of(parse_marker(family.prompt or "", vocab), parse_marker(family.opening, vocab))] = step
    return {items: step for items, step in patterns.items() if items}


def _add_spans(states: dict[str, Patterns], family: Family, vocab: VocabTable) -> None:
    """Patterns inside thoughts and tool calls, and those that begin them in the middle of an answer."""
    answer = states["assistant"]
    for name, wrap in family.spans.items():
        start, end = parse_marker(wrap.start, vocab), parse_marker(wrap.end, vocab)
        inside = {end: Step((Mark(name, TurnKind.CLOSE),))}
        if bare(end):
            inside.setdefault(bare(end), Step((Mark(name, TurnKind.CLOSE),)))
        states[f"assistant/{name}"] = {items: step for items, step in answer.items() if items not in inside} | inside
        if name == TOOL_CALL or (start and isinstance(start[0], int)):
            states["assistant"] = {start: Step((Mark(name, TurnKind.OPEN),))} | states["assistant"]


def _add_wrapped_system(starts: Patterns, family: Family, vocab: VocabTable) -> None:
    """A system message that stands inside the first user turn can be kept apart from it only if it has a marker of its
    own.
    """
    if family.roles["system"].start:
        items = parse_marker(family.roles["user"].start + family.roles["system"].start, vocab)
        starts.setdefault(items, Step((Mark("system", TurnKind.START),)))


def _wrapped_system_end(family: Family, vocab: VocabTable) -> Patterns:
    end = parse_marker(family.roles["system"].end, vocab)
    marks = (Mark("system", TurnKind.END), Mark("user", TurnKind.START))
    return {end: Step(marks)} if end and family.roles["system"].start else {}
