"""What a grammar must allow where an answer has to call a tool: a format's own text around names and arguments. Knows
no grammar engine.

The text comes from the format's example, in which the tool's name, its arguments and the call's id are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from uad.calls.format import ANALYSIS, QUOTE, THINK_TAGS, AnswerFormat, CallFormat, Tags
from uad.calls.parts import FreeText, Json, Literal, Maybe, OneOf, Part, Pattern
from uad.calls.tools import Calls, Schema, Tool, resolved, types_in
from uad.errors import MappingError
from uad.mapping.families import ThoughtFormat

_NAME = "look_up"
_ID = "a1b2c3d4e"
_IDS = "[a-zA-Z0-9]{9}"
_CALL_CHANNEL = "<|channel|>commentary to=functions."
ASSISTANT = "<|start|>assistant"
_FINAL = "<|channel|>final"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_STYLE = "x-guidance"


_HEADER: tuple[Part, ...] = (Literal(_FINAL), Maybe((Literal(" <|constrain|>json"),)), Literal("<|message|>"))
"""Of the message for the user, in harmony."""


@dataclass(frozen=True)
class CallShape:
    """How a call of one tool is written."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Opening:
    """Where a grammar begins, and what else it allows.

    behind: the beginning of a call that stands before it. may_think: thoughts may come first. is_thought_over: it
    begins where a thought has ended. answer: JSON schema of what may be said instead of calls.
    """

    behind: str = ""
    may_think: bool = False
    is_thought_over: bool = False
    answer: Schema | None = None


_BARE = Opening()


@dataclass(frozen=True)
class CallGrammar:
    """`begin`, one of `calls`, more of them behind `between` each if `many`, and `finish`.

    `trigger` is a marker with which calls begin, and nothing else; empty where a format has none. `lazy` are texts then
    with which calls begin, and prose does not. thought: what stands around thoughts before calls, and behind_thought
    what stands between them and calls.
    """

    begin: str = ""
    calls: tuple[CallShape, ...] = ()
    between: str = ""
    finish: str = ""
    many: bool = False
    trigger: str = ""
    thought: ThoughtFormat = THINK_TAGS
    behind_thought: str = ""
    lazy: tuple[str, ...] = ()

    @property
    def opener(self) -> str:
        """The text with which every call begins."""
        first = {call.parts[0] for call in self.calls}
        part = next(iter(first))
        return part.text if len(first) == 1 and isinstance(part, Literal) else ""

    def lark(
        self, specials: Mapping[str, str] = _NOTHING, style: Mapping[str, object] = _NOTHING, opening: Opening = _BARE
    ) -> str:
        """As a grammar in llguidance's dialect of Lark.

        specials: the notation of each name that is one token. style: llguidance's options for JSON.
        """
        return _Lark(self, specials, style).text(opening)


def grammar_of(format_: CallFormat, calls: Calls, thought: ThoughtFormat = THINK_TAGS) -> CallGrammar | None:
    """What calls of these tools look like in a format; None where an answer may hold none."""
    tools = calls.allowed()
    if not tools:
        return None
    begin, call, finish = _cut(format_, format_.example.strip())
    return CallGrammar(
        begin=begin,
        calls=tuple(CallShape(tool.name, tuple(_parts(format_, call, tool))) for tool in tools),
        between=", " if format_.body in ("list", "python") else "\n" if "\n" in call or begin.endswith("\n") else "",
        finish=finish,
        many=calls.parallel and not calls.named,
        trigger=_trigger(format_),
        thought=ANALYSIS if format_.channels else thought,
        behind_thought=ASSISTANT if format_.channels else "",
        lazy=tuple(dict.fromkeys(text.replace("{name}", tool.name) for text in format_.lazy for tool in tools)),
    )


def lead_lark(answers: AnswerFormat, specials: Mapping[str, str], is_thought_over: bool) -> str:
    """What may stand before an answer that is no call, as rules of Lark, the first named lead: a thought and what
    follows it. With is_thought_over only the latter.
    """
    around = CallGrammar(thought=answers.marks, behind_thought=ASSISTANT if answers.channels else "")
    return _Lark(around, specials, _NOTHING).lead(_HEADER if answers.channels else (), is_thought_over)


def _trigger(format_: CallFormat) -> str:
    """A marker with which calls begin; words that prose may have are none."""
    if format_.channels:
        return _CALL_CHANNEL
    first = next(iter(format_.openers()), "")
    return first if first.startswith(("<", "[", "]<")) else ""


def _cut(format_: CallFormat, text: str) -> tuple[str, str, str]:
    """An example as what stands before its call, the call, and what stands behind it."""
    if format_.body in ("list", "python"):
        start, end = _list_of(format_, text)
    else:
        start = text.index(format_.start) if format_.start else 0 if format_.channels else text.index("{")
        end = text.rindex(format_.end) + len(format_.end) if format_.end else text.rindex("}") + 1
    return text[:start], text[start:end], text[end:]


def _list_of(format_: CallFormat, text: str) -> tuple[int, int]:
    opener = text.index("[", text.index(format_.begin) + len(format_.begin)) if format_.begin else text.index("[")
    start = opener + 1 + len(re.match(r"\s*", text[opener + 1 :])[0])  # type: ignore[index]
    end = text.rindex("]")
    return start, len(text[:end].rstrip())


def _parts(format_: CallFormat, call: str, tool: Tool) -> Iterator[Part]:
    before, after = call.split(_NAME, 1)
    yield from _around_id(before)
    yield Literal(tool.name)
    if format_.body in ("tagged", "python", "gemma"):
        yield from _arguments(format_, after, tool)
        return
    found = re.search(r"\{\s*\"word\": \"tea\",\s*\"n\": 3\s*\}", after)
    if found is None:
        raise MappingError(f'calls {format_.name}: the example lacks the arguments {{"word": "tea", "n": 3}}')
    yield from _around_id(after[: found.start()])
    yield Json({"type": "object", **tool.parameters})
    yield from _around_id(after[found.end() :])


def _around_id(text: str) -> Iterator[Part]:
    """Literals and what ids may be: of nine letters and digits, or a number behind the name."""
    for piece in re.split(f'({_ID}|(?<=:)0(?=<)|(?<=_id": ")0)', text):
        if piece == _ID:
            yield Pattern(_IDS)
        elif piece == "0":
            yield Pattern("[0-9]+")
        elif piece:
            yield Literal(piece)


def _arguments(format_: CallFormat, after: str, tool: Tool) -> Iterator[Part]:
    """Arguments one by one in the order of the schema; in tags, those that are not required may be missing."""
    tags = format_.tags or Tags(key="", key_end="=" if format_.body == "python" else ":", value_end="")
    first, last = after.index(f"{tags.key}word"), after.index(f"{tags.key}n")
    yield Literal(after[:first])
    between = after[first:last].partition("tea")[2].removeprefix(_close(tags, "word"))
    gap = after[first:].partition(tags.key_end)[2].partition(tags.value)[0] if tags.value else ""
    required = tool.parameters.get("required", [])
    properties = resolved(tool.parameters, tool.parameters).get("properties", {})
    for n, (key, schema) in enumerate(properties.items() if isinstance(properties, Mapping) else ()):
        parts = tuple(_argument(format_, tags, gap, key, schema if isinstance(schema, Mapping) else {}, tool))
        if format_.tags is None:
            yield from (Literal(", " if format_.body == "python" else ","), *parts) if n else parts
            continue
        parts = (*parts, Literal(between)) if between else parts
        yield from parts if key in required else (Maybe(parts),)
    closing = after[last:].partition("3")[2].removeprefix(_close(tags, "n"))
    yield Literal(closing.removeprefix(between) if format_.tags else closing)


def _close(tags: Tags, key: str) -> str:
    """What stands behind a value."""
    return ("\n" if tags.lines else "") + tags.value_end.replace("{key}", key)


def _argument(format_: CallFormat, tags: Tags, gap: str, key: str, schema: Schema, tool: Tool) -> Iterator[Part]:
    types, only = types_in(schema, tool.parameters), _only(resolved(schema, tool.parameters))
    is_text = types == {"string"} and (only is None or all(isinstance(value, str) for value in only))
    yield Literal(f"{tags.key}{key}{_key_end(tags, types)}{gap}{tags.value}" + ("\n" if tags.lines else ""))
    close = _close(tags, key)
    ends = (QUOTE, QUOTE) if format_.body == "gemma" else (close, close.removeprefix("\n") if tags.lines else close)
    text = FreeText(*ends) if only is None else OneOf(tuple(map(str, only)))
    if is_text and format_.body == "gemma":
        yield from (Literal(QUOTE), text, Literal(QUOTE))
    elif is_text and format_.tags is not None:
        yield from (text, Literal(close))
    else:
        yield Json(
            {**schema, **{name: tool.parameters[name] for name in ("$defs", "definitions") if name in tool.parameters}}
        )
        yield from [Literal(close)] if close else []


def _only(schema: Schema) -> Sequence[object] | None:
    """The values that a schema allows by name; None where it names none."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) and found else None


def _key_end(tags: Tags, types: frozenset[str]) -> str:
    """What ends an argument's name, where it says what kind of value follows."""
    if types == {"string"} and tags.text_ends:
        return tags.text_ends[0]
    kinds = {"number" if kind == "integer" else kind for kind in types}
    return next(
        (end for end in tags.json_ends if any(f'"{kind}"' in end for kind in kinds)), (*tags.json_ends, tags.key_end)[0]
    )


class _Lark:
    """Writes a grammar rule by rule."""

    def __init__(self, grammar: CallGrammar, specials: Mapping[str, str], style: Mapping[str, object]) -> None:
        self._grammar = grammar
        self._specials = specials
        self._style = style
        around = (grammar.begin, grammar.finish, grammar.thought.start, grammar.thought.end, grammar.behind_thought)
        parts = [part for call in grammar.calls for part in call.parts]
        written = "\n".join([*around, *_texts([*_HEADER, *parts])])
        names = sorted((name for name in specials if name and name in written), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names))) if names else None
        self._rules: list[str] = []

    def text(self, opening: Opening) -> str:
        """See `CallGrammar.lark`."""
        found, opener = self._grammar, self._grammar.opener
        if not (found.begin + opener).startswith(opening.behind):
            raise ValueError(f"no call begins with {opening.behind!r}")
        body = " | ".join(self._call(n, call, opener) for n, call in enumerate(found.calls))
        more = f" ({self._literal(found.between + opener)} body)*" if found.many else ""
        first = self._literal((found.begin + opener).removeprefix(opening.behind))
        answer = f" | {self._answer(opening.answer)}" if opening.answer is not None else ""
        lead = f"{self._thought()} " if opening.may_think else f"{self._gap()} " if opening.is_thought_over else ""
        calls = f"{first} body{more} {self._literal(found.finish)}{answer}"
        return "\n".join([f"start: {lead}calls", f"calls: {calls}", f"body: {body}", *self._rules, ""])

    def lead(self, header: tuple[Part, ...], is_thought_over: bool) -> str:
        """See `lead_lark`. header: what the answer itself begins with."""
        before = self._gap() if is_thought_over else self._thought()
        return "\n".join([f"lead: {before} {self._sequence(header, 'header')}", *self._rules, ""])

    def _answer(self, schema: Schema) -> str:
        """What may be said instead of calls."""
        header = _HEADER if self._grammar.behind_thought else ()
        return self._sequence((*header, Json(schema)), "answer")

    def _thought(self) -> str:
        """A thought, or none."""
        start, end = self._grammar.thought.start.strip(), self._grammar.thought.end.strip()
        self._rules.append(f"thought: {self._sequence((Literal(start), FreeText(end, end), Literal(end)), 'thought')}")
        return f"(thought {self._gap()})?"

    def _gap(self) -> str:
        """What stands between a thought and a call: some white space, or a header."""
        if self._grammar.behind_thought:
            return self._literal(self._grammar.behind_thought)
        self._rules.append("GAP: /[ \\n]{1,4}/")
        return "GAP?"

    def _call(self, number: int, call: CallShape, opener: str) -> str:
        name = f"call_{number}"
        self._rules.append(f"{name}: {self._sequence(call.parts[1:] if opener else call.parts, name)}")
        return name

    def _sequence(self, parts: tuple[Part, ...], name: str) -> str:
        """Parts in a row. A text holds what ends it, which is left out of the literal behind it."""
        written: list[str] = []
        done = ""
        for i, part in enumerate(parts):
            rest = Literal(part.text.removeprefix(done)) if isinstance(part, Literal) else part
            written.append(self._part(rest, f"{name}_{i}"))
            done = self._held(part.until) if isinstance(part, FreeText) else ""
        return " ".join(written) or '""'

    def _part(self, part: Part, name: str) -> str:
        match part:
            case Literal():
                return self._literal(part.text)
            case Pattern():
                return f"/{part.regex}/"
            case Json():
                self._rules.append(f"{name}: %json {json.dumps(self._styled(part.schema), ensure_ascii=False)}")
                return name
            case FreeText():
                return self._any_text(name.upper(), part)
            case OneOf():
                return f"({' | '.join(json.dumps(text, ensure_ascii=False) for text in part.texts)})"
            case Maybe():
                return f"({self._sequence(part.parts, name)})?"

    def _styled(self, schema: Schema) -> Schema:
        return {_STYLE: self._style, **schema} if self._style else schema

    def _any_text(self, name: str, part: FreeText) -> str:
        """The text with what is `_held` of its end. It ends where it can, so that nothing else is taken into it."""
        held = self._held(part.until)
        more = "+" if held == part.until else "*"
        self._rules.append(f"{name}: /(?s:.*){_escaped(held)}/ & ~/(?s:.*){_escaped(part.without)}(?s:.{more})/")
        return name

    def _held(self, until: str) -> str:
        """What stands before the first special in a text that ends another."""
        found = self._names.search(until) if self._names is not None else None
        return until[: found.start()] if found else until

    def _literal(self, text: str) -> str:
        """The text with the names that are one token in their own notation."""
        pieces, at = [], 0
        for found in self._names.finditer(text) if self._names is not None else ():
            pieces += [_quoted(text[at : found.start()]), self._specials[found[0]]]
            at = found.end()
        return " ".join(piece for piece in (*pieces, _quoted(text[at:])) if piece) or '""'


def _texts(parts: Sequence[Part]) -> Iterator[str]:
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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _escaped(text: str) -> str:
    """The text as a regular expression between slashes."""
    return re.escape(text).replace("/", "\\/").replace("\n", "n")
