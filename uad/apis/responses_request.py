"""A request of OpenAI's Responses API, and the chat that it stands for. Knows no model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from uad.apis.dialogue import Dialogue, unsealed
from uad.apis.translated import Translated, chat_of, objects_in, refuse_several, renaming, rest_of, tools_at, validated
from uad.checkpoint import checkpoint
from uad.common.json_out import Json
from uad.errors import InvalidRequestError, NotSupportedError
from uad.requests.fields import Body, ChatAlternatives, Effort, Length
from uad.requests.message_fields import CHOICES, MAX_NAME, MAX_TOOLS, FunctionBody

log = logging.getLogger("uad.server")

MAX_ITEMS = 8192
MAX_PARTS = 4096  # of one item
ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
INCLUDES = (
    ENCRYPTED,
    LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
_MetaName = Annotated[StrictStr, Field(max_length=64)]
_MetaText = Annotated[StrictStr, Field(max_length=512)]
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
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
    """POST /v1/responses. What is not named here goes to the chat as it is: sampling, drafts, slots."""

    input: Any
    instructions: StrictStr | None = None
    max_output_tokens: Length | None = None
    include: list[StrictStr] = Field([], max_length=64)
    reasoning: ReasoningField = ReasoningField()
    text: TextField = TextField()
    tools: list[dict[StrictStr, Any]] = Field([], max_length=MAX_TOOLS)
    tool_choice: Any = "auto"
    parallel_tool_calls: StrictBool | None = None
    top_logprobs: ChatAlternatives | None = None
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


class ResultItem(Body):
    """`function_call_output` in `input`."""

    call_id: StrictStr
    output: Any = ""


class ThoughtItem(Body):
    """`reasoning` in `input`."""

    content: Any = None
    summary: Any = None
    encrypted_content: StrictStr | None = None


def read_response(members: Mapping[str, object]) -> Translated[ResponsesBody]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    _refuse(members)
    if "input" not in members:
        raise InvalidRequestError.at("input", "field required")
    own = ResponsesBody.model_validate(members)
    _check(own)
    tools, choice = _tools(own)
    spelling = tools_at([place for place, _ in tools], renaming(_NAMES))
    chat = {**rest_of(members, own), "messages": _messages(own), **_settings(own), **choice}
    chat |= {"parallel_tool_calls": own.parallel_tool_calls, "tools": [_told(tool) for _, tool in tools]}
    if all(tool.strict is not None for _, tool in tools):
        return Translated(own, chat_of(chat, spelling), spelling)
    strict = {**chat, "tools": [_told(tool, strict=True) for _, tool in tools]}
    return Translated(own, chat_of(strict, spelling), spelling, relaxed=chat_of(chat, spelling))


def _refuse(members: Mapping[str, object]) -> None:
    """What needs a server that remembers, and what an answer of this API cannot have."""
    for name in ("previous_response_id", "conversation"):
        if members.get(name):
            raise NotSupportedError(
                f"{name} is not supported: this server keeps no responses; send the whole conversation in input", name
            )
    if members.get("prompt"):
        raise NotSupportedError(
            "prompt is not supported: no templates are kept here; send instructions and input", "prompt"
        )
    refuse_several(members)


def _check(own: ResponsesBody) -> None:
    if own.store:
        raise NotSupportedError("store is not supported: this server keeps no responses; send false", "store")
    if own.background:
        raise NotSupportedError("background is not supported: this server keeps no responses; send false", "background")
    if own.truncation != "disabled":
        raise NotSupportedError.at("truncation", "only disabled is supported; shorten input yourself")
    for i, name in enumerate(own.include):
        if name not in INCLUDES:
            raise InvalidRequestError.at(f"include.{i}", f"must be one of {', '.join(INCLUDES)}")


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
    return {"type": "json_schema", "json_schema": {name: given[name] for name in ("schema", "strict") if name in given}}


# --- tools


def _tools(own: ResponsesBody) -> tuple[list[tuple[int, FunctionBody]], Json]:
    """The functions that may be called, each with its place in `tools`, and the chat's `tool_choice`.

    Other kinds run on OpenAI's servers, or have no form in a chat. They are left out.
    """
    found = []
    for i, tool in enumerate(own.tools):
        kind = tool.get("type", "function")
        if kind == "function":
            found.append((i, validated(FunctionBody, tool, f"tools.{i}")))
        else:
            _tell_left_out(str(kind)[:64])
    choice = own.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = _allowed(choice)
        found, choice = [one for one in found if one[1].name in allowed], choice.get("mode", "auto")
    return found, {"tool_choice": _choice(choice)}


@lru_cache(64)
def _tell_left_out(kind: str) -> None:
    """Once for each kind, in the log."""
    log.warning("/v1/responses: tools of type %r are left out; only functions can be called here", kind)


def _choice(choice: object) -> object:
    if isinstance(choice, str) and choice in CHOICES:
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise InvalidRequestError.at(
        "tool_choice", "must be none, auto, required, allowed_tools or a function; nothing else can be called here"
    )


def _told(tool: FunctionBody, strict: bool | None = None) -> Json:
    """A tool of a chat. strict: if the tool does not say it itself."""
    function = tool.model_dump(exclude_none=True)
    return {"type": "function", "function": {**({} if strict is None else {"strict": strict}), **function}}


def _allowed(choice: Mapping[str, object]) -> set[object]:
    tools = choice.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidRequestError.at("tool_choice.tools", "must be a list of tools")
    return {name for tool in tools if isinstance(name := tool.get("name"), str)}


# --- the conversation


def _messages(own: ResponsesBody) -> list[Json]:
    talk = Dialogue()
    if own.instructions:
        talk.say("system", [own.instructions])
    if isinstance(own.input, str):
        talk.say("user", [own.input])
        return talk.messages
    for where, item in objects_in(own.input, "input", "items", MAX_ITEMS):
        checkpoint()
        _item(talk, where, item)
    return talk.messages


def _item(talk: Dialogue, where: str, item: Mapping[str, object]) -> None:
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "item_reference":
        raise NotSupportedError.at(
            where, "this server keeps no items to refer to; send the item itself, as clients do with store false"
        )
    put = _ITEMS.get(kind) if isinstance(kind, str) else None
    if put is None:
        raise NotSupportedError.at(
            f"{where}.type", f"items are {', '.join(_ITEMS)} here, not {str(kind)[:64]!r}; leave it out"
        )
    put(talk, where, item)


def _message(talk: Dialogue, where: str, item: object) -> None:
    """Of the user several in a row are one, as codex sends them: some templates take no two."""
    message = validated(MessageItem, item, where)
    texts = texts_of(message.content, f"{where}.content")
    if message.role == "user":
        talk.go_on("user", texts)
    else:
        talk.say(message.role, texts)


def _call(talk: Dialogue, where: str, item: object) -> None:
    call = validated(CallItem, item, where)
    talk.call(call.call_id, call.name, call.arguments)


def _result(talk: Dialogue, where: str, item: object) -> None:
    result = validated(ResultItem, item, where)
    talk.result(result.call_id, texts_of(result.output, f"{where}.output"))


def _thought(talk: Dialogue, where: str, item: object) -> None:
    """Thoughts as they are, else as this server put them away, else their summary. Others cannot be read here."""
    thought = validated(ThoughtItem, item, where)
    texts = texts_of(thought.content, f"{where}.content")
    sealed = unsealed(thought.encrypted_content)
    if text := "\n\n".join(texts) or sealed or "\n\n".join(texts_of(thought.summary, f"{where}.summary")):
        talk.think(text)


_ITEMS: Mapping[str, Callable[[Dialogue, str, object], None]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _result,
    "reasoning": _thought,
}


def texts_of(content: object, where: str) -> list[str]:
    """The texts of a content: a string, or a list of parts. Raises NotSupportedError for images, files and audio."""
    if isinstance(content, str):
        return [content]
    if content is None:
        return []
    return [_text(part, at) for at, part in objects_in(content, where, "text parts", MAX_PARTS)]


def _text(part: Mapping[str, object], where: str) -> str:
    kind = part.get("type")
    if kind not in (*_TEXTS, "refusal"):
        raise NotSupportedError.at(
            where, f"this server reads text parts only, not {str(kind)[:64]!r}; leave images, audio and files out"
        )
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise InvalidRequestError.at(f"{where}.text", "must be a string")
    return text
