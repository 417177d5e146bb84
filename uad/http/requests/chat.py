"""A chat: how its answers are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.base.errors import InvalidRequestError
from uad.base.types import Constraint
from uad.http.requests.fields import ChatBody
from uad.http.requests.generation import Backend
from uad.http.requests.message_fields import AllowedTools, NamedTool
from uad.http.requests.prompt_ids import answer_begun
from uad.text.calls.format import AnswerFormat, Keys
from uad.text.calls.parser import AnswerParser, Start
from uad.text.calls.tools import Calls, Tool


@dataclass(frozen=True)
class Reading:
    """How one request's answers are read."""

    format: AnswerFormat
    calls: Calls
    start: Start
    shows_thoughts: bool
    whole: Keys | None = None
    """The members of JSON objects that are calls where they are the whole answer; None: such answers are content."""

    @property
    def is_plain(self) -> bool:
        """Whether the text is the content."""
        return self.shows_thoughts and not self.calls.are_possible

    def parser(self) -> AnswerParser:
        """A new parser, for one sequence."""
        return AnswerParser(self.format, self.calls, self.start, self.shows_thoughts, self.whole)


PLAIN = Reading(AnswerFormat(), Calls(), Start(), shows_thoughts=True)
"""The reading of requests that are no chats: the whole text is the answer."""


def calls_of(body: ChatBody) -> Calls:
    """Settings of calls, as the request gives them. A call that is required comes alone, unless several are asked
    for: a small model would write the same one again and again.

    Raises InvalidRequestError for a choice of a tool that is not there.
    """
    tools = tuple(
        Tool(function.name, function.parameters or {}, bool(function.strict))
        for function in (tool.function for tool in body.offered)
    )
    choice, parallel = body.tool_choice, body.parallel_tool_calls
    if isinstance(choice, NamedTool):
        _check_names(body, [choice.name])
        return Calls(tools, choice.name, named=True, parallel=parallel is not False)
    if isinstance(choice, AllowedTools):
        _check_names(body, choice.names)
        choice = choice.mode
    return Calls(tools, choice, named=False, parallel=choice != "required" if parallel is None else parallel)


def _check_names(body: ChatBody, names: Sequence[str]) -> None:
    known = {tool.function.name for tool in body.tools}
    for name in names:
        if name not in known:
            raise InvalidRequestError.at("tool_choice", f"tools has no function {name!r}")


def reading_of(engine: Backend, body: ChatBody, tail: str, own: Constraint | None, default: str) -> Reading:
    """How answers to the chat are read. tail: the end of its prompt; own: the constraint of the request, or the
    server's; default: the server's reasoning format.
    """
    answers = engine.text.answers
    # Where the answer begins is said by the beginning that the request gives, else by the end of its prompt: after
    # "<think>\n" it is in a thought. A beginning "<think>so far" goes on with one, and "So far" is content, whatever
    # the template opens.
    begun = answer_begun(body, answers)
    in_thought = answers.continues_thought(begun) if begun else answers.opens_thought(tail)
    start = Start(in_thought, in_content=bool(begun) and not in_thought)
    shows = body.reasoning_format or default
    shows_thoughts = shows == "none" or (shows == "deepseek-legacy" and bool(body.stream))
    # An answer that the request describes by a schema or a grammar may look like a call, and is what was asked for.
    whole = answers.keys_of_whole(engine.config.server.json_calls) if own is None else None
    return Reading(answers, calls_of(body), start, shows_thoughts, whole)
