"""A conversation to a prompt that holds all of it: what a template leaves out or refuses is written another way, or is
an error.

A system message goes into a user's turn where the template has no other place for it. Must not know vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from uad.base.errors import InvalidRequestError
from uad.text.templates.calling import Calling, calling
from uad.text.templates.contents import texts_of
from uad.text.templates.history import (
    Message,
    PlacedMessages,
    calls_as_text,
    check_calls,
    place_calls,
    place_thoughts,
    plain_schema,
)
from uad.text.templates.mend import USUAL, mended, takes_turns
from uad.text.templates.prefill import continued
from uad.text.templates.render import Rendered, check_message, render
from uad.text.templates.sandbox import Budget, RefusedError
from uad.text.templates.seams import Loss

MAX_TEXT_CHARS = 4_000_000
"""Characters of all messages: a million tokens. Work on a longer text in one go stops other threads for too long."""


class _LostError(InvalidRequestError):
    """The text of a message is not in the prompt."""

    def __init__(self, at: int, message: Message, loss: Loss) -> None:
        does = "leaves this message out" if loss.left_out else "does not write this text as it is"
        where = f"messages[{at}]"
        super().__init__(
            f"{where}: the chat template {does} (role {message['role']}); say it in another role, or leave it out",
            where,
        )


@dataclass(frozen=True)
class Talk:
    """The input of a template: its variables, whether an answer is asked for, and the answer's beginning."""

    template: str
    bos: str = ""
    eos: str = ""
    kwargs: Mapping[str, object] | None = None
    add_generation_prompt: bool = True
    prefill: str = ""


def converse(messages: Sequence[Message], talk: Talk) -> Rendered:
    """The prompt, with every message's text in it, and after it the beginning of the answer.

    Raises InvalidRequestError that names the message and what the template does with it.
    """
    known = [(at, message.get("content")) for at, message in enumerate(messages) if isinstance(message, Mapping)]
    n = sum(len(text) for at, content in known for text in texts_of(content, f"messages[{at}].content"))
    if n > MAX_TEXT_CHARS:  # refused before all of it is looked at
        raise InvalidRequestError(
            f"the messages hold {n} characters; at most {MAX_TEXT_CHARS} are rendered", "messages"
        )
    placed, talk = _as_taken(tuple((at, check_message(message, at)) for at, message in enumerate(messages)), talk)
    budget = Budget()
    failed: tuple[PlacedMessages, Talk, InvalidRequestError]
    for way, telling in ((way, telling) for way in _ways(placed, talk) for telling in _tellings(talk)):
        try:
            return _prompt(way, telling, budget)
        except (RefusedError, _LostError) as error:
            failed = way, telling, error
    last, telling, why = failed
    raise _named(why, last, telling, budget) if isinstance(why, RefusedError) else why


def _tellings(talk: Talk) -> Iterator[Talk]:
    """With the tools as they are, then with one type where a schema names several: some templates go round in circles
    there.
    """
    yield talk
    kwargs = dict(talk.kwargs or {})
    tools = kwargs.get("tools")
    if tools and plain_schema(tools) != tools:
        yield replace(talk, kwargs={**kwargs, "tools": plain_schema(tools)})


def _as_taken(placed: PlacedMessages, talk: Talk) -> tuple[PlacedMessages, Talk]:
    """Tools, calls and thoughts as the template takes them. It gets no tools that it does not list."""
    kwargs = dict(talk.kwargs or {})
    given = kwargs.get("tools")
    tools = given if isinstance(given, Sequence) else ()
    messages = [message for _, message in placed]
    if any(message.get("reasoning_content") for message in messages):
        placed = place_thoughts(placed, calling(talk.template).thoughts)
    has_calls = bool(tools) or any(message.get("tool_calls") for message in messages)
    if not has_calls and all(message["role"] != "tool" for message in messages):
        return placed, talk
    check_calls(placed, MAX_TEXT_CHARS)
    does = calling(talk.template)
    if not has_calls and not does.results:
        return placed, talk  # a template that knows no calls may know results
    if not does.tools:
        kwargs.pop("tools", None)
    return place_calls(placed, tools, does), replace(talk, kwargs=kwargs)


def _prompt(placed: PlacedMessages, talk: Talk, budget: Budget) -> Rendered:
    """One way to put the conversation. Raises RefusedError and _LostError."""
    if talk.prefill:
        return continued(lambda answer: _rendered(placed, talk, budget, answer), talk.template, talk.prefill)
    return _rendered(placed, talk, budget)


def _rendered(placed: PlacedMessages, talk: Talk, budget: Budget, answer: str | None = None) -> Rendered:
    """The prompt with an answer at its end, or with what asks for one."""
    rendered = render(
        talk.template,
        [*(message for _, message in placed), *([] if answer is None else [{"role": "assistant", "content": answer}])],
        bos=talk.bos,
        eos=talk.eos,
        add_generation_prompt=answer is None and (talk.add_generation_prompt or bool(talk.prefill)),
        kwargs=talk.kwargs,
        budget=budget.fresh(),
    )
    for loss in rendered.losses:
        # beside calls, templates leave texts out by design
        if loss.at < len(placed) and (loss.is_call or not placed[loss.at][1].get("tool_calls")):
            raise _LostError(*placed[loss.at], loss)
    return rendered


def _named(error: RefusedError, placed: PlacedMessages, talk: Talk, budget: Budget) -> InvalidRequestError:
    """The refusal with the first message of those at which it begins; as it is where it comes without messages, or is
    gone.
    """
    # By halves, for how many messages it takes: of 8 that are refused, 4 are not, 6 are, 5 are: the fifth is the one.
    low, high = 0, len(placed)
    try:
        if _refuses(placed[:low], error.words, talk, budget) or not _refuses(placed, error.words, talk, budget):
            return error
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _refuses(placed[:middle], error.words, talk, budget) else (middle, high)
    except InvalidRequestError:  # no time is left to look for it
        return error
    at, message = placed[high - 1]
    return InvalidRequestError(f"messages[{at}] (role {message['role']}): {error}", f"messages[{at}]")


def _refuses(placed: PlacedMessages, words: str, talk: Talk, budget: Budget) -> bool:
    try:
        _rendered(placed, talk, budget)
    except RefusedError as error:
        return error.words == words
    except _LostError:
        pass
    return False


def _ways(placed: PlacedMessages, talk: Talk) -> Iterator[PlacedMessages]:
    """Conversations to try, the plainest first, each once: as it is; mended where the template is known to refuse; in
    the strictest order; with calls in words. OpenAI's newer name of the system role is for those templates that know
    it. Of no messages, where an answer begins the conversation, an empty one of the user's.
    """
    template, with_tools = talk.template, bool((talk.kwargs or {}).get("tools"))
    as_system = tuple(
        (at, {**message, "role": "system"} if message["role"] == "developer" else message) for at, message in placed
    )

    def takes(*kinds: str) -> bool:
        return takes_turns(template, with_tools, kinds)

    ways: tuple[Callable[[], PlacedMessages], ...] = (
        lambda: placed if "developer" in template else as_system,
        lambda: as_system,
        lambda: mended(as_system, takes, calling(template)),
        lambda: mended(as_system, lambda *kinds: kinds in USUAL and takes(*kinds), calling(template)),
        lambda: mended(calls_as_text(as_system), lambda *_: False, Calling()),
    )
    tried: list[PlacedMessages] = []
    for way in ways:
        if (made := way()) not in tried:
            tried.append(made)
            yield made
    if not placed:
        yield ((0, {"role": "user", "content": ""}),)
