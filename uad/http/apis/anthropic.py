"""The dialect of Anthropic's Messages API: a request and the chat that it stands for; an answer's events."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import Json, dumps, named_frame
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.events import Delta
from uad.base.stats import Usage
from uad.base.types import Finish
from uad.http.apis.api import BODY_ONLY, AnswerRoute, Api, Called, CountRoute
from uad.http.apis.blocks import Added, Block, BlockDialect, BlockKind, BlockStep, Closed, Opened
from uad.http.apis.choice import Choice
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
from uad.http.apis.problems import KINDS, OVERFLOW, Problem
from uad.http.requests.chat import Reading
from uad.http.requests.fields import MAX_MESSAGES, Body, ChatBody, Count, Effort, Length, StopTexts, account_for_request
from uad.http.requests.job import Job
from uad.http.requests.left_out import account_for, leave_out
from uad.http.requests.message_fields import MAX_NAME, MAX_PARTS, MAX_TOOLS, FunctionBody
from uad.http.requests.no_effect import NO_EFFECT

ROUTE = "/v1/messages"
OLDEST_VERSION = "2023-06-01"
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}
"""Types of errors by status."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NAMES = (
    (r"messages\b.*", "messages"),
    (r"(max_completion_tokens|n_predict)\b", "max_tokens"),
    (r"stop\b", "stop_sequences"),
    (r"response_format(\.json_schema)?\b", "output_config.format"),
    (r"reasoning_effort\b", "output_config.effort"),
    (r"(tools\.\d+)\.parameters\b", r"\1.input_schema"),
    (r"(thinking_budget\w*|reasoning_budget_tokens)\b", "thinking.budget_tokens"),
)
_NOTHING_RUNS = "nothing runs here; send tools that the client runs"
_TEXT = {"type": "string"}
_COUNT = {"type": "integer"}
_NUMBER = {"type": "number"}
_PAIR = {"type": "array", "items": _COUNT}
_RUN_BY_CLIENTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "bash": {"command": _TEXT, "restart": {"type": "boolean"}},
    "text_editor": {
        "command": _TEXT,
        "path": _TEXT,
        **dict.fromkeys(("file_text", "old_str", "new_str", "insert_text"), _TEXT),
        "insert_line": _COUNT,
        "view_range": _PAIR,
    },
    "memory": {
        "command": _TEXT,
        **dict.fromkeys(("path", "old_path", "new_path", "file_text", "old_str", "new_str", "insert_text"), _TEXT),
        "insert_line": _COUNT,
        "view_range": _PAIR,
    },
    "computer": {
        "action": _TEXT,
        "text": _TEXT,
        **dict.fromkeys(("coordinate", "start_coordinate"), _PAIR),
        **dict.fromkeys(("duration", "scroll_amount"), _NUMBER),
        "scroll_direction": _TEXT,
    },
}
"""Anthropic's tools that clients run, by the beginning of their types, and the arguments that their calls have."""
_TELEMETRY = {"return_progress": True, "timings_per_token": False}
"""The first event of a stream says how much of the prompt was in the cache."""
_BILLING = re.compile(r"\Ax-anthropic-billing-header:(\s*[\w.-]+=[^;\n]*;)*\s*")
"""Claude Code's stamp in front of its system prompt. It is new in each request, so that nothing would be cached."""


class ThinkingField(Body):
    """`thinking` of a message. A budget of 0 is as `disabled`; when to think is the model's to say, where it is not
    `enabled` for all answers.
    """

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputField(Body):
    """`output_config` of a message: the form of the answer, and how much is thought."""

    format: dict[StrictStr, Any] | None = None
    effort: Effort | None = None


class MessagesBody(Body):
    """POST /v1/messages. Fields that are not named here go to the chat unchanged: sampling, drafts, slots."""

    messages: Annotated[list[Any], Field(max_length=MAX_MESSAGES)]
    system: Any = None
    max_tokens: Length | None = None
    stop_sequences: StopTexts = Field([])
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)
    tool_choice: dict[StrictStr, Any] = Field({})
    thinking: ThinkingField | None = None
    output_config: OutputField = OutputField()
    output_format: dict[StrictStr, Any] | None = None

    @property
    def hides_thoughts(self) -> bool:
        """Whether the answer has thoughts only in their signature."""
        return self.thinking is not None and self.thinking.display == "omitted"


class CustomTool(FunctionBody):
    """One of `tools` that the client runs."""

    parameters: dict[StrictStr, Any] | None = Field(None, validation_alias="input_schema")
    defer_loading: StrictBool = False


class TurnBody(Body):
    """One of `messages`. The assistant's may be without content."""

    role: Literal["user", "assistant", "system"]
    content: Any = None


class TextBlock(Body):
    """Text of any role."""

    text: StrictStr


class SourceField(Body):
    """Where a picture is: in `data` as base64, or at `url`."""

    type: Literal["base64", "url"]
    data: StrictStr = ""
    url: StrictStr = ""


class DocumentSource(Body):
    """Content of a document: `data` as text, or `content`, a text or blocks of text."""

    type: StrictStr
    data: StrictStr = ""
    content: Any = None


class DocumentBlock(Body):
    """A document of the user's, or of a tool's result."""

    source: DocumentSource
    title: StrictStr | None = None
    context: StrictStr | None = None


class SearchBlock(Body):
    """A result of a search that the client made."""

    title: StrictStr = ""
    source: StrictStr = ""
    content: Any = ""


class ImageBlock(Body):
    """A picture of the user's, or of a tool's result."""

    source: SourceField


class ReferenceBlock(Body):
    """A tool that a search of tools has found."""

    tool_name: StrictStr


class ThinkingBlock(Body):
    """Thoughts of an earlier answer."""

    thinking: StrictStr = ""
    signature: StrictStr | None = None


class UseBlock(Body):
    """A call of an earlier answer."""

    id: StrictStr
    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    input: dict[StrictStr, Any] = Field({})


class ResultBlock(Body):
    """The result of a call."""

    tool_use_id: StrictStr
    content: Any = ""
    is_error: StrictBool = False


def read_message(members: Mapping[str, object], called: Called = BODY_ONLY) -> Translated[MessagesBody]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    check_version(called.headers.get("anthropic-version"))
    refuse(members, {})
    own = MessagesBody.model_validate(members)
    account_for_request(members, MessagesBody, ChatBody)
    talk, referenced = _conversation(own)
    own = own.model_copy(update={"messages": []})  # they may hold files of pictures, and the answer keeps the rest
    tools, places = _tools(own, referenced)
    spelling = tools_at(places, renaming(_NAMES))
    chat = {**rest_of(members, own), "messages": talk.messages, "tools": tools}
    chat |= {"stop": own.stop_sequences} if own.stop_sequences else {}
    chat |= {**_choice(own), **_thinking(own), **_form(own), **_TELEMETRY}
    if own.max_tokens is not None:
        chat["max_tokens"] = own.max_tokens
    return Translated(own, chat_of(chat, spelling), spelling, places=talk.places)


def check_version(version: str | None) -> None:
    """Raise InvalidRequestError for what is no version of the API, or one whose streams had no named events."""
    if version is not None and (not _DATE.fullmatch(version) or version < OLDEST_VERSION):
        raise InvalidRequestError(
            f"anthropic-version: must be a date from {OLDEST_VERSION} on, not {version[:64]!r}; send {OLDEST_VERSION}"
        )


def _tools(own: MessagesBody, referenced: Collection[str]) -> tuple[list[Json], list[int]]:
    """The tools of the chat, and the place of each in the request. One that is deferred waits until it is found; what
    runs on Anthropic's servers is left out.
    """
    read = ((i, _tool(tool, f"tools.{i}")) for i, tool in enumerate(own.tools))
    tools = [(i, tool) for i, tool in read if tool is not None]
    kept = [(i, tool) for i, tool in tools if not tool.defer_loading or tool.name in referenced]
    return [_tool_json(tool) for _, tool in kept], [i for i, _ in kept]


def _choice(own: MessagesBody) -> Json:
    if not own.tool_choice:
        return {}
    out: Json = {}
    match own.tool_choice.get("type"):
        case "auto" | "none" as word:
            out["tool_choice"] = word
        case "any":
            out["tool_choice"] = "required"
        case "tool":
            out["tool_choice"] = {"type": "function", "function": {"name": own.tool_choice.get("name")}}
        case _:
            raise InvalidRequestError.at("tool_choice.type", "must be auto, any, tool or none")
    is_single = own.tool_choice.get("disable_parallel_tool_use")
    if is_single is None:
        return out
    if not isinstance(is_single, bool):
        where = "tool_choice.disable_parallel_tool_use"
        raise InvalidRequestError.at(where, "must be true or false")
    return {**out, "parallel_tool_calls": not is_single}


def _tool(tool: Mapping[str, object], where: str) -> CustomTool | None:
    """None for one that does not run on the client's side, by all that is known."""
    kind = str(tool.get("type") or "custom")
    if kind == "custom" or tool.get("input_schema") is not None:
        return accounted(CustomTool, tool, where, ROUTE)
    for name, arguments in _RUN_BY_CLIENTS.items():
        if kind.startswith(f"{name}_"):
            return accounted(
                CustomTool, {"input_schema": {"type": "object", "properties": arguments}, **tool}, where, ROUTE
            )
    leave_out(ROUTE, f"the tool of type {kind[:64]!r}", _NOTHING_RUNS)
    return None


def _tool_json(tool: CustomTool) -> Json:
    function: Json = tool.model_dump(exclude_none=True, include={"name", "description", "strict"})
    return {"type": "function", "function": {**function, "parameters": tool.parameters or {}}}


def _thinking(own: MessagesBody) -> Json:
    thinking = own.thinking
    if thinking is None or thinking.type in ("adaptive", "between_tools"):
        return {}
    if thinking.type == "disabled":
        return {"enable_thinking": False}
    return {
        "enable_thinking": True,
        **({} if thinking.budget_tokens is None else {"thinking_budget": thinking.budget_tokens}),
    }


def _form(own: MessagesBody) -> Json:
    out: Json = {} if own.output_config.effort is None else {"reasoning_effort": own.output_config.effort}
    name, given = "output_config.format", own.output_config.format
    if given is None:
        name, given = "output_format", own.output_format
    if given is None:
        return out
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        raise InvalidRequestError.at(name, "must be of type json_schema, with a schema that is an object")
    account_for(given, ("type", "schema", "strict"), NO_EFFECT, ROUTE, name)
    return {
        **out,
        "response_format": {"type": "json_schema", "json_schema": {"schema": given["schema"], "strict": True}},
    }


# --- the conversation


def _conversation(own: MessagesBody) -> tuple[Dialogue, set[str]]:
    """The chat's messages with their pictures, and the names of the tools that were found on the way."""
    talk, referenced = Dialogue(), set[str]()
    given = [] if own.system is None else texts_in(own.system, "system")
    system = [text for text in (_BILLING.sub("", text, count=1) for text in given) if text]
    if system:
        talk.say("system", system)
    for i, message in enumerate(own.messages):
        checkpoint()
        _turn(talk, f"messages.{i}", message, referenced)
    return talk, referenced


def _turn(talk: Dialogue, where: str, message: object, referenced: set[str]) -> None:
    turn = accounted(TurnBody, message, where, ROUTE)
    content = turn.content
    if content is None and turn.role != "assistant":
        raise InvalidRequestError.at(f"{where}.content", "field required")
    match turn.role:
        case "assistant" if content is None:
            pass
        case "system":
            talk.say("system", texts_in(content, f"{where}.content"))
        case "user":
            _user(talk, f"{where}.content", content, referenced)
        case "assistant" if isinstance(content, str):
            talk.say("assistant", [content])
        case "assistant":
            for at, kind, block in _blocks(content, f"{where}.content", _ASSISTANT, leaves_out=True):
                _put_block(talk, at, kind, block)


_ASSISTANT = ("text", "thinking", "redacted_thinking", "tool_use")


def _put_block(talk: Dialogue, where: str, kind: str, block: object) -> None:
    """One block of the assistant's. Redacted thoughts can be read on Anthropic's servers only: they are left out."""
    match kind:
        case "text":
            talk.say("assistant", [accounted(TextBlock, block, where, ROUTE).text])
        case "thinking":
            thought = accounted(ThinkingBlock, block, where, ROUTE)
            if text := thought.thinking or unsealed(thought.signature):
                talk.think(text)
        case "tool_use":
            use = accounted(UseBlock, block, where, ROUTE)
            talk.call(use.id, use.name, use.input)


def _user(talk: Dialogue, where: str, content: object, referenced: set[str]) -> None:
    """Results first, wherever they stand: they answer the calls before them. Turns in a row are one."""
    if isinstance(content, str):
        talk.go_on("user", [content])
        return
    blocks = _blocks(content, where, (*_READ, "tool_result", *_UNREAD))
    for at, _, block in (block for block in blocks if block[1] == "tool_result"):
        _result(talk, at, accounted(ResultBlock, block, at, ROUTE), referenced)
    pieces = [_piece(at, kind, block) for at, kind, block in blocks if kind in _READ]
    for _, kind, _ in (block for block in blocks if block[1] in _UNREAD):
        leave_out(ROUTE, f"a block of type {kind!r}", _NOTHING_RUNS)
    if pieces or not blocks:
        talk.go_on("user", pieces)


_READ = ("text", "image", "document", "search_result")
_UNREAD = ("container_upload",)
"""Types of the user's blocks that are left out: what is there for tools of Anthropic's."""


def _piece(where: str, kind: str, block: object) -> Piece:
    """A text or a picture."""
    match kind:
        case "text":
            return accounted(TextBlock, block, where, ROUTE).text
        case "document":
            return _document(where, accounted(DocumentBlock, block, where, ROUTE))
        case "search_result":
            result = accounted(SearchBlock, block, where, ROUTE)
            return _lines(result.title, result.source, *texts_in(result.content, f"{where}.content"))
    source = accounted(ImageBlock, block, where, ROUTE).source
    return Picture.of_base64(source.data, where) if source.type == "base64" else Picture(source.url, where)


def _document(where: str, document: DocumentBlock) -> str:
    """The text of a document, below its title and what is said of it."""
    source = document.source
    match source.type:
        case "text":
            texts = [source.data]
        case "content":
            texts = texts_in(source.content, f"{where}.source.content")
        case other:
            raise NotSupportedError.at(
                f"{where}.source.type",
                f"documents are read as text or content, not {other[:64]!r}; send their text, or their pages as images",
            )
    return _lines(document.title, document.context, *texts)


def _lines(*texts: str | None) -> str:
    return "\n".join(text for text in texts if text)


def _result(talk: Dialogue, where: str, result: ResultBlock, referenced: set[str]) -> None:
    """An error says that it is one: a chat has no other place for that."""
    if isinstance(result.content, str):
        pieces: list[Piece] = [result.content]
    else:
        blocks = _blocks(result.content, f"{where}.content", (*_READ, "tool_reference"))
        names = {
            at: accounted(ReferenceBlock, block, at, ROUTE).tool_name
            for at, kind, block in blocks
            if kind == "tool_reference"
        }
        referenced.update(names.values())
        pieces = [names[at] if at in names else _piece(at, kind, block) for at, kind, block in blocks]
    if result.is_error:
        first = pieces[0] if pieces else ""
        pieces = [f"Error: {first}", *pieces[1:]] if isinstance(first, str) else ["Error: ", *pieces]
    talk.result(result.tool_use_id, pieces)


def texts_in(content: object, where: str) -> list[str]:
    """The texts of a content that holds nothing else: a string, or a list of text blocks."""
    if isinstance(content, str):
        return [content]
    return [accounted(TextBlock, block, at, ROUTE).text for at, _, block in _blocks(content, where, ("text",))]


def _blocks(
    content: object, where: str, kinds: tuple[str, ...], leaves_out: bool = False
) -> list[tuple[str, str, JsonMembers]]:
    """(where, type, block) of each block of a content. Raises NotSupportedError for one of another type, if it is not
    left out: in the assistant's turns these are calls that ran on Anthropic's servers, and their results.
    """

    def refusal(at: str, kind: object) -> NotSupportedError:
        return NotSupportedError.at(at, f"blocks are {', '.join(kinds)} here, not {str(kind)[:64]!r}")

    return list(walk(content, where, "blocks", MAX_PARTS, kinds, _unread if leaves_out else refusal))


def _unread(where: str, kind: object) -> None:
    leave_out(ROUTE, f"a block of type {str(kind)[:64]!r}", _NOTHING_RUNS)


# --- the answer

MOST_SECONDS_OF_PINGS = 120.0
"""Claude Code leaves a stream after 300 s without content, whatever pings come."""


class MessagesDialect(BlockDialect):
    """POST /v1/messages."""

    ping = named_frame(dumps({"type": "ping"}))
    call_prefix = "toolu_"

    def __init__(self, job: Job, served: Served, reading: Reading, body: MessagesBody) -> None:
        super().__init__(job, reading)
        self._body = body
        self._same: JsonMembers = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": served.model}

    def opening(self, choice: Choice) -> Iterator[Frame]:
        """The message without content."""
        usage = _usage_json(Usage(len(choice.request.prompt), choice.n_cached, 0))
        begun = {**self._same, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": begun}

    def piece(self, choice: Choice, delta: Delta) -> Iterator[Frame]:
        """Events for what the piece says."""
        return self._events(self._blocks.feed(delta.text))

    def closing(self, choice: Choice, finished: Sequence[Choice]) -> Iterator[Frame]:
        """The text that was kept back, the end of the last block, why it ended, and the usage."""
        yield from self._events(self._blocks.finish(choice.is_cut))
        reason, word = self._reason(choice)
        delta = {"stop_reason": reason, "stop_sequence": word}
        yield {"type": "message_delta", "delta": delta, "usage": _usage_json(choice.end.usage)}
        yield {"type": "message_stop"}

    def silence(self, seconds: float) -> bytes:
        """A ping, and after a while an empty delta with it: some clients leave a stream that has nothing but pings."""
        if seconds < MOST_SECONDS_OF_PINGS or not self.choices[0].is_open:
            return self.ping
        return self.ping + b"".join(map(self.encoded, self._events(self._blocks.keep_open())))

    def failed(self, problem: Problem) -> Iterator[Frame]:
        """The end of a stream that breaks off."""
        yield error_json(problem)

    def _events(self, steps: Iterable[BlockStep]) -> Iterator[Frame]:
        for step in steps:
            block, where = step.block, {"index": step.block.index}
            match step:
                case Opened():
                    yield {"type": "content_block_start", **where, "content_block": _begun(block)}
                case Added() if step.text and block.kind is BlockKind.THOUGHT and self._body.hides_thoughts:
                    pass
                case Added():
                    kind, name = _DELTAS[block.kind]
                    yield {"type": "content_block_delta", **where, "delta": {"type": kind, name: step.text}}
                case Closed():
                    if block.kind is BlockKind.THOUGHT:
                        # Nothing is signed here. Thoughts that are not shown are in it, so that they come back.
                        signature = seal(block.text) if self._body.hides_thoughts else ""
                        delta = {"type": "signature_delta", "signature": signature}
                        yield {"type": "content_block_delta", **where, "delta": delta}
                    yield {"type": "content_block_stop", **where}

    def _reason(self, choice: Choice) -> tuple[str, str | None]:
        """Why the message ended, and the stop sequence that it ended at."""
        end = choice.end
        if end.finish is Finish.LENGTH:
            return "max_tokens", None
        if self._blocks.n_calls:
            return "tool_use", None
        if end.stopping_word and end.stopping_word in self._body.stop_sequences:
            return "stop_sequence", end.stopping_word
        return "end_turn", None

    def fold(self, frames: Iterable[Frame]) -> JsonMembers:
        """The message that its events make. A call that was cut in its arguments is left out: they are no object."""
        message: JsonMembers = {}
        content: list[JsonMembers | None] = []
        texts: dict[str, list[str]] = {}
        for frame in map(self.members_of, frames):
            match frame["type"]:
                case "message_start":
                    message = frame["message"]
                case "content_block_start":
                    content.append(frame["content_block"])
                    texts = {}
                case "content_block_delta":  # {"type": "text_delta", "text": "He"}
                    _, name = frame["delta"]
                    texts.setdefault(name, []).append(frame["delta"][name])
                case "content_block_stop":
                    content[-1] = _block_of(
                        content[-1] or {}, {name: "".join(pieces) for name, pieces in texts.items()}
                    )
                case "message_delta":
                    message |= {**frame["delta"], "usage": frame["usage"]}
        return {**message, "content": [block for block in content if block is not None]}


_DELTAS = {
    BlockKind.THOUGHT: ("thinking_delta", "thinking"),
    BlockKind.TEXT: ("text_delta", "text"),
    BlockKind.CALL: ("input_json_delta", "partial_json"),
}


def _begun(block: Block) -> JsonMembers:
    match block.kind:
        case BlockKind.THOUGHT:
            return {"type": "thinking", "thinking": "", "signature": ""}
        case BlockKind.TEXT:
            return {"type": "text", "text": ""}
        case BlockKind.CALL:
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _block_of(begun: JsonMembers, texts: JsonMembers) -> JsonMembers | None:
    """A content block as it began, with the texts of its deltas; None for a call whose arguments are no object."""
    if begun["type"] != "tool_use":
        return {**begun, **texts}
    try:
        arguments = json.loads(texts.get("partial_json", ""))
    except (ValueError, RecursionError):
        return None
    return {**begun, "input": arguments} if isinstance(arguments, dict) else None


def _usage_json(usage: Usage) -> JsonMembers:
    """Anthropic counts what was in the cache apart from what was read."""
    return {
        "input_tokens": usage.n_prompt - usage.n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.n_cached,
        "output_tokens": usage.n_predicted,
        "output_tokens_details": {"thinking_tokens": usage.n_thought},
    }


def listed_model(name: str, created: int) -> Json:
    """Members of a listed model that Anthropic's clients read, beside OpenAI's. created: in seconds since 1970."""
    at = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    return {"type": "model", "display_name": name, "created_at": at}


def error_json(problem: Problem, name: str = "") -> JsonMembers:
    """Anthropic's error object, inside its envelope. name: of the request, if it has one."""
    error = {"type": _ERRORS.get(problem.status, KINDS[400]), "message": _message(problem)}
    return {"type": "error", "error": error, **({"request_id": name} if name else {})}


def _message(problem: Problem) -> str:
    """Clients shorten a conversation where they read that the prompt is too long."""
    if problem.kind != OVERFLOW:
        return problem.message
    n_prompt, n_ctx = problem.extra["n_prompt_tokens"], problem.extra["n_ctx"]
    return f"prompt is too long: {n_prompt} tokens > {n_ctx} maximum; {problem.message}"


MESSAGES = Api(
    answers={"/v1/messages": AnswerRoute(read_message, MessagesDialect)},
    counts={"/v1/messages/count_tokens": CountRoute(read_message, lambda n: {"input_tokens": n})},
    owns=lambda path: "/v1/messages" in path,
    error=error_json,
    event=named_frame,
    broken=error_json,
    key_headers=("X-Api-Key",),
    id_headers=("request-id",),
)
