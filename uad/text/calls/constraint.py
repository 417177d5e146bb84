"""The constraint of answers that must call tools, or must call them well: a format's own text around names and
arguments, as a grammar in a vocabulary's words.

The text comes from the format's example, in which the tool's name, its arguments and the call's id are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from uad.base.errors import InvalidRequestError, MappingError, NotSupportedError
from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.arguments import arguments
from uad.text.calls.format import ANALYSIS, THINK_TAGS, AnswerFormat, CallFormat
from uad.text.calls.lark import (
    HEADER,
    CallGrammar,
    CallLark,
    CallShape,
    GrammarOpening,
    GrammarPart,
    JsonValue,
    Literal,
    Pattern,
)
from uad.text.calls.parser import Start
from uad.text.calls.tools import Calls, Tool, ToolSchema, listed
from uad.text.grammar.schema_words import drop_idle_words
from uad.text.grammar.source import JSON_STYLE, LARK
from uad.text.mapping.families import ThoughtFormat
from uad.text.vocab.table import VocabTable

_NAME = "look_up"
_ID = "a1b2c3d4e"
_IDS = "[a-zA-Z0-9]{9}"
_CALL_CHANNEL = "<|channel|>commentary to=functions."
ASSISTANT = "<|start|>assistant"


def grammar_of(format_: CallFormat, calls: Calls, thought: ThoughtFormat = THINK_TAGS) -> CallGrammar | None:
    """The grammar of calls of these tools in a format; None where an answer may hold no calls.

    Raises InvalidRequestError for a tool whose schema is not understood.
    """
    tools = calls.allowed()
    if not tools:
        return None
    begin, call, finish = _cut(format_, format_.example.strip())
    return CallGrammar(
        begin=begin,
        calls=tuple(_shape(format_, call, calls, tool) for tool in tools),
        between=", " if format_.body in ("list", "python") else "\n" if "\n" in call or begin.endswith("\n") else "",
        finish=finish,
        many=calls.parallel and not calls.named,
        trigger=_trigger(format_),
        thought=ANALYSIS if format_.channels else thought,
        after_thought=ASSISTANT if format_.channels else "",
        lazy=tuple(dict.fromkeys(text.replace("{name}", tool.name) for text in format_.lazy for tool in tools)),
    )


def lead_lark(answers: AnswerFormat, specials: Mapping[str, str], is_thought_over: bool) -> str:
    """The text that may stand before an answer that is no call, as rules of Lark, the first named lead: a thought and
    what follows it. With is_thought_over only the latter.
    """
    around = CallGrammar(thought=answers.marks, after_thought=ASSISTANT if answers.channels else "")
    return CallLark(around, specials, {}).lead(HEADER if answers.channels else (), is_thought_over)


def _shape(format_: CallFormat, call: str, calls: Calls, tool: Tool) -> CallShape:
    try:
        if "object" not in listed(tool.parameters.get("type", "object")):
            raise InvalidRequestError("arguments are an object, so the schema must have the type object")
        return CallShape(tool.name, tuple(_parts(format_, call, tool)))
    except InvalidRequestError as error:
        where = f"tools.{calls.tools.index(tool)}.function.parameters"
        raise InvalidRequestError.at(where, str(error)) from None


def _trigger(format_: CallFormat) -> str:
    """A marker with which calls begin; words that prose may have do not count."""
    if format_.channels:
        return _CALL_CHANNEL
    first = next(iter(format_.openers()), "")
    return first if first.startswith(("<", "[", "]<")) else ""


def _cut(format_: CallFormat, text: str) -> tuple[str, str, str]:
    """An example as what stands before its call, the call, and what stands after it."""
    # Hermes' `<tool_call>{"name": …}</tool_call>` is all call, since `start` and `end` stand around each. Nemotron's
    # `<TOOLCALL>[{"name": …}]</TOOLCALL>` has one in a list: `<TOOLCALL>[`, the object, `]</TOOLCALL>`.
    if format_.body in ("list", "python"):
        opener = text.index("[", text.index(format_.begin) + len(format_.begin)) if format_.begin else text.index("[")
        start = opener + 1 + len(re.match(r"\s*", text[opener + 1 :])[0])  # type: ignore[index]
        end = len(text[: text.rindex("]")].rstrip())
    else:
        start = text.index(format_.start) if format_.start else 0 if format_.channels else text.index("{")
        end = text.rindex(format_.end) + len(format_.end) if format_.end else text.rindex("}") + 1
    return text[:start], text[start:end], text[end:]


def _parts(format_: CallFormat, call: str, tool: Tool) -> Iterator[GrammarPart]:
    before, after = call.split(_NAME, 1)
    yield from _around_id(before)
    yield Literal(json.dumps(tool.name, ensure_ascii=False)[1:-1] if format_.body in ("json", "list") else tool.name)
    if format_.body in ("tagged", "python", "gemma"):
        yield from arguments(format_, after, tool)
        return
    match = re.search(r"\{\s*\"word\": \"tea\",\s*\"n\": 3\s*\}", after)
    if match is None:
        raise MappingError(f'calls {format_.name}: the example lacks the arguments {{"word": "tea", "n": 3}}')
    yield from _around_id(after[: match.start()])
    yield JsonValue({"type": "object", **tool.parameters} | {"type": "object"})
    yield from _around_id(after[match.end() :])


def _around_id(text: str) -> Iterator[GrammarPart]:
    """Literals and what ids may be: of nine letters and digits, or a number after the name."""
    for piece in re.split(f'({_ID}|(?<=:)0(?=<)|(?<=_id": ")0)', text):
        if piece == _ID:
            yield Pattern(_IDS)
        elif piece == "0":
            yield Pattern("[0-9]+")
        elif piece:
            yield Literal(piece)


def call_constraint(
    vocab: VocabTable, answers: AnswerFormat, calls: Calls, start: Start, tail: str, answer: ToolSchema | None = None
) -> Constraint | None:
    """The constraint that a request's word about calls puts on an answer; None where it may be anything.

    A call that is required comes first, or after a thought. One that is not is constrained from its marker on, if a
    tool is strict. With the schema of an answer there is a call or such an answer. tail: the end of the prompt.

    Raises NotSupportedError where a call is required in a format that is not known, and InvalidRequestError for a
    tool's schema that is not understood.
    """
    format_ = next(iter(answers.calls), None)
    is_bound = calls.are_required or answer is not None or any(tool.strict for tool in calls.allowed())
    if not (calls.are_possible and is_bound):
        return None
    if format_ is None:
        if calls.are_required:
            raise NotSupportedError("how this model writes calls is not known; send tool_choice auto", "tool_choice")
        return None
    try:
        return _bound(vocab, answers, format_, _effective(calls), start, tail, answer)
    except RecursionError:
        raise InvalidRequestError.at("tools", "a schema is nested too deeply") from None


def _effective(calls: Calls) -> Calls:
    """The same with schemas without words that forbid nothing."""
    return replace(calls, tools=tuple(replace(tool, parameters=_without_idle(tool.parameters)) for tool in calls.tools))


def _without_idle(schema: ToolSchema) -> ToolSchema:
    return drop_idle_words(json.loads(json.dumps(schema)))


def _bound(
    vocab: VocabTable,
    answers: AnswerFormat,
    format_: CallFormat,
    calls: Calls,
    start: Start,
    tail: str,
    answer: ToolSchema | None,
) -> Constraint | None:
    """See `call_constraint`."""
    grammar = grammar_of(format_, calls, answers.thought)
    if grammar is None:
        return None
    if calls.are_required:
        return _from_the_start(vocab, grammar, _opening(format_, grammar, start, tail, answers.thinks), start)
    if answer is not None and not format_.plain:
        opening = replace(_opening(format_, grammar, start, tail, answers.thinks), answer=_without_idle(answer))
        return _from_the_start(vocab, grammar, opening, start)
    if not any(tool.strict for tool in calls.allowed()):
        return None
    return _from_its_marker(vocab, format_, grammar, tail)


def after_thoughts(vocab: VocabTable, answers: AnswerFormat, bound: Constraint, start: Start, tail: str) -> Constraint:
    """The constraint of an answer after the thought that has begun, or that may come first; unchanged where there can
    be no thought, or where it describes thoughts itself. tail: the end of the prompt.
    """
    end = answers.marks.end.strip()
    if bound.triggers or (bound.kind is ConstraintKind.GRAMMAR and end in bound.text):
        return bound
    if start.in_thought:
        lead = lead_lark(answers, _notation(vocab), is_thought_over=True)
        return replace(bound, lead=lead, triggers=(end,), must_trigger=True)
    may_begin = tail.endswith(ASSISTANT) if answers.channels else answers.thinks and not tail.rstrip().endswith(end)
    if start.in_content or not may_begin:
        return bound
    return replace(bound, lead=lead_lark(answers, _notation(vocab), is_thought_over=False))


def _from_its_marker(vocab: VocabTable, format_: CallFormat, grammar: CallGrammar, tail: str) -> Constraint | None:
    """Free text up to a call, which is constrained."""
    if grammar.trigger:
        text = _lark(vocab, grammar, GrammarOpening(after=grammar.trigger))
        return Constraint(ConstraintKind.GRAMMAR, text, triggers=(grammar.trigger,))
    if not grammar.lazy:
        return None
    is_open = bool(format_.plain) and tail.endswith(format_.start)
    return Constraint(
        ConstraintKind.GRAMMAR,
        _lark(vocab, grammar, GrammarOpening()),
        triggers=grammar.lazy,
        keeps_trigger=True,
        at_start=format_.is_bare,
        before=format_.start if is_open else "",
    )


def _opening(format_: CallFormat, grammar: CallGrammar, start: Start, tail: str, thinks: bool) -> GrammarOpening:
    """The text before the answer, and the text that may stand before its calls."""
    if start.in_thought:
        return GrammarOpening(is_thought_over=True)
    is_open = bool(format_.plain) and tail.endswith(format_.start)
    is_over = tail.rstrip().endswith(grammar.thought.end.strip())
    return GrammarOpening(
        after=format_.start if is_open else "",
        may_think=thinks and not is_over and not is_open and not start.in_content,
    )


def _from_the_start(vocab: VocabTable, grammar: CallGrammar, opening: GrammarOpening, start: Start) -> Constraint:
    text = _lark(vocab, grammar, opening)
    if not start.in_thought:
        return Constraint(ConstraintKind.GRAMMAR, text)
    return Constraint(ConstraintKind.GRAMMAR, text, triggers=(grammar.thought.end.strip(),), must_trigger=True)


def _lark(vocab: VocabTable, grammar: CallGrammar, opening: GrammarOpening) -> str:
    """The grammar's text."""
    return f"{LARK} {{}}\n{grammar.lark(_notation(vocab), JSON_STYLE, opening)}"


def _notation(vocab: VocabTable) -> dict[str, str]:
    """How a grammar writes each special. Where it has an id that ends answers nothing stands: such an id may follow
    where the grammar ends.
    """
    return {name: '""' if id_ in vocab.eog else f"<[{id_}]>" for name, id_ in vocab.specials.items()}
