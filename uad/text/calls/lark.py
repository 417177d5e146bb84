"""The parts that calls are put together from (exact texts, patterns, JSON values, choices), and a grammar of them in
llguidance's dialect of Lark. Knows no format of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from uad.text.calls.format import THINK_TAGS
from uad.text.calls.tools import ToolSchema
from uad.text.mapping.families import ThoughtFormat

_FINAL = "<|channel|>final"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_STYLE = "x-guidance"
_A_NAME = "[a-zA-Z_][a-zA-Z0-9_]{0,63}"


@dataclass(frozen=True)
class Literal:
    """Exactly this text."""

    text: str


@dataclass(frozen=True)
class Pattern:
    """A text that a regular expression matches."""

    regex: str


@dataclass(frozen=True)
class JsonValue:
    """A JSON value that a schema allows."""

    schema: ToolSchema


@dataclass(frozen=True)
class FreeText:
    """Any text up to `until`, which follows it. It does not contain `without`, with which `until` ends. must: regular
    expressions that all match the whole text; never: those of which none does.
    """

    until: str
    without: str
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneOf:
    """One of these texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Maybe:
    """These parts, or nothing."""

    parts: tuple[GrammarPart, ...]


@dataclass(frozen=True)
class AnyRow:
    """One of these rows of parts."""

    rows: tuple[tuple[GrammarPart, ...], ...]


@dataclass(frozen=True)
class NewName:
    """A name other than these."""

    taken: tuple[str, ...]


@dataclass(frozen=True)
class Argument:
    """One argument as it is written, with its name. One that is not required may be missing."""

    parts: tuple[GrammarPart, ...]
    is_required: bool


@dataclass(frozen=True)
class ArgumentList:
    """Arguments in this order, with `between` between those that are there, and then any number of `more`."""

    listed: tuple[Argument, ...]
    between: str = ""
    more: tuple[GrammarPart, ...] = ()


GrammarPart: TypeAlias = Literal | Pattern | JsonValue | FreeText | OneOf | Maybe | AnyRow | NewName | ArgumentList

HEADER: tuple[GrammarPart, ...] = (Literal(_FINAL), Maybe((Literal(" <|constrain|>json"),)), Literal("<|message|>"))
"""The header of the message for the user, in harmony."""


@dataclass(frozen=True)
class CallShape:
    """How a call of one tool is written."""

    name: str
    parts: tuple[GrammarPart, ...]


@dataclass(frozen=True)
class GrammarOpening:
    """Where a grammar begins, and what else it allows."""

    after: str = ""
    """The beginning of a call that stands before it."""
    may_think: bool = False
    """Thoughts may come first."""
    is_thought_over: bool = False
    """It begins where a thought has ended."""
    answer: ToolSchema | None = None
    """JSON schema of what may be said instead of calls."""


_BARE = GrammarOpening()


@dataclass(frozen=True)
class CallGrammar:
    """`begin`, one of `calls`, more of them after `between` each if `many`, and `finish`."""

    begin: str = ""
    calls: tuple[CallShape, ...] = ()
    between: str = ""
    finish: str = ""
    many: bool = False
    trigger: str = ""
    """A marker with which calls begin, and nothing else; empty where a format has none."""
    thought: ThoughtFormat = THINK_TAGS
    """The marks around thoughts before calls."""
    after_thought: str = ""
    """The text between thoughts and calls."""
    lazy: tuple[str, ...] = ()
    """Texts with which calls begin, and prose does not, for formats without a trigger."""

    @property
    def opener(self) -> str:
        """The text with which every call begins."""
        first = {call.parts[0] for call in self.calls}
        part = next(iter(first))
        return part.text if len(first) == 1 and isinstance(part, Literal) else ""

    def lark(
        self,
        specials: Mapping[str, str] = _NOTHING,
        style: Mapping[str, object] = _NOTHING,
        opening: GrammarOpening = _BARE,
    ) -> str:
        """The calls as a grammar in llguidance's dialect of Lark. specials: the notation of each name that is one
        token. style: llguidance's options for JSON.
        """
        return CallLark(self, specials, style).text(opening)


class CallLark:
    """Writes a grammar rule by rule."""

    def __init__(self, grammar: CallGrammar, specials: Mapping[str, str], style: Mapping[str, object]) -> None:
        self._grammar = grammar
        self._specials = specials
        self._style = style
        around = (grammar.begin, grammar.finish, grammar.thought.start, grammar.thought.end, grammar.after_thought)
        parts = [part for call in grammar.calls for part in call.parts]
        written = "\n".join([*around, *_texts([*HEADER, *parts])])
        names = sorted((name for name in specials if name and name in written), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names))) if names else None
        self._rules: list[str] = []

    def text(self, opening: GrammarOpening) -> str:
        """See `CallGrammar.lark`."""
        grammar, opener = self._grammar, self._grammar.opener
        if not (grammar.begin + opener).startswith(opening.after):
            raise ValueError(f"no call begins with {opening.after!r}")
        for n, call in enumerate(grammar.calls):
            self._rule(f"call_{n}", self._sequence(call.parts[1:] if opener else call.parts, f"call_{n}"))
        body = " | ".join(f"call_{n}" for n in range(len(grammar.calls)))
        more = f" ({self._literal(grammar.between + opener)} body)*" if grammar.many else ""
        first = self._literal((grammar.begin + opener).removeprefix(opening.after))
        header = HEADER if grammar.after_thought else ()
        answer = ""
        if opening.answer is not None:
            answer = f" | {self._sequence((*header, JsonValue(opening.answer)), 'answer')}"
        lead = f"{self._thought()} " if opening.may_think else f"{self._gap()} " if opening.is_thought_over else ""
        calls = f"{first} body{more} {self._literal(grammar.finish)}{answer}"
        return "\n".join([f"start: {lead}calls", f"calls: {calls}", f"body: {body}", *self._rules, ""])

    def lead(self, header: tuple[GrammarPart, ...], is_thought_over: bool) -> str:
        """The rules for the text before an answer that is no call. header: what the answer itself begins with."""
        before = self._gap() if is_thought_over else self._thought()
        return "\n".join([f"lead: {before} {self._sequence(header, 'header')}", *self._rules, ""])

    def _thought(self) -> str:
        """A thought, or none."""
        start, end = self._grammar.thought.start.strip(), self._grammar.thought.end.strip()
        self._rules.append(f"thought: {self._sequence((Literal(start), FreeText(end, end), Literal(end)), 'thought')}")
        return f"(thought {self._gap()})?"

    def _gap(self) -> str:
        """The text between a thought and a call: some white space, or a header."""
        if self._grammar.after_thought:
            return self._literal(self._grammar.after_thought)
        self._rules.append("GAP: /[ \\n]{1,4}/")
        return "GAP?"

    def _sequence(self, parts: tuple[GrammarPart, ...], name: str) -> str:
        """Parts in a row. A text holds what ends it, which is left out of the literal after it."""
        written: list[str] = []
        done = ""
        for i, part in enumerate(parts):
            rest = Literal(part.text.removeprefix(done)) if isinstance(part, Literal) else part
            written.append(self._part(rest, f"{name}_{i}"))
            done = self._held(part.until) if isinstance(part, FreeText) else ""
        return " ".join(written) or '""'

    def _part(self, part: GrammarPart, name: str) -> str:
        match part:
            case Literal():
                return self._literal(part.text)
            case Pattern():
                return f"/{part.regex}/"
            case JsonValue():
                schema = {_STYLE: self._style, **part.schema} if self._style else part.schema
                return self._rule(name, f"%json {json.dumps(schema, ensure_ascii=False)}")
            case FreeText():
                return self._any_text(name.upper(), part)
            case OneOf():
                return "({})".format(" | ".join(_quoted(text) or '""' for text in part.texts))
            case Maybe():
                return f"({self._sequence(part.parts, name)})?"
            case AnyRow():
                return f"({' | '.join(self._sequence(row, f'{name}_{i}') for i, row in enumerate(part.rows))})"
            case NewName():
                taken = "|".join(map(slashed, part.taken))
                return self._rule(name.upper(), f"/{_A_NAME}/{f' & ~/({taken})/' if taken else ''}")
            case ArgumentList():
                return self._arguments(part, name)

    def _arguments(self, part: ArgumentList, name: str) -> str:
        """Arguments in a row, from the last one on. `rest_2` is what may follow an argument, `first_2` what may begin
        where none was written: `rest_2: ("," arg_2)? rest_3`, `first_2: arg_2 rest_3 | first_3`.
        """
        more = self._rule(f"{name}_more", self._sequence(part.more, f"{name}_m")) if part.more else ""
        if not part.between:
            rows = [
                f"({self._sequence(argument.parts, f'{name}_{i}')}){'' if argument.is_required else '?'}"
                for i, argument in enumerate(part.listed)
            ]
            return " ".join([*rows, f"({more})*"] if more else rows) or '""'
        between = self._literal(part.between)
        rest = self._rule(f"{name}_rest", f"({between} {more})*" if more else '""')
        first = self._rule(f"{name}_first", f"({more} {rest})?" if more else '""')
        for i, argument in reversed([*enumerate(part.listed)]):
            own = self._rule(f"{name}_{i}", self._sequence(argument.parts, f"{name}_{i}"))
            begun = f"{own} {rest}" + ("" if argument.is_required else f" | {first}")
            goes_on = f"({between} {own}){'' if argument.is_required else '?'} {rest}"
            first, rest = self._rule(f"{name}_first_{i}", begun), self._rule(f"{name}_rest_{i}", goes_on)
        return first

    def _rule(self, name: str, body: str) -> str:
        self._rules.append(f"{name}: {body}")
        return name

    def _any_text(self, name: str, part: FreeText) -> str:
        """The text with what is `_held` of its end. It ends where it can, so that nothing else is taken into it."""
        # A value up to "</parameter>" becomes /(?s:.*)<\/parameter>/ & ~/(?s:.*)<\/parameter>(?s:.+)/: it ends with the
        # tag, and holds none before. Were the tag a literal of its own, "a</parameter>" could begin a longer value too.
        held = self._held(part.until)
        end, more = slashed(held), "+" if held == part.until else "*"
        sides = [f"/(?s:.*){end}/", f"~/(?s:.*){slashed(part.without)}(?s:.{more})/"]
        sides += [f"/(?:{regex}){end}/" for regex in part.must] + [f"~/(?:{regex}){end}/" for regex in part.never]
        return self._rule(name, " & ".join(sides))

    def _held(self, until: str) -> str:
        """The part before the first special in a text that ends another."""
        match = self._names.search(until) if self._names is not None else None
        return until[: match.start()] if match else until

    def _literal(self, text: str) -> str:
        """The text with the names that are one token in their own notation."""
        pieces, at = [], 0
        for match in self._names.finditer(text) if self._names is not None else ():
            pieces += [_quoted(text[at : match.start()]), self._specials[match[0]]]
            at = match.end()
        return " ".join(piece for piece in (*pieces, _quoted(text[at:])) if piece) or '""'


def _texts(parts: Sequence[GrammarPart]) -> Iterator[str]:
    """The literal texts of parts."""
    waiting = [*parts]
    while waiting:
        part = waiting.pop()
        match part:
            case Literal():
                yield part.text
            case FreeText():
                yield part.until
            case Maybe():
                waiting += part.parts
            case AnyRow():
                waiting += [inner for row in part.rows for inner in row]
            case ArgumentList():
                waiting += [Literal(part.between), *part.more, *(inner for arg in part.listed for inner in arg.parts)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def slashed(text: str) -> str:
    """The text as a regular expression between slashes."""
    return re.escape(text).replace("/", "\\/").replace("\n", "n")
