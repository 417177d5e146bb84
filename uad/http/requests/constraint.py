"""The constraint of a request, in OpenAI's, llama-server's and vLLM's words: at most one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from uad.base.errors import InvalidRequestError, RequestError
from uad.base.types import Constraint, ConstraintKind
from uad.http.requests.fields import ChatBody, GenerationBody
from uad.http.requests.generation import Backend
from uad.http.requests.left_out import account_for, leave_out
from uad.http.requests.no_effect import NO_EFFECT
from uad.text.calls.constraint import after_thoughts, call_constraint
from uad.text.calls.parser import Start
from uad.text.calls.tools import Calls, Tool
from uad.text.grammar.schema_words import Schema, loosened, unread_words
from uad.text.prompts import Text

_JSON, _GRAMMAR, _REGEX, _CHOICE = ConstraintKind
_MOST_WORDS = 16  # of a schema that the log names


def asked_constraint(body: GenerationBody) -> tuple[str, Constraint] | None:
    """The request's own constraint with the field that it stands in. Raises InvalidRequestError."""
    asked = [
        (name, constraint)
        for name, read in _FIELDS.items()
        if (constraint := read(name, getattr(body, name))) is not None
    ]
    if len(asked) > 1:
        names = " and ".join(name for name, _ in asked)
        raise InvalidRequestError(f"{names}: an answer can have one constraint; leave the others out", asked[1][0])
    return asked[0] if asked else None


def constraint_of(engine: Backend, body: GenerationBody) -> Constraint | None:
    """The request's constraint, else the server's. Compiles it: for worker threads. Raises InvalidRequestError."""
    asked = asked_constraint(body)
    if asked is None:
        return None if body.grammar == "" else engine.config.constraint
    name, constraint = asked
    _check(engine.text, name, constraint)
    return constraint


def chat_constraint(
    engine: Backend, body: ChatBody, own: Constraint | None, calls: Calls, start: Start, tail: str
) -> Constraint | None:
    """The constraint of a chat, compiled: calls and thoughts may come first. own: what `constraint_of` says; tail: the
    end of the prompt. Raises InvalidRequestError.
    """
    text = engine.text
    bound = _with_calls(engine, own, calls, start, tail) if calls.are_possible else own
    if bound is None or bound is not own:
        return bound
    # A model that thinks may write "<think>hm</think>" in front of what the constraint describes
    after = after_thoughts(text.vocab, text.answers, bound, start, tail)
    if after is not bound:
        named = (name for name, read in _FIELDS.items() if read(name, getattr(body, name)) is not None)
        _check(text, next(named, "grammar"), after)  # the server's own is called grammar
    return after


def _with_calls(engine: Backend, own: Constraint | None, calls: Calls, start: Start, tail: str) -> Constraint | None:
    """A call that is required takes the server's own constraint's place. Where calls are possible, one may stand in
    place of the JSON that the answer has to be.
    """
    is_named = own is not None and own is not engine.config.constraint
    if calls.are_required and is_named:
        raise InvalidRequestError.at(
            "tool_choice", "a call is required, which leaves no room for another constraint; drop one"
        )
    # Only JSON and calls go together, as the two branches of one grammar: where an answer matches a regular expression
    # or a grammar, a call would be another language, and the tools stay unused.
    if own is not None and not calls.are_required and own.kind is not _JSON:
        return own
    # With response_format and tools an answer is either: the grammar is  call | JSON by the schema
    answer = json.loads(own.text) if own is not None and not calls.are_required else None
    text = engine.text
    is_bound = calls.are_required or answer is not None
    if is_bound or any(tool.strict for tool in calls.tools):
        calls = replace(calls, tools=tuple(_settled_tool(i, tool) for i, tool in enumerate(calls.tools)))
    bound = call_constraint(text.vocab, text.answers, calls, start, tail, {} if answer is True else answer)
    if bound is None:
        return own
    try:
        _check(text, "tools", bound)
    except InvalidRequestError:
        _check_tools(text, calls)  # the grammar of all tools says not which of them is wrong
        raise
    if text.answers.calls[0].body not in ("json", "list"):
        _check_tools(text, calls)  # where arguments are written one by one, not every word gets into the grammar
    return bound


def _settled_tool(i: int, tool: Tool) -> Tool:
    return replace(tool, parameters=_settled(_place(i), dict(tool.parameters), tool.strict))


def _place(i: int) -> str:
    return f"tools.{i}.function.parameters"


def _check_tools(text: Text, calls: Calls) -> None:
    """Compile the schema of each tool that may be called by itself."""
    for i, tool in ((i, tool) for i, tool in enumerate(calls.tools) if tool in calls.allowed()):
        _check(text, _place(i), Constraint(_JSON, json.dumps({"type": "object", **tool.parameters})))


def _check(text: Text, name: str, constraint: Constraint) -> None:
    try:
        text.check_constraint(constraint)
    except RequestError as error:
        raise InvalidRequestError.at(name, str(error)) from None


def _response_format(name: str, value: object) -> Constraint | None:
    if value is None:
        return None
    given = _object(name, value)
    member = {"json_object": "schema", "json_schema": "json_schema"}.get(str(given.get("type")), "type")
    account_for(given, ("type", member), NO_EFFECT, name, name)
    match given.get("type", "text"):
        case "text":
            return None
        case "json_object":
            return _schema(f"{name}.schema", given.get("schema", {"type": "object"}))
        case "json_schema":
            where = f"{name}.json_schema"
            inner = _object(where, given.get("json_schema"))
            strict = inner.get("strict")
            if strict is not None and not isinstance(strict, bool):
                raise InvalidRequestError.at(f"{where}.strict", "must be true or false")
            return _schema(f"{where}.schema", inner.get("schema", {}), bool(strict))
        case other:
            shown = repr(other)[:64]
            raise InvalidRequestError.at(f"{name}.type", f"must be text, json_object or json_schema, not {shown}")


def _structured(name: str, value: object) -> Constraint | None:
    """vLLM's `structured_outputs`."""
    if value is None:
        return None
    given = {key: inner for key, inner in _object(name, value).items() if inner is not False}
    keys = [key for key in given if key in _STRUCTURED]
    if len(keys) != 1:
        raise InvalidRequestError.at(name, f"must have one of {', '.join(_STRUCTURED)}")
    return _STRUCTURED[keys[0]](f"{name}.{keys[0]}", given[keys[0]])


def _schema(name: str, value: object, is_strict: bool = False) -> Constraint | None:
    """A schema, or one in a text."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return Constraint(_JSON, _settled_text(name, value, is_strict))
    if not isinstance(value, dict) and value is not True:
        raise InvalidRequestError.at(name, "must be a JSON schema, which is an object")
    try:
        return Constraint(_JSON, json.dumps(value if value is True else _settled(name, value, is_strict)))
    except RecursionError:
        raise InvalidRequestError.at(name, "the schema is nested too deeply") from None


def _settled_text(name: str, text: str, is_strict: bool) -> str:
    """The same for a schema in a text. One that cannot be read is refused later."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return text
    settled = _settled(name, schema, is_strict) if isinstance(schema, dict) else schema
    return text if settled is schema else json.dumps(settled)


def _settled(name: str, schema: Schema, is_strict: bool) -> Schema:
    """The schema that stands at `name`, where items may repeat if it is not strict; the log has a line for each word
    that is left out. Raises InvalidRequestError.
    """
    try:
        unread = unread_words(schema)
    except InvalidRequestError as error:
        raise InvalidRequestError.at(name, str(error)) from None
    for word in unread[:_MOST_WORDS]:
        leave_out(
            name, f"the word {word[:64]!r} of a schema", NO_EFFECT.get(f"schema.{word}", "schemas have no such word")
        )
    if len(unread) > _MOST_WORDS:
        leave_out(name, "a number of other words of a schema", "schemas have no such words")
    loose = schema if is_strict else loosened(schema)
    if loose is not schema:
        leave_out(name, "uniqueItems", "repeated items cannot be ruled out; a schema with strict: true is refused")
    return loose


def _grammar(name: str, value: object, kind: ConstraintKind = _GRAMMAR) -> Constraint | None:
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError.at(name, "must be a string")
    return Constraint(kind, value) if value else None


def _choice(name: str, value: object) -> Constraint | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InvalidRequestError.at(name, "must be a list of strings")
    return Constraint(_CHOICE, json.dumps(value))


def _object(name: str, value: object) -> Mapping[str, object]:
    """The members that say something."""
    if not isinstance(value, dict):
        raise InvalidRequestError.at(name, "must be an object")
    return {key: inner for key, inner in value.items() if inner is not None and inner != ""}


_ReadConstraint = Callable[[str, object], Constraint | None]
_STRUCTURED: Mapping[str, _ReadConstraint] = {
    "json": _schema,
    "regex": partial(_grammar, kind=_REGEX),
    "choice": _choice,
    "grammar": _grammar,
    "json_object": lambda name, value: Constraint(_JSON, '{"type": "object"}') if value else None,
}
_FIELDS: Mapping[str, _ReadConstraint] = {
    "response_format": _response_format,
    "json_schema": _schema,
    "grammar": _grammar,
    "guided_json": _schema,
    "guided_regex": partial(_grammar, kind=_REGEX),
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "structured_outputs": _structured,
}
