"""A chat: how its answers are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uad.base.types import Constraint
from uad.http.requests.fields import ChatBody
from uad.http.requests.generation import Backend
from uad.http.requests.message_fields import AllowedTools, CallBody, MessageBody, NamedTool
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
    """
    tools = tuple(
        Tool(function.name, function.parameters or {}, bool(function.strict))
        for function in (tool.function for tool in body.offered)
    )
    choice, parallel, answered = body.tool_choice, body.parallel_tool_calls, tuple(_answered(body.messages))
    if isinstance(choice, NamedTool):
        return Calls(tools, choice.name, True, parallel is not False, answered)
    if isinstance(choice, AllowedTools):
        choice = choice.mode
    return Calls(tools, choice, False, choice != "required" if parallel is None else parallel, answered)


def _answered(messages: Sequence[MessageBody]) -> Iterator[tuple[str, object]]:
    """The last calls of a chat that have results, if no other answer came after them: names and arguments."""
    results, calls = list[str | None](), list[CallBody]()
    for message in reversed(messages):
        if message.role == "tool":
            if calls:
                break
            results.append(message.tool_call_id)
        elif message.role == "assistant" and message is not messages[-1]:  # the last one begins the answer
            if not message.tool_calls:
                break
            calls += message.tool_calls
        elif calls:
            break
    for call in calls:
        if results and (call.id is None or call.id in results or None in results):
            yield call.function.name, _arguments_of(call)


def _arguments_of(call: CallBody) -> object:
    """The arguments as a value; a text that is no JSON stays one."""
    given = call.function.arguments
    try:
        return json.loads(given or "{}") if given is None or isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


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
