"""A chat: what is generated for it, how its answers are read, and how long their thoughts may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from uad.base.errors import InvalidRequestError
from uad.base.types import Image, ThoughtBounds
from uad.http.requests.constraint import chat_constraint
from uad.http.requests.fields import ChatBody
from uad.http.requests.generation import Backend
from uad.http.requests.job import Job, check_job, make_job
from uad.http.requests.message_fields import AllowedTools, NamedTool
from uad.http.requests.prompt_ids import answer_begun, check_begun, encode_chat, text_of
from uad.text.calls.format import AnswerFormat, Keys
from uad.text.calls.parser import AnswerParser, Start
from uad.text.calls.tools import Calls, Tool

_TAIL = 64
"""How many ids at the end of a prompt are looked at for a thought that has begun."""
_KWARG = "thinking_budget"


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
"""Of what is no chat: the text is the answer."""


def calls_of(body: ChatBody) -> Calls:
    """What the request says about calls. A call that is required comes alone, unless several are asked for: a small
    model would write the same one again and again.

    Raises InvalidRequestError for a choice of a tool that is not there.
    """
    tools = tuple(
        Tool(one.name, one.parameters or {}, bool(one.strict)) for one in (tool.function for tool in body.offered)
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


def check_chat(engine: Backend, body: ChatBody) -> None:
    """Raise InvalidRequestError for what `chat_job` refuses and that neither models nor vocabularies are needed for."""
    check_job(engine, body)
    calls_of(body)
    check_begun(body)
    _of_template(body)


def chat_job(
    engine: Backend, body: ChatBody, ping: float, default: str, images: Sequence[Image] = ()
) -> tuple[Job, Reading]:
    """What to generate for a chat, and how to read it. Renders, tokenizes and compiles: for worker threads.

    default: the server's reasoning format. images: the pictures of the chat, in order.
    """
    text, calls = engine.text, calls_of(body)
    prompt = encode_chat(text, body, images)
    if body.verbose or engine.config.verbose:
        prompt = replace(prompt, text=text_of(text, prompt.ids))
    job = make_job(engine, body, [prompt], ping)

    # Where the answer begins is said by the beginning that the request gives, else by the end of its prompt: after
    # "<think>\n" it is in a thought. A beginning "<think>so far" goes on with one, and "So far" is content, whatever
    # the template opens.
    tail, begun = text_of(text, prompt.ids[-_TAIL:]), answer_begun(body, text.answers)
    in_thought = text.answers.continues_thought(begun) if begun else text.answers.opens_thought(tail)
    start = Start(in_thought, in_content=bool(begun) and not in_thought)

    shows = body.reasoning_format or default
    shows_thoughts = shows == "none" or (shows == "deepseek-legacy" and bool(body.stream))
    # An answer that the request describes by a schema or a grammar may look like a call, and is what was asked for.
    own = job.requests[0].constraint
    whole = text.answers.keys_of_whole(engine.config.server.json_calls) if own is None else None
    reading = Reading(text.answers, calls, start, shows_thoughts, whole)
    bound = chat_constraint(engine, body, own, calls, start, tail)
    shown = () if reading.is_plain else reading.format.shown(with_calls=calls.are_possible)
    thoughts = _thought_bounds(engine, body, start)
    requests = (replace(one, shown=shown, constraint=bound, thoughts=thoughts) for one in job.requests)
    return replace(job, requests=tuple(requests)), reading


def _thought_bounds(engine: Backend, body: ChatBody, start: Start) -> ThoughtBounds | None:
    """What the loop gets about an answer's thoughts; None where it has none. Tokenizes: for worker threads."""
    answers, config = engine.text.answers, engine.config.server
    if not (answers.thinks or answers.channels or start.in_thought):
        return None
    marks = answers.marks
    if start.in_content and not marks.anywhere:
        return None
    most = body.thinking_budget if body.thinking_budget is not None else _of_template(body)
    if most is None or most < 0:  # the request says nothing, or asks for no bound: the server's own
        most = config.reasoning_budget
    if most < 0:
        return ThoughtBounds(marks.start, marks.end, start.in_thought, marks.anywhere)
    message = body.reasoning_budget_message
    message = config.reasoning_budget_message if message is None else message
    closing = engine.text.tokenize(message + marks.end.strip())
    return ThoughtBounds(marks.start, marks.end, start.in_thought, marks.anywhere, most, tuple(closing))


def _of_template(body: ChatBody) -> int | None:
    """The bound among the template's variables, where some clients put it."""
    value = body.chat_template_kwargs.get(_KWARG)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    where = f"chat_template_kwargs.{_KWARG}"
    raise InvalidRequestError.at(where, "must be a whole number of tokens, or -1 for no bound")
