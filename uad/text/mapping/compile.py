"""From families and replacements to the patterns of one pair of vocabularies: what to look for in a target's stream, by
state. Must not know where the rules were found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from uad.base.errors import MappingError
from uad.text.mapping.families import REASONING, TOOL_CALL, Family
from uad.text.mapping.patterns import (
    Items,
    bare,
    is_white,
    items_of,
    normalise,
    parse_marker,
    parse_rule,
    rest_of,
    show,
)
from uad.text.mapping.rules import CompiledRules, Step, Table, symbols
from uad.text.mapping.turns import BEGIN, OUTSIDE, Format, Mark, TurnKind
from uad.text.vocab.table import VocabTable

Patterns = dict[Items, Step]
_ORDER = ("assistant", "user", "system", "tool", "developer")


@dataclass(frozen=True, slots=True)
class Replacement:
    """An explicit rule. `where` says where it comes from; rules of a lower `layer` number win."""

    target: str
    draft: str
    where: str
    layer: int = 0


def compile_rules(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    write: Family,
    replace: Sequence[Replacement] = (),
    template: str | None = None,
) -> CompiledRules:
    """Rules for a pair. `read` is the target's family (None: unknown), `write` the draft's; `template` only says which
    specials matter.

    Raises MappingError for a replacement that is empty, contradicts another, or names a special that the vocabulary
    lacks.
    """
    replace = sorted(replace, key=lambda rule: rule.layer)
    reader = None if read is None or read.write_only else read
    family_patterns = reader_patterns(reader, target) if reader else {OUTSIDE: {}}
    format_ = Format.of(write, draft)
    explicit, unreachable = _explicit(target, draft, replace, family_patterns)
    tables = {state: Table(explicit | _reachable(patterns, explicit)) for state, patterns in family_patterns.items()}
    marks = {
        item
        for patterns in (*family_patterns.values(), explicit)
        for items in patterns
        for item in items
        if isinstance(item, int)
    }
    swallow_bos = target.bos is not None and target.bos not in marks
    lone = _lone(target, draft, marks, format_)
    dropped = target.special_ids - marks - lone.keys() - ({target.bos} if swallow_bos else set())
    backward = _backward(target, draft, reader, format_, replace, lone)
    return CompiledRules(
        target=target,
        draft=draft,
        format=format_,
        tables=tables,
        lone=lone,
        backward=backward,
        swallow_bos=swallow_bos,
        lines=_lines(target, draft, reader, format_, replace, backward),
        warnings=(*unreachable, *_warnings(target, dropped, template)),
        dropped=frozenset(dropped),
        may_think=reader is not None and reader.reasoning is not None,
        bare_system=reader is not None and _has_bare_system(reader),
        bare_thoughts=reader is not None and reader.reasoning is not None and not reader.reasoning.start,
    )


def _explicit(
    target: VocabTable, draft: VocabTable, replace: Sequence[Replacement], family: dict[str, Patterns]
) -> tuple[Patterns, tuple[str, ...]]:
    refuse_cycles(replace)
    patterns: Patterns = {}
    origin: dict[Items, Replacement] = {}
    unreachable = []
    for rule in replace:
        items, emit = parse_rule(rule.target, target, rule.where), parse_rule(rule.draft, draft, rule.where)
        if not items:
            raise MappingError(
                f"{rule.where}: the target side of a replacement is empty; it must name what is to be replaced"
            )
        same = origin.get(items)
        if same is not None and same.layer == rule.layer and patterns[items].emit != emit:
            raise MappingError(
                f"{rule.where}: {rule.target!r} is replaced by {rule.draft!r} here but by {same.draft!r} in "
                f"{same.where}"
            )
        higher: Patterns = {known: patterns[known] for known, by in origin.items() if by.layer < rule.layer}
        if not _reachable({items: Step()}, higher):
            unreachable.append(
                f"{rule.where}: the rule for {rule.target!r} never applies; a rule with precedence matches first"
            )
        elif same is None:
            patterns[items] = Step(_marks_in(items, family), emit)
            origin[items] = rule
    return patterns, tuple(unreachable)


def refuse_cycles(replace: Sequence[Replacement]) -> None:
    """Rules apply once, so a list that leads in a circle is a misunderstanding."""
    by_target = {rule.target: rule for rule in reversed(replace)}
    for rule in replace:
        seen = [rule]
        while (following := by_target.get(seen[-1].draft)) is not None and following.draft != following.target:
            if following is rule:
                circle = " -> ".join(repr(step.target) for step in (*seen, rule))
                raise MappingError(
                    f"{seen[-1].where}: the rules lead in a circle: {circle}. Rules apply once, and backwards by "
                    "themselves; leave one out"
                )
            if following in seen:
                break
            seen.append(following)


def _reachable(patterns: Patterns, higher: Patterns) -> Patterns:
    """The patterns of which no pattern with precedence is a prefix."""
    # With an explicit rule for "<|im_start|>" the family's "<|im_start|>user\n" can never match: the matcher takes the
    # longest of a table, but a rule with precedence must win, so the longer pattern is left out of the table.
    winners = {tuple(symbols(items)) for items in higher}
    lengths = {len(winner) for winner in winners}
    out: Patterns = {}
    for items, step in patterns.items():
        key = tuple(symbols(items))
        if not any(key[:n] in winners for n in lengths):
            out[items] = step
    return out


def _marks_in(items: Items, family: dict[str, Patterns]) -> tuple[Mark, ...]:
    """The turn marks that an explicit rule covers, so that the state stays right."""
    # A rule for "<|im_end|>\n<|im_start|>user\n" covers the end of an answer and the start of a user's turn: it is read
    # by the family's own patterns, longest first, in the state that each match leads to.
    stream = tuple(symbols(items))
    by_symbols = {
        state: {tuple(symbols(key)): step for key, step in patterns.items()} for state, patterns in family.items()
    }
    marks: list[Mark] = []
    at = 0
    state = OUTSIDE
    while at < len(stream):
        table = by_symbols.get(state, by_symbols[OUTSIDE])
        key = max((key for key in table if stream[at : at + len(key)] == key), key=len, default=None)
        if key is None:
            at += 1
            continue
        marks += table[key].marks
        state = marks[-1].role if marks and marks[-1].kind is TurnKind.START else OUTSIDE
        at += len(key)
    return tuple(marks)


def _lone(target: VocabTable, draft: VocabTable, marks: set[int], format_: Format) -> dict[int, Items]:
    """Specials outside every pattern: the same name where neither format uses it for turns, end of document to end of
    document, the letters of a marker that the draft does not have.
    """
    structure = format_.ids() | ({draft.bos} if draft.bos is not None else set())
    lone: dict[int, Items] = {}
    for name, id_ in target.specials.items():
        twin = draft.specials.get(name)
        if twin is not None and twin not in structure:
            lone[id_] = (twin,)
        elif id_ in target.eog and id_ not in marks and draft.eos is not None:
            lone[id_] = (draft.eos,)
        elif id_ in target.shown:
            lone[id_] = (target.shown[id_],)
    return lone


def _backward(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    format_: Format,
    replace: Sequence[Replacement],
    lone: dict[int, Items],
) -> dict[int, tuple[int, ...]]:
    """The ids to offer for each special that the draft proposes, by special. In this order: explicit rules read
    backwards, what ends turns, what stands around thoughts and calls, specials that have a twin.
    """
    backward: dict[int, tuple[int, ...]] = {}
    for rule in replace:
        proposed, offered = parse_rule(rule.draft, draft, rule.where), parse_rule(rule.target, target, rule.where)
        if proposed and isinstance(proposed[0], int) and proposed[0] not in backward:
            ids = _ids(offered, target, whole=len(proposed) == 1)
            if ids:
                backward[proposed[0]] = ids
    end = _end_of_turn(target, read)
    ends = {item for item in format_.turns["assistant"][1] if isinstance(item, int)} | draft.eog
    for id_ in sorted(ends | ({draft.eos} if draft.eos is not None else set())):
        if end is not None:
            backward.setdefault(id_, (end,))
    for special, span_ids in _spans_back(target, read, format_):
        backward.setdefault(special, span_ids)
    for id_, twin in lone.items():
        if isinstance(twin[0], int):
            backward.setdefault(twin[0], (id_,))
    return backward


def _spans_back(target: VocabTable, read: Family | None, format_: Format) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The special that begins or ends thoughts and tool calls for the draft, with all that the target writes for it."""
    wraps = read.spans if read is not None else {}
    for name in (name for name in format_.spans if name in wraps):
        markers, wrap = format_.spans[name], wraps[name]
        for items, text in zip(markers, (wrap.start, wrap.end), strict=True):
            first = next((item for item in items if isinstance(item, int)), None)
            ids = _ids(parse_marker(text, target), target, whole=True)
            if first is not None and ids:
                yield first, ids


def _ids(items: Items, vocab: VocabTable, whole: bool) -> tuple[int, ...]:
    """Items as ids to offer: all of them, or the leading specials only; nothing after an end of generation."""
    ids: list[int] = []
    for item in items:
        if isinstance(item, bytes) and not whole:
            break
        ids += vocab.tokenize(item) if isinstance(item, bytes) else [item]
    stop = next((at + 1 for at, id_ in enumerate(ids) if id_ in vocab.eog), len(ids))
    return tuple(ids[:stop])


def _end_of_turn(target: VocabTable, read: Family | None) -> int | None:
    if read is not None:
        for item in parse_marker(read.roles["assistant"].end, target):
            if isinstance(item, int):
                return item
        for item in parse_marker(read.roles["user"].start, target)[:1]:
            if isinstance(item, int) and item in target.eog:
                return item
    return target.eos if target.eot is None else target.eot


def _lines(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    format_: Format,
    replace: Sequence[Replacement],
    backward: dict[int, tuple[int, ...]],
) -> tuple[str, ...]:
    lines = [f"{rule.where}: {rule.target!r} -> {rule.draft!r}" for rule in replace]
    if format_.begin:
        lines.append(f"start of stream -> {show(format_.begin, draft)}")
    if read is not None:
        lines += [
            _role_line(role, read, format_, target, draft)
            for role in read.roles
            if role != "system" or read.system == "turn"
        ]
    for id_, ids in backward.items():
        lines.append(f"draft proposes {show((id_,), draft)} -> {show(items_of(ids, target), target)} is offered")
    return tuple(lines)


def _role_line(role: str, read: Family, format_: Format, target: VocabTable, draft: VocabTable) -> str:
    turn = read.roles[role]
    shown = (
        f"{role}: {show(parse_marker(turn.start, target), target)} ... "
        f"{show(parse_marker(turn.end, target), target)} -> "
    )
    written = format_.family.role_of(role)
    start, end, _ = format_.turns[written]
    if written == "system" and format_.family.system == "drop":
        return shown + "left out"
    if written == "system" and format_.family.system == "prefix":
        return shown + f"in the next user turn as {show(start, draft)} ... {show(end, draft)}"
    return shown + f"{show(start, draft)} ... {show(end, draft)}"


def _warnings(target: VocabTable, dropped: frozenset[int] | set[int], template: str | None) -> tuple[str, ...]:
    """Only specials that the chat template writes deserve a line; the rest of a vocabulary never comes up in a chat."""
    used = sorted(target.special_names[id_] for id_ in dropped if template and target.special_names[id_] in template)
    if not used:
        return ()
    more = f" and {len(used) - 6} more" if len(used) > 6 else ""
    return (f"no rule for {', '.join(used[:6])}{more}: left out of what the draft sees",)


# --- what a family is read by, in the target's vocabulary


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
    # A system message inside of the first user's turn can be kept apart only where it has a marker of its own, as
    # Llama 2's in "[INST] <<SYS>>\nBe brief\n<</SYS>>\n\nHi [/INST]".
    is_wrapped = family.system == "prefix" and bool(family.roles["system"].start)
    if is_wrapped:
        wrapped = parse_marker(family.roles["user"].start + family.roles["system"].start, vocab)
        starts.setdefault(wrapped, Step((Mark("system", TurnKind.START),)))
    special_starts = {items: step for items, step in starts.items() if isinstance(items[0], int)}
    states = {marker.role: special_starts | _ends(marker, markers) for marker in markers}
    if family.system == "prefix":
        end = parse_marker(family.roles["system"].end, vocab)
        marks = (Mark("system", TurnKind.END), Mark("user", TurnKind.START))
        states["system"] = special_starts | ({end: Step(marks)} if end and is_wrapped else {})
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
    first = {
        marker.start: Step((marker.opens(),))
        for marker in markers
        if marker.start and marker.role in ("user", "assistant")
    }
    return {OUTSIDE: outside, BEGIN: _begin(family, vocab, first, outside, states), **states}


def _has_bare_system(family: Family) -> bool:
    """Whether text before the first turn is a system message."""
    return family.system == "turn" and not family.roles["system"].start


def _begin(
    family: Family, vocab: VocabTable, starts: Patterns, outside: Patterns, states: dict[str, Patterns]
) -> Patterns:
    """Patterns of the text that may stand before the first turn: the beginning, what stands for no system message, and
    all that begins a turn.
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
    extra = states["system"] if _has_bare_system(family) else {}
    return patterns | {items: step for items, step in (extra | outside).items() if items not in patterns}


def _without_bos(marker: str, vocab: VocabTable) -> Items:
    return tuple(item for item in parse_marker(marker, vocab) if item != vocab.bos)


def _markers(family: Family, vocab: VocabTable) -> list[_Marker]:
    markers = []
    for role in sorted(family.roles, key=_ORDER.index):
        if role == "system" and family.system != "turn":
            continue
        turn = family.roles[role]
        stripped = family.opening if role == "assistant" else turn.start.rstrip(" ")
        start = parse_marker(stripped, vocab)
        texts = [turn.start, family.prompt or turn.start] if role == "assistant" else [turn.start]
        tails = [rest_of(parse_marker(text, vocab), start) for text in texts]
        markers.append(_Marker(role, start, tuple(tail for tail in tails if tail), parse_marker(turn.end, vocab)))
    return markers


def _add_starts(starts: Patterns, marker: _Marker, markers: list[_Marker]) -> None:
    # ChatML's "<|im_start|>user\n" is looked for as a whole, and up to its last special, "<|im_start|>", since models
    # write "<|im_start|> user" too. But that is how every turn begins: where several share it, it counts as the user's.
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
    # ChatML's user ends with "<|im_end|>\n", or with "<|im_end|>" alone, which is not `whole`. Vicuna's user ends with
    # nothing but a blank, so what ends the turn is that another one starts: " ASSISTANT:" closes one and opens the
    # other.
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
