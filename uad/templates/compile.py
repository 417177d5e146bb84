"""From families and replacements to the patterns of one pair of vocabularies. Must not know where the rules were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from uad.errors import MappingError
from uad.templates.families import Family
from uad.templates.patterns import Items, normalise, parse_marker, parse_rule, show
from uad.templates.rules import CompiledRules, Step, Table, symbols
from uad.templates.turns import OUTSIDE, Format, Mark, bare
from uad.vocab.table import VocabTable

Patterns = dict[Items, Step]
_ORDER = ("assistant", "user", "system", "tool", "developer")


@dataclass(frozen=True, slots=True)
class Replacement:
    """An explicit rule. `where` says who wrote it; rules of a lower `layer` number win."""

    target: str
    draft: str
    where: str
    layer: int = 0


@dataclass(frozen=True)
class _Marker:
    """A turn of the target's family in its own vocabulary; `optional` are spaces at the end of the start that may be missing."""

    role: str
    start: Items
    optional: bytes
    end: Items

    def opens(self) -> Mark:
        return Mark(self.role, is_start=True, optional=self.optional)

    def closes(self, whole: bool = True) -> Mark:
        return Mark(self.role, is_start=False, whole=whole)


def compile_rules(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    write: Family,
    replace: Sequence[Replacement] = (),
    template: str | None = None,
) -> CompiledRules:
    """Rules for a pair. `read` is the target's family (None: unknown), `write` the draft's; `template` only says which specials matter.

    Raises MappingError for a replacement that is empty, contradicts another, or names a special that the vocabulary lacks.
    """
    reader = None if read is None or read.write_only else read
    family_patterns = _reader_patterns(reader, target) if reader else {OUTSIDE: {}}
    format_ = Format.of(write, draft)
    explicit, unreachable = _explicit(target, draft, replace, family_patterns)
    tables = {state: Table(explicit | _reachable(patterns, explicit)) for state, patterns in family_patterns.items()}
    marks = {item for patterns in (*family_patterns.values(), explicit) for items in patterns for item in items if isinstance(item, int)}
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
    )


def _reader_patterns(family: Family, vocab: VocabTable) -> dict[str, Patterns]:
    """Patterns by state: between turns everything may match; inside one its own end does, and starts that begin with a special."""
    markers = _markers(family, vocab)
    starts: Patterns = {}
    for marker in markers:
        _add_starts(starts, marker, markers, vocab)
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
    begin = tuple(item for item in parse_marker(family.begin, vocab) if item != vocab.bos)
    if begin and isinstance(begin[0], int):
        outside.setdefault(begin, Step())
    return {OUTSIDE: outside, **states}


def _markers(family: Family, vocab: VocabTable) -> list[_Marker]:
    found = []
    for role in sorted(family.roles, key=_ORDER.index):
        if role == "system" and family.system != "turn":
            continue
        turn = family.roles[role]
        stripped = turn.start.rstrip(" ")
        optional = turn.start[len(stripped) :].encode()
        found.append(_Marker(role, parse_marker(stripped, vocab), optional, parse_marker(turn.end, vocab)))
    return found


def _add_starts(starts: Patterns, marker: _Marker, markers: list[_Marker], vocab: VocabTable) -> None:
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
            starts[part] = Step((Mark("user", is_start=True),)) if shared else step


def _ends(marker: _Marker, markers: list[_Marker]) -> Patterns:
    assistant = next(other for other in markers if other.role == "assistant")
    implied = (assistant.opens(),) if marker.role == "user" and not assistant.start else ()
    ends: Patterns = {}
    if not marker.end or _is_white(marker.end):
        for other in markers:
            if other.start and isinstance(other.start[0], bytes):
                items = tuple(normalise((*marker.end, *other.start)))
                ends.setdefault(items, Step((marker.closes(), other.opens())))
        return ends
    ends[marker.end] = Step((marker.closes(), *implied))
    if bare(marker.end):
        ends.setdefault(bare(marker.end), Step((marker.closes(whole=False), *implied)))
    return ends


def _is_white(items: Items) -> bool:
    return all(isinstance(item, bytes) and not item.strip() for item in items)


def _add_wrapped_system(starts: Patterns, family: Family, vocab: VocabTable) -> None:
    """A system message that stands inside the first user turn can be told from it only if it has a marker of its own."""
    if family.roles["system"].start:
        items = parse_marker(family.roles["user"].start + family.roles["system"].start, vocab)
        starts.setdefault(items, Step((Mark("system", is_start=True),)))


def _wrapped_system_end(family: Family, vocab: VocabTable) -> Patterns:
    end = parse_marker(family.roles["system"].end, vocab)
    marks = (Mark("system", is_start=False), Mark("user", is_start=True))
    return {end: Step(marks)} if end and family.roles["system"].start else {}


def _explicit(
    target: VocabTable, draft: VocabTable, replace: Sequence[Replacement], family: dict[str, Patterns]
) -> tuple[Patterns, tuple[str, ...]]:
    patterns: Patterns = {}
    origin: dict[Items, Replacement] = {}
    unreachable = []
    for rule in sorted(replace, key=lambda rule: rule.layer):
        items, emit = parse_rule(rule.target, target, rule.where), parse_rule(rule.draft, draft, rule.where)
        if not items:
            raise MappingError(f"{rule.where}: the target side of a replacement is empty; it must name what is to be replaced")
        same = origin.get(items)
        if same is not None and same.layer == rule.layer and patterns[items].emit != emit:
            raise MappingError(f"{rule.where}: {rule.target!r} is replaced by {rule.draft!r} here but by {same.draft!r} in {same.where}")
        higher: Patterns = {known: patterns[known] for known, by in origin.items() if by.layer < rule.layer}
        if not _reachable({items: Step()}, higher):
            unreachable.append(f"{rule.where}: the rule for {rule.target!r} never applies; a rule with precedence matches first")
        elif same is None:
            patterns[items] = Step(_marks_in(items, family), emit)
            origin[items] = rule
    return patterns, tuple(unreachable)


def _reachable(patterns: Patterns, higher: Patterns) -> Patterns:
    """The patterns of which no pattern with precedence is a prefix."""
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
    stream = tuple(symbols(items))
    by_symbols = {state: {tuple(symbols(key)): step for key, step in patterns.items()} for state, patterns in family.items()}
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
        state = marks[-1].role if marks and marks[-1].is_start else OUTSIDE
        at += len(key)
    return tuple(marks)


def _lone(target: VocabTable, draft: VocabTable, marks: set[int], format_: Format) -> dict[int, Items]:
    """Specials outside every pattern: the same name where neither format uses it for turns, end of document to end of document."""
    structure = format_.ids() | ({draft.bos} if draft.bos is not None else set())
    lone: dict[int, Items] = {}
    for name, id_ in target.specials.items():
        if id_ in marks:
            continue
        twin = draft.specials.get(name)
        if twin is not None and twin not in structure:
            lone[id_] = (twin,)
        elif id_ in target.eog and draft.eos is not None:
            lone[id_] = (draft.eos,)
    return lone


def _backward(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    format_: Format,
    replace: Sequence[Replacement],
    lone: dict[int, Items],
) -> dict[int, tuple[int, ...]]:
    backward: dict[int, tuple[int, ...]] = {}
    for rule in sorted(replace, key=lambda rule: rule.layer):
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
    for id_, twin in lone.items():
        if isinstance(twin[0], int):
            backward.setdefault(twin[0], (id_,))
    return backward


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
    return target.eos if target.eot is None else target.eot


def _lines(
    target: VocabTable,
    draft: VocabTable,
    read: Family | None,
    format_: Format,
    replace: Sequence[Replacement],
    backward: dict[int, tuple[int, ...]],
) -> tuple[str, ...]:
    lines = [f"{rule.where}: {rule.target!r} -> {rule.draft!r}" for rule in sorted(replace, key=lambda rule: rule.layer)]
    if format_.begin:
        lines.append(f"start of stream -> {show(format_.begin, draft)}")
    if read is not None:
        lines += [_role_line(role, read, format_, target, draft) for role in read.roles if role != "system" or read.system == "turn"]
    for id_, ids in backward.items():
        lines.append(f"draft proposes {show((id_,), draft)} -> {show(_named(ids, target), target)} is offered")
    return tuple(lines)


def _named(ids: tuple[int, ...], vocab: VocabTable) -> Items:
    return tuple(id_ if vocab.is_special(id_) else vocab.pieces[id_] for id_ in ids)


def _role_line(role: str, read: Family, format_: Format, target: VocabTable, draft: VocabTable) -> str:
    turn = read.roles[role]
    shown = f"{role}: {show(parse_marker(turn.start, target), target)} ... {show(parse_marker(turn.end, target), target)} -> "
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
