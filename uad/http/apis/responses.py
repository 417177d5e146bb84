"""The dialect of OpenAI's Responses API: a request and the chat that it stands for; named, numbered events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import Json, chunks, named_frame
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.events import Delta
from uad.base.types import Finish, TokenProb
from uad.http.apis.api import BODY_ONLY, AnswerRoute, Api, Called, CountRoute
from uad.http.apis.blocks import Added, Block, BlockDialect, BlockKind, BlockStep, Closed, Opened
from uad.http.apis.choice import Choice, logprobs_json, prediction_json, stats_json
from uad.http.apis.dialect import (
    Frame,
    JsonMembers,
    Served,
    Translated,
    accounted,
    chat_of,
    new_id,
    refuse,
    renaming,
    rest_of,
    tools_at,
    walk,
)
from uad.http.apis.messages import Dialogue, Picture, Piece, seal, unsealed
from uad.http.apis.problems import Problem
from uad.http.requests.chat import Reading
from uad.http.requests.fields import Alternatives, Body, ChatBody, Effort, Length, account_for_request
from uad.http.requests.job import Job
from uad.http.requests.left_out import account_for, leave_out
from uad.http.requests.message_fields import CHOICES, MAX_NAME, MAX_TOOLS, FunctionBody
from uad.http.requests.no_effect import NO_EFFECT

ROUTE = "/v1/responses"
MAX_REPEATED_CHARS = 1 << 16  # characters of settings
MAX_REPEATED_PROBS = 4096
MAX_ITEMS = 8192
MAX_PARTS = 4096  # of one item
ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_NO_MEMORY = "this server keeps no responses; send the whole conversation in input"
_UNSUPPORTED = {
    "previous_response_id": _NO_MEMORY,
    "conversation": _NO_MEMORY,
    "prompt": "no templates are kept here; send instructions and input",
}
_NOTHING_KEPT = "this server keeps no responses; the whole answer is sent at once, or streamed"
_MetaName = Annotated[StrictStr, Field(max_length=64)]
_MetaText = Annotated[StrictStr, Field(max_length=512)]
_IMAGE = "input_image"
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal")
_NAMES = (
    (r"messages\b.*", "input"),
    (r"(max_tokens|max_completion_tokens|n_predict)\b", "max_output_tokens"),
    (r"response_format(\.json_schema)?\b", "text.format"),
    (r"reasoning_effort\b", "reasoning.effort"),
)


class ReasoningField(Body):
    """`reasoning` of a response."""

    effort: Effort | None = None
    summary: Effort | None = None


class TextField(Body):
    """`text` of a response: the form of the answer."""

    format: dict[StrictStr, Any] | None = None
    verbosity: Effort | None = None


class ResponsesBody(Body):
    """POST /v1/responses. Fields that are not named here go to the chat unchanged: sampling, drafts, slots."""

    input: Any
    instructions: StrictStr | None = None
    max_output_tokens: Length | None = None
    include: list[StrictStr] = Field([], max_length=64)
    reasoning: ReasoningField = ReasoningField()
    text: TextField = TextField()
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)
    tool_choice: Any = "auto"
    parallel_tool_calls: StrictBool | None = None
    top_logprobs: Alternatives | None = None
    metadata: dict[_MetaName, _MetaText] = Field({}, max_length=16)
    background: StrictBool = False
    store: StrictBool = False
    truncation: StrictStr = "disabled"

    @property
    def shows_logprobs(self) -> bool:
        """Whether the answer has the probabilities of its tokens."""
        return LOGPROBS in self.include or bool(self.top_logprobs)

    @property
    def seals_thoughts(self) -> bool:
        """Whether thoughts are given in `encrypted_content` as well."""
        return ENCRYPTED in self.include


class MessageItem(Body):
    """A message in `input`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Any


class CallItem(Body):
    """`function_call` in `input`."""

    call_id: StrictStr
    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    arguments: StrictStr = "{}"


class CustomCallItem(Body):
    """`custom_tool_call` in `input`: the call's argument is a text of any form."""

    call_id: StrictStr
    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    input: StrictStr = ""


class ResultItem(Body):
    """`function_call_output` or `custom_tool_call_output` in `input`."""

    call_id: StrictStr
    output: Any = ""


class ThoughtItem(Body):
    """`reasoning` in `input`."""

    content: Any = None
    summary: Any = None
    encrypted_content: StrictStr | None = None


def read_response(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[ResponsesBody]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    refuse(members, _UNSUPPORTED)
    if "input" not in members:
        raise InvalidRequestError.at("input", "field required")
    own = ResponsesBody.model_validate(members)
    account_for_request(members, ResponsesBody, ChatBody)
    _check(own)
    tools, choice = _tools(own)
    spelling = tools_at([place for place, _ in tools], renaming(_NAMES))
    talk = _conversation(own)
    own = own.model_copy(update={"input": ()})  # it may hold files of pictures, and the answer keeps the rest
    chat = {**rest_of(members, own), "messages": talk.messages, **_settings(own), **choice}
    chat |= {"parallel_tool_calls": own.parallel_tool_calls, "tools": [_tool_json(tool) for _, tool in tools]}
    if all(tool.strict is not None for _, tool in tools):
        return Translated(own, chat_of(chat, spelling), spelling, places=talk.places)
    strict = {**chat, "tools": [_tool_json(tool, strict=True) for _, tool in tools]}
    return Translated(own, chat_of(strict, spelling), spelling, chat_of(chat, spelling), places=talk.places)


def _check(own: ResponsesBody) -> None:
    """Say what is taken and has no effect."""
    for name in ("store", "background"):
        if getattr(own, name):
            leave_out(ROUTE, name, _NOTHING_KEPT)
    if own.truncation != "disabled":
        leave_out(ROUTE, "truncation", "nothing is dropped; an input that is too long is refused")
    for name in own.include:
        if name not in (ENCRYPTED, LOGPROBS):
            leave_out(ROUTE, f"include {name[:64]!r}", "no answer has it here")


def _settings(own: ResponsesBody) -> Json:
    """Fields that a chat has under another name."""
    out: Json = {}
    if own.max_output_tokens is not None:
        out["max_tokens"] = own.max_output_tokens
    if own.reasoning.effort is not None:
        out["reasoning_effort"] = own.reasoning.effort
    if own.shows_logprobs:
        out |= {"logprobs": True, "top_logprobs": own.top_logprobs or 0}
    if own.text.format is not None:
        out["response_format"] = _format(own.text.format)
    return out


def _format(given: Mapping[str, object]) -> object:
    if given.get("type") != "json_schema":
        return given
    if not isinstance(given.get("schema"), dict):
        raise InvalidRequestError.at("text.format.schema", "must be a JSON schema, which is an object")
    account_for(given, ("type", "schema", "strict"), NO_EFFECT, ROUTE, "text.format")
    return {"type": "json_schema", "json_schema": {name: given[name] for name in ("schema", "strict") if name in given}}


# --- tools


def _tools(own: ResponsesBody) -> tuple[list[tuple[int, FunctionBody]], Json]:
    """The functions that may be called, each with its place in `tools`, and the chat's `tool_choice`.

    Other kinds run on OpenAI's servers, or have no form in a chat. They are left out.
    """
    tools = []
    for i, tool in enumerate(own.tools):
        kind = tool.get("type", "function")
        if kind == "function":
            tools.append((i, accounted(FunctionBody, tool, f"tools.{i}", ROUTE)))
        else:
            leave_out(ROUTE, f"the tool of type {str(kind)[:64]!r}", "only functions can be called here")
    choice = own.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = _allowed(choice, {tool.name for _, tool in tools})
        tools, choice = [tool for tool in tools if tool[1].name in allowed], choice.get("mode", "auto")
        if choice not in ("auto", "required"):
            raise InvalidRequestError.at("tool_choice.mode", "must be auto or required")
    return tools, {"tool_choice": _choice(choice)}


def _choice(choice: object) -> object:
    if isinstance(choice, str) and choice in CHOICES:
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise InvalidRequestError.at(
        "tool_choice", "must be none, auto, required, allowed_tools or a function; nothing else can be called here"
    )


def _tool_json(tool: FunctionBody, strict: bool | None = None) -> Json:
    """A tool of a chat. strict: if the tool does not say it itself."""
    function = tool.model_dump(exclude_none=True)
    return {"type": "function", "function": {**({} if strict is None else {"strict": strict}), **function}}


def _allowed(choice: Mapping[str, object], known: Collection[str]) -> set[str]:
    """The names of the functions among `known` that may be called. Tools of other types are left out."""
    tools = choice.get("tools")
    if not isinstance(tools, list) or not tools or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidRequestError.at("tool_choice.tools", "must be a list of tools, of one at least")
    names = set[str]()
    for i, tool in enumerate(tools):
        if tool.get("type", "function") == "function":
            name = tool.get("name")
            if not isinstance(name, str) or name not in known:
                raise InvalidRequestError.at(f"tool_choice.tools.{i}", f"tools has no function {str(name)[:64]!r}")
            names.add(name)
    return names


# --- the conversation


def _conversation(own: ResponsesBody) -> Dialogue:
    """The chat's messages, with their pictures."""
    talk = Dialogue()
    if own.instructions:
        talk.say("system", [own.instructions])
    if isinstance(own.input, str):
        talk.say("user", [own.input])
        return talk
    for where, kind, item in walk(own.input, "input", "items", MAX_ITEMS, _ITEMS, _no_such_item, _kind_of_item):
        checkpoint()
        _put_item(talk, where, kind, item)
    return talk


_ITEMS = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
)
_OTHERS_ITEMS = frozenset(
    (
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
        *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
        *("tool_search_call", "tool_search_output", "compaction"),
    )
)
"""Items of tools that are not offered here, and what only OpenAI's servers can read."""


def _kind_of_item(item: JsonMembers) -> object:
    return item.get("type") or ("message" if "role" in item else None)


def _no_such_item(where: str, kind: object) -> NotSupportedError | None:
    """None for an item that is left out: a conversation that began elsewhere goes on without it."""
    if isinstance(kind, str) and kind in _OTHERS_ITEMS:
        leave_out(ROUTE, f"an item of type {kind!r}", "what it belongs to is not offered here")
        return None
    if kind == "item_reference":
        return NotSupportedError.at(
            where, "this server keeps no items to refer to; send the item itself, as clients do with store false"
        )
    return NotSupportedError.at(
        f"{where}.type", f"items are {', '.join(_ITEMS)} here, not {str(kind)[:64]!r}; leave it out"
    )


def _put_item(talk: Dialogue, where: str, kind: str, item: object) -> None:
    match kind:
        case "message":
            message = accounted(MessageItem, item, where, ROUTE)
            pieces = pieces_of(message.content, f"{where}.content")
            # Of the user several in a row are one, as codex sends them: some templates take no two.
            (talk.go_on if message.role == "user" else talk.say)(message.role, pieces)
        case "function_call":
            call = accounted(CallItem, item, where, ROUTE)
            talk.call(call.call_id, call.name, call.arguments)
        case "custom_tool_call":
            free = accounted(CustomCallItem, item, where, ROUTE)
            talk.call(free.call_id, free.name, {"input": free.input})
        case "function_call_output" | "custom_tool_call_output":
            result = accounted(ResultItem, item, where, ROUTE)
            talk.result(result.call_id, pieces_of(result.output, f"{where}.output"))
        case "reasoning":
            # As they are, else as this server put them away, else their summary. Others' cannot be read here.
            thought = accounted(ThoughtItem, item, where, ROUTE)
            texts = texts_of(thought.content, f"{where}.content")
            sealed = unsealed(thought.encrypted_content)
            if text := "\n\n".join(texts) or sealed or "\n\n".join(texts_of(thought.summary, f"{where}.summary")):
                talk.think(text)


def texts_of(content: object, where: str) -> list[str]:
    """The texts of a content: a string, or a list of parts. Raises NotSupportedError for other parts."""
    return [piece for piece in pieces_of(content, where, _TEXTS) if isinstance(piece, str)]


def pieces_of(content: object, where: str, kinds: tuple[str, ...] = (*_TEXTS, _IMAGE)) -> list[Piece]:
    """The texts and pictures of a content: a string, or a list of parts. Raises NotSupportedError for files and
    audio.
    """
    if isinstance(content, str):
        return [content]
    if content is None:
        return []
    parts = walk(content, where, "parts", MAX_PARTS, kinds, _no_such_part)
    return [_piece(part, at, kind) for at, kind, part in parts]


def _piece(part: JsonMembers, where: str, kind: str) -> Piece:
    read = ("type", "image_url", "file_id") if kind == _IMAGE else ("type", "refusal" if kind == "refusal" else "text")
    account_for(part, read, NO_EFFECT, ROUTE, where)
    return _picture(part, where) if kind == _IMAGE else _text(part, where, kind)


def _no_such_part(where: str, kind: object) -> NotSupportedError:
    return NotSupportedError.at(
        where, f"this server reads texts and images (input_image), not {str(kind)[:64]!r}; leave audio and files out"
    )


def _picture(part: Mapping[str, object], where: str) -> Picture:
    if part.get("file_id"):
        raise NotSupportedError.at(f"{where}.file_id", "this server keeps no files; send the image itself in image_url")
    url = part.get("image_url")
    if isinstance(url, dict):  # as chats have it
        url = url.get("url")
    if not isinstance(url, str):
        raise InvalidRequestError.at(f"{where}.image_url", "must be a string")
    return Picture(url, where)


def _text(part: Mapping[str, object], where: str, kind: str) -> str:
    if not isinstance(text := part.get("refusal" if kind == "refusal" else "text"), str):
        raise InvalidRequestError.at(f"{where}.text", "must be a string")
    return text


# --- the answer


_PREFIXES = {BlockKind.THOUGHT: "rs_", BlockKind.TEXT: "msg_", BlockKind.CALL: "fc_"}


class ResponsesDialect(BlockDialect):
    """POST /v1/responses."""

    def __init__(self, job: Job, served: Served, reading: Reading, body: ResponsesBody) -> None:
        super().__init__(job, reading)
        self._body = body
        self._ids: dict[int, str] = {}
        self._n_events = 0
        self._same: JsonMembers = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": served.model,
            **_repeated(job, body),
        }

    def opening(self, choice: Choice) -> Iterator[Frame]:
        """The response without an answer, twice, as OpenAI sends it."""
        begun = self._response("in_progress")
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", response=begun)

    def blank(self, choice: Choice) -> JsonMembers:
        """An event that says nothing but that it goes on, for the progress of the prompt."""
        return self._event("response.in_progress", response=self._response("in_progress"))

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """Events for what the piece says."""
        return self._events(self._blocks.feed(delta.text, delta.probs), "completed")

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The text that was kept back, the end of the last item, and the whole response."""
        status = "completed" if choice.end.finish is Finish.STOP else "incomplete"
        yield from self._events(self._blocks.finish(choice.is_cut), status)
        usage = choice.end.usage
        response = {
            **self._response(status),
            "completed_at": int(time.time()) if status == "completed" else None,
            "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
            "usage": {
                "input_tokens": usage.n_prompt,
                "input_tokens_details": {"cached_tokens": usage.n_cached},
                "output_tokens": usage.n_predicted,
                "output_tokens_details": {"reasoning_tokens": usage.n_thought, **prediction_json([choice])},
                "total_tokens": usage.n_prompt + usage.n_predicted,
            },
        }
        yield self._event(f"response.{status}", response=response, **stats_json(finished))

    def failed(self, problem: Problem) -> Iterator[Frame]:
        """A stream that breaks off: the error, and the response with it."""
        error: JsonMembers = {"code": problem.kind, "message": problem.message}
        response = {**self._response("failed", "incomplete"), "error": error}
        yield self._event("error", **error, param=problem.param)
        yield self._event("response.failed", response=response)

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The response of the last event, with the other members of that."""
        (last,) = deque(map(self.members_of, frames), maxlen=1)
        return {**last["response"], **{name: last[name] for name in last if name in ("timings", "uad")}}

    def _event(self, kind: str, **members: object) -> JsonMembers:
        number = self._n_events  # counted here, where frames are made in the order in which they are sent
        self._n_events += 1
        return {"type": kind, "sequence_number": number, **members}

    def _events(self, steps: Iterable[BlockStep], last: str) -> Iterator[Frame]:
        """last: the status of the item that the answer ends with."""
        for step in steps:
            block = step.block
            match step:
                case Opened():
                    item = self._item(block, "in_progress", is_open=True)
                    yield self._event("response.output_item.added", output_index=block.index, item=item)
                    if block.kind is not BlockKind.CALL:
                        yield self._event(
                            "response.content_part.added", **self._place(block), part=_part(block, "", ())
                        )
                case Added():
                    more = {"logprobs": _logprobs(step.probs)} if block.kind is BlockKind.TEXT else {}
                    name = f"response.{_TEXTS_OF[block.kind]}.delta"
                    yield self._event(name, **self._place(block), delta=step.text, **more)
                case Closed():
                    yield from self._closed(block, last if block is self._blocks.all[-1] else "completed")

    def _closed(self, block: Block, status: str) -> Iterator[Frame]:
        name, place = f"response.{_TEXTS_OF[block.kind]}.done", self._place(block)
        match block.kind:
            case BlockKind.CALL:
                yield self._event(name, **place, name=block.name, arguments=block.text)
            case BlockKind.THOUGHT:
                yield self._event(name, **place, text=block.text)
            case BlockKind.TEXT:
                yield self._event(name, **place, text=block.text, logprobs=_logprobs(self._probs(block)))
        if block.kind is not BlockKind.CALL:
            part = _part(block, block.text, self._probs(block))
            yield self._event("response.content_part.done", **place, part=part)
        item = self._item(block, status)
        yield self._event("response.output_item.done", output_index=block.index, item=item)

    def _place(self, block: Block) -> JsonMembers:
        place: JsonMembers = {"item_id": self._id(block), "output_index": block.index}
        return place if block.kind is BlockKind.CALL else {**place, "content_index": 0}

    def _response(self, status: str, last: str = "") -> JsonMembers:
        """The response with all items so far. last: the status of the last one, where it is not the response's."""
        all_ = self._blocks.all
        output = [self._item(block, last or status if block is all_[-1] else "completed") for block in all_]
        own = {"status": status, "error": None, "incomplete_details": None, "output": output, "usage": None}
        return {**self._same, **own}

    def _item(self, block: Block, status: str, is_open: bool = False) -> JsonMembers:
        own: JsonMembers = {"id": self._id(block), "status": status}
        text = "" if is_open else block.text
        content = [] if is_open else [_part(block, text, self._probs(block))]
        match block.kind:
            case BlockKind.THOUGHT:
                sealed = seal(text) if self._body.seals_thoughts and not is_open else None
                return {**own, "type": "reasoning", "summary": [], "content": content, "encrypted_content": sealed}
            case BlockKind.TEXT:
                return {**own, "type": "message", "role": "assistant", "content": content}
            case BlockKind.CALL:
                call = {"call_id": block.call_id, "name": block.name}
                return {**own, "type": "function_call", **call, "arguments": text}

    def _probs(self, block: Block) -> Sequence[TokenProb]:
        """Log-probabilities of a whole text. In a stream many are sent in its pieces only: its end is made on the event
        loop.
        """
        n = sum(1 + len(prob.top) for prob in block.probs) if self.job.stream else 0
        return block.probs if n <= MAX_REPEATED_PROBS else ()

    def _id(self, block: Block) -> str:
        return self._ids.setdefault(block.index, new_id(_PREFIXES[block.kind]))


_TEXTS_OF = {
    BlockKind.THOUGHT: "reasoning_text",
    BlockKind.TEXT: "output_text",
    BlockKind.CALL: "function_call_arguments",
}
"""Names in events for the text that an item is made of."""


def _part(block: Block, text: str, probs: Sequence[TokenProb]) -> JsonMembers:
    if block.kind is BlockKind.THOUGHT:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": _logprobs(probs)}


def _logprobs(probs: Sequence[TokenProb]) -> Iterator[JsonMembers] | list[JsonMembers]:
    return logprobs_json(probs) if probs else []


def _repeated(job: Job, body: ResponsesBody) -> Json:
    """Members of the request that every response repeats. Long ones are not repeated."""
    (request,) = job.requests
    long: Json = {
        "instructions": body.instructions,
        "text": {"format": body.text.format or {"type": "text"}, "verbosity": body.text.verbosity or "medium"},
        "tool_choice": body.tool_choice,
        "tools": [tool for tool in body.tools if tool.get("type", "function") == "function"],
    }
    parallel = body.parallel_tool_calls
    if parallel is None:
        choice = body.tool_choice.get("mode") if isinstance(body.tool_choice, dict) else body.tool_choice
        parallel = choice != "required"
    if sum(map(len, chunks(long))) > MAX_REPEATED_CHARS:
        long = {"instructions": None, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": []}
    return {
        "background": False,
        "completed_at": None,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "parallel_tool_calls": parallel,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort, "summary": body.reasoning.summary},
        "store": False,
        "temperature": request.sampling.temperature,
        "top_logprobs": body.top_logprobs or 0,
        "top_p": request.sampling.top_p,
        "truncation": "disabled",
        **long,
    }


_RESPONSE = AnswerRoute(read_response, ResponsesDialect)
_TOKENS = CountRoute(read_response, lambda n: {"object": "response.input_tokens", "input_tokens": n})


def _broken(problem: Problem) -> JsonMembers:
    """The error event of OpenAI's streams, without a number: those of the events before it are not known."""
    return {"type": "error", "code": str(problem.status), "message": problem.message, "param": None}


RESPONSES = Api(
    answers={"/v1/responses": _RESPONSE, "/responses": _RESPONSE},
    counts={"/v1/responses/input_tokens": _TOKENS, "/responses/input_tokens": _TOKENS},
    owns=lambda path: "/responses" in path,
    event=named_frame,
    broken=_broken,
)
