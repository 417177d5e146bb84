"""Definition of an API of this server: its requests, which are chats in other words, with errors in those words; and
the frames of its answers, streamed one by one or folded to the whole.
"""

from __future__ import annotations

import re
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from uad.base.common.json_out import PING, dumps, dumps_large, frame
from uad.base.errors import ContextOverflowError, InvalidRequestError, NotSupportedError, RequestError
from uad.base.events import Delta
from uad.http.apis.choice import Choice
from uad.http.apis.problems import Problem, field_and_reason
from uad.http.requests.fields import (
    Body,
    ChatBody,
    CompletionBody,
    NativeBody,
    TemplateBody,
    account_for_request,
    checked,
)
from uad.http.requests.job import Job
from uad.http.requests.left_out import account_for_body
from uad.http.requests.no_effect import NO_EFFECT
from uad.http.requests.prompt_ids import split_prompts

_ALPHABET = string.ascii_letters + string.digits
_SEVERAL = ("n", "n_cmpl")
_FOREIGN = (*_SEVERAL, "n_probs", "logprobs")
P = TypeVar("P", bound=CompletionBody | NativeBody)
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
B = TypeVar("B", bound=Body)
Spelling = Callable[[str], str]
"""From a field's name in a chat to the one in the request."""
Prompted = CompletionBody | NativeBody
"""A body with prompts in place of messages."""


def same_name(name: str) -> str:
    """The spelling of what stands for itself."""
    return name


class TextFrame(NamedTuple):
    """A frame that only adds text to a choice. All that stands around its text is the same in every such frame, so that
    it need not be made again for each piece.
    """

    choice: int
    text: str


JsonMembers = dict[str, Any]
Frame = JsonMembers | TextFrame
"""One event of a stream before it is JSON. In place of a list it may hold an iterator, which is read once: by the
encoder, or by what folds the frames. A frame that nobody reads costs nothing for its probabilities.
"""


@dataclass(frozen=True, slots=True)
class Served:
    """Names of the server in answers."""

    model: str
    fingerprint: str


class Dialect(ABC):
    """How one API answers one request: the frames of its stream, and how they fold to the whole answer."""

    content_type = "text/event-stream"
    """The content type of a stream."""
    ending = b""
    """The last bytes of a stream."""
    broken_ending = b""
    """The same where it breaks off, after the error."""
    ping = PING
    """Sent where nothing is said for a while."""
    depth = 5
    """How deep in a whole answer long lists lie."""
    prompt_ids_in_choice = False
    """Whether the ids of a prompt, where they are asked for, stand in each choice, not beside all."""
    event = staticmethod(frame)
    """From a frame's JSON text to what a stream has for it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        pairs = zip(job.requests, job.prompts, strict=True)
        self.choices = [Choice(i, request, prompt) for i, (request, prompt) in enumerate(pairs)]
        # Only the encoder of large values takes iterators, and it is slower for a frame of a few words
        self._to_json = partial(dumps_large, depth=self.depth + 1) if job.logprobs else dumps

    def opening(self, choice: Choice) -> Iterable[Frame]:
        """Frames before the first event of a sequence."""
        return ()

    @abstractmethod
    def piece(self, choice: Choice, delta: Delta) -> Iterable[Frame]:
        """Frames of a piece of one sequence; none where there is nothing to show."""

    def blank(self, choice: Choice) -> JsonMembers | None:
        """A frame without text, to which members are added; None where no such frame is sent."""
        return None

    @abstractmethod
    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterable[Frame]:
        """Frames at the end of a sequence; finished: all sequences after the last one, else empty."""

    def silence(self, seconds: float) -> bytes:
        """The bytes that keep a silent stream alive."""
        return self.ping

    def failed(self, problem: Problem) -> Iterable[Frame]:
        """The last frames of a stream that breaks off."""
        return (problem.body(),)

    @abstractmethod
    def fold(self, frames: Iterable[Frame]) -> object:
        """The answer that is not streamed, to be written as JSON, of the frames that a stream would have."""

    def members_of(self, frame: Frame) -> JsonMembers:
        """The frame in full, to which members may be added."""
        assert isinstance(frame, dict), "only dialects that make text frames get them back"
        return frame

    def encoded(self, frame: Frame) -> bytes:
        """The frame in the bytes of a stream."""
        return self.event(self._to_json(frame))


def new_id(prefix: str, length: int = 32) -> str:
    """A name that nothing else has: the prefix, and `length` letters and digits."""
    # One call of the system for all letters. 62 ** n is below 2 ** (6 * n): with two bits more for each, no letter is
    # noticeably likelier than others.
    number, letters = secrets.randbits(8 * length), []
    for _ in range(length):
        number, at = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[at])
    return prefix + "".join(letters)


@dataclass(frozen=True)
class Translated(Generic[T]):
    """A request, the chat or the completion that it stands for, and how its fields are called.

    own: what its dialect needs of it. `relaxed` is the chat to try where calls cannot be held to the schemas
    of the tools. keep_s: how long the models are to stay loaded once nothing needs them; None: as before.
    """

    own: T
    chat: TemplateBody | Prompted
    spelling: Spelling = same_name
    relaxed: ChatBody | None = None
    keep_s: float | None = None
    places: Sequence[str] = ()
    """Where the pictures of the chat stand in the request, in their order; none where it is a chat itself."""
    prompts: Sequence[object] = ()
    """Prompts of a completion."""


class AtOnce(NamedTuple):
    """The answer to a request for which nothing is generated. loads: whether the models are to be loaded for it."""

    answer: JsonMembers
    loads: bool = False
    keep_s: float | None = None


def read_prompted(members: Mapping[str, object], kind: type[P]) -> Translated[P]:
    """A completion, which stands for itself. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    body = checked(kind, members)
    account_for_request(members, kind)
    return Translated(body, body, prompts=split_prompts(body.prompt))


def chat_of(members: Mapping[str, object], spelling: Spelling) -> ChatBody:
    """The members of a chat, checked; what is wrong is reported in the request's own words. Raises NotSupportedError
    where ids are asked for, which these answers have no place for.
    """
    if members.get("return_token_ids"):
        raise NotSupportedError(
            "return_token_ids is not supported: /v1/chat/completions and /v1/completions have it", "return_token_ids"
        )
    with spelled(spelling):
        return checked(ChatBody, members)


def rest_of(members: Mapping[str, object], own: Body) -> dict[str, object]:
    """The members that mean the same in a chat (sampling, drafts, slots): all but those of `own` and some more."""
    return {name: value for name, value in members.items() if name not in (*type(own).model_fields, *_FOREIGN)}


def refuse(members: Mapping[str, object], unsupported: Mapping[str, str]) -> None:
    """Raise NotSupportedError for the first of these members that is there, with what to do instead; and where more
    than one answer is asked for.
    """
    for name, instead in unsupported.items():
        if members.get(name):
            raise NotSupportedError(f"{name} is not supported: {instead}", name)
    for name in _SEVERAL:
        if members.get(name, 1) != 1:
            raise NotSupportedError(f"{name} is not supported: there is one answer; send the request again", name)


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Errors that name a field of the chat name that of the request instead."""
    try:
        yield
    except ContextOverflowError:
        raise
    except ValidationError as error:
        param, text = field_and_reason(error)
        own = spelling(param)
        raise InvalidRequestError.at(own, f"{text}") from None
    except RequestError as error:
        if error.param is None or (own := spelling(error.param)) == error.param:
            raise
        raise type(error)(own + str(error).removeprefix(error.param), own) from None


def renaming(rules: Sequence[tuple[str, str]]) -> Spelling:
    """A spelling by regular expressions, each for the beginning of a name; the first that fits counts."""
    patterns = [(re.compile(pattern), name) for pattern, name in rules]

    def own(name: str) -> str:
        for pattern, replacement in patterns:
            if pattern.match(name):
                return pattern.sub(replacement, name, count=1)
        return name

    return own


def tools_at(places: Sequence[object], spelling: Spelling) -> Spelling:
    """The same spelling, where the tools of the chat, whose names are in `function`, stand at these places."""

    def own(name: str) -> str:
        head, _, rest = name.partition(".")
        number, _, rest = rest.partition(".")
        if head != "tools" or not number.isdigit():
            return spelling(name)
        return spelling(f"tools.{places[int(number)]}.{rest.removeprefix('function.')}")

    return own


def validated(kind: type[M], value: object, where: str) -> M:
    """A value inside of a request, as a body of its own. Raises InvalidRequestError that says where it is wrong."""
    if not isinstance(value, dict):
        raise InvalidRequestError.at(where, "must be an object")
    try:
        return kind.model_validate({name: member for name, member in value.items() if member is not None})
    except ValidationError as error:
        param, text = field_and_reason(error)
        at = f"{where}.{param}" if param else where
        raise InvalidRequestError.at(at, f"{text}") from None


def accounted(kind: type[B], value: object, where: str, api: str) -> B:
    """The same, where every member that holds content is read, or is known to have no effect."""
    body = validated(kind, value, where)
    account_for_body(value if isinstance(value, dict) else {}, body, NO_EFFECT, api, where, more=("type",))
    return body


def walk(
    value: object,
    where: str,
    called: str,
    most: int,
    kinds: Collection[str],
    refusal: Callable[[str, object], NotSupportedError | None],
    kind_of: Callable[[JsonMembers], object] = lambda block: block.get("type"),
) -> Iterator[tuple[str, str, JsonMembers]]:
    """The blocks of a content, one after the other: where each stands, its type, and itself.

    Raises InvalidRequestError, which names them as `called`, unless they are a list of `most` objects at most. kinds:
    types that there may be. For another, `refusal` of place and type is raised; without a refusal it is left out.
    """
    if not isinstance(value, list):
        raise InvalidRequestError.at(where, f"must be a string or a list of {called}")
    if len(value) > most:
        raise InvalidRequestError.at(where, f"must hold at most {most} {called}")
    for i, block in enumerate(value):
        if not isinstance(block, dict):
            raise InvalidRequestError.at(f"{where}.{i}", "must be an object")
    for i, block in enumerate(value):
        kind = kind_of(block)
        if not isinstance(kind, str) or kind not in kinds:
            if (refused := refusal(f"{where}.{i}", kind)) is not None:
                raise refused
            continue
        yield f"{where}.{i}", kind, block
