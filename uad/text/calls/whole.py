"""Answers that are calls as a whole, without the markers of their format: a JSON object with a tool's name and
arguments, or a list of them, bare or in a fence.

The request's tools are the judge. Such a text is kept back until the answer ends; it is content as soon as it cannot
be a call any more: at the first member that no call has, the first letter that no tool's name goes on with, the first
argument that the tool's schema does not allow.

Objects in doubled braces, `{{"name": …}}`, are read in the same way for models that are shown calls so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from uad.text.calls.events import Emitter
from uad.text.calls.format import Keys
from uad.text.calls.judge import fits, same
from uad.text.calls.source import FormatSource, MalformedError, Wait, words
from uad.text.calls.strict import StrictReader
from uad.text.calls.tools import Tool, ToolSchema

_ARGUMENTS = ("arguments", "parameters")
_ASIDE = ("id", "type", "index")
"""Members of a call that say nothing of it."""
_FENCE = words("```")
_LANGUAGES = words("json", "JSON")


@dataclass(frozen=True)
class WholeCall:
    """One call. `arguments` is their JSON as the model wrote it."""

    tool: Tool
    id: str
    arguments: str

    def emit(self, emitter: Emitter) -> None:
        """The call, as events."""
        call = emitter.call(self.tool.name, self.id)
        call.add(self.arguments)
        call.end()


class WholeReader:
    """Reads calls that are JSON objects, strictly, and emits none before it is whole. keys: what the members of a call
    are called in the model's format; the usual names count, too. doubled: objects may have doubled braces. judges: the
    tool's schema must allow the arguments.
    """

    def __init__(
        self, source: FormatSource, emitter: Emitter, keys: Keys, doubled: bool = False, judges: bool = True
    ) -> None:
        self._source = source
        self._emitter = emitter
        self._judges = judges
        self._json = StrictReader(source, doubled)
        self._names = {keys.name or "name", "name"}
        self._arguments = {keys.arguments, *_ARGUMENTS}
        self._ids = {keys.id, "id"}

    def read(self) -> Wait[None]:
        """The whole answer, whose calls are emitted at its end. Raises MalformedError as soon as it is no call."""
        source = self._source
        yield from source.blanks()
        is_fenced = yield from source.take(_FENCE)
        if is_fenced:
            yield from source.take(_LANGUAGES)
        calls = yield from self._calls()
        yield from source.blanks()
        if is_fenced:
            yield from source.take(_FENCE)
            yield from source.blanks()
        if (yield from source.peek()) or source.is_cut:
            raise MalformedError("the answer goes on")
        for call in calls:
            call.emit(self._emitter)

    def doubled(self) -> Wait[None]:
        """One call in doubled braces. Raises MalformedError where braces are left over after it."""
        call = yield from self._call()
        if (yield from self._json.lexer.next()) == "}":
            raise MalformedError("a brace too many")
        call.emit(self._emitter)

    def _calls(self) -> Wait[list[WholeCall]]:
        """An object, or a list of at least one."""
        if (yield from self._json.lexer.next()) != "[":
            return [(yield from self._call())]
        calls: list[WholeCall] = []
        yield from self._json.lexer.expect("[")
        while not calls or (yield from self._json.goes_on("]")):
            calls.append((yield from self._call()))
        return calls

    def _call(self) -> Wait[WholeCall]:
        """A call that its tool's schema allows."""
        tool: Tool | None = None
        id_, arguments = "", ""
        left = self._names | self._arguments | self._ids | {*_ASIDE}
        close = yield from self._json.opens()
        is_first = True
        while is_first or (yield from self._json.goes_on(close)):
            is_first = False
            key = yield from self._json.one_of(left)
            yield from self._json.lexer.expect(":")
            left -= self._alike(key)
            if key in self._names:
                tool = self._emitter.tools.get((yield from self._json.one_of(self._emitter.tools)))
            elif key in self._arguments:
                arguments = yield from self._object(tool)
            else:
                text = yield from self._json.text({}, {})
                id_ = json.loads(text) if key in self._ids and text.startswith('"') else id_
        if not (self._judges or arguments):
            arguments = "{}"
        if tool is None or not _is_call_of(tool, arguments, self._judges):
            raise MalformedError("no call")
        if self._json.has_doubled and self._emitter.is_answered(tool.name, arguments):
            raise MalformedError("its result has just been given")
        return WholeCall(tool, id_, arguments)

    def _alike(self, key: str) -> set[str]:
        """The names of members that mean the same as this one. A call has one of them."""
        return next((names for names in (self._names, self._arguments, self._ids) if key in names), {key})

    def _object(self, tool: Tool | None) -> Wait[str]:
        """Arguments, judged as they come where the tool's name is known; or a string that holds them."""
        char = yield from self._json.lexer.next()
        if char not in ("{", '"'):
            raise MalformedError("arguments are an object")
        schema: ToolSchema = tool.parameters if char == "{" and tool is not None and self._judges else {}
        text = yield from self._json.text(schema, schema)
        return text if char == "{" else str(json.loads(text))


def _no_constant(word: str) -> None:
    """Raises ValueError for NaN and its kind, which JSON does not have."""
    raise ValueError(word)


def _is_call_of(tool: Tool, text: str, judges: bool) -> bool:
    """Whether these are arguments for the tool; judges: by its schema, too. The schema itself does not count: some
    models answer with what the request says of the tool.
    """
    try:
        arguments = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    if not isinstance(arguments, dict) or same(arguments, tool.parameters):
        return False
    return not judges or fits(arguments, tool.parameters, tool.parameters)
