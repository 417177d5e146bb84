"""The constraint of answers that must call tools, or must call them well: what a format says, in a vocabulary's
words.
"""

from __future__ import annotations

import json
from dataclasses import replace

from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.constraint import ASSISTANT, CallGrammar, Opening, grammar_of, lead_lark
from uad.text.calls.format import AnswerFormat, CallFormat
from uad.text.calls.parser import Start
from uad.text.calls.tools import Calls, Schema
from uad.text.grammar.schema_words import drop_idle_words
from uad.text.grammar.source import JSON_STYLE, LARK
from uad.text.vocab.table import VocabTable


def call_constraint(
    vocab: VocabTable, answers: AnswerFormat, calls: Calls, start: Start, tail: str, answer: Schema | None = None
) -> Constraint | None:
    """What an answer may be by what the request says about calls; None where it may be anything.

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


def _without_idle(schema: Schema) -> Schema:
    return drop_idle_words(json.loads(json.dumps(schema)))


def _bound(
    vocab: VocabTable,
    answers: AnswerFormat,
    format_: CallFormat,
    calls: Calls,
    start: Start,
    tail: str,
    answer: Schema | None,
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
    """The constraint of an answer after the thought that has begun, or that may come first; as it is where there can
    be none, or where it describes thoughts itself. tail: the end of the prompt.
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
        text = _lark(vocab, grammar, Opening(after=grammar.trigger))
        return Constraint(ConstraintKind.GRAMMAR, text, triggers=(grammar.trigger,))
    if not grammar.lazy:
        return None
    is_open = bool(format_.plain) and tail.endswith(format_.start)
    return Constraint(
        ConstraintKind.GRAMMAR,
        _lark(vocab, grammar, Opening()),
        triggers=grammar.lazy,
        keeps_trigger=True,
        at_start=format_.is_bare,
        before=format_.start if is_open else "",
    )


def _opening(format_: CallFormat, grammar: CallGrammar, start: Start, tail: str, thinks: bool) -> Opening:
    """What stands before the answer, and what may stand before its calls."""
    if start.in_thought:
        return Opening(is_thought_over=True)
    is_open = bool(format_.plain) and tail.endswith(format_.start)
    is_over = tail.rstrip().endswith(grammar.thought.end.strip())
    return Opening(
        after=format_.start if is_open else "",
        may_think=thinks and not is_over and not is_open and not start.in_content,
    )


def _from_the_start(vocab: VocabTable, grammar: CallGrammar, opening: Opening, start: Start) -> Constraint:
    text = _lark(vocab, grammar, opening)
    if not start.in_thought:
        return Constraint(ConstraintKind.GRAMMAR, text)
    return Constraint(ConstraintKind.GRAMMAR, text, triggers=(grammar.thought.end.strip(),), must_trigger=True)


def _lark(vocab: VocabTable, grammar: CallGrammar, opening: Opening) -> str:
    """The grammar's text."""
    return f"{LARK} {{}}\n{grammar.lark(_notation(vocab), JSON_STYLE, opening)}"


def _notation(vocab: VocabTable) -> dict[str, str]:
    """How a grammar writes each special. Where it has an id that ends answers nothing stands: such an id may follow
    where the grammar ends.
    """
    return {name: '""' if id_ in vocab.eog else f"<[{id_}]>" for name, id_ in vocab.specials.items()}
