"""A request of Anthropic's Messages API, and the chat that it stands for. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from uad.apis.dialogue import Dialogue, unsealed
from uad.apis.translated import Translated, chat_of, objects_in, refuse_several, renaming, rest_of, tools_at, validated
from uad.checkpoint import checkpoint
from uad.common.json_out import Json
from uad.errors import InvalidRequestError, NotSupportedError
from uad.requests.fields import MAX_MESSAGES, Body, Count, Effort, Length, Words
from uad.requests.message_fields import MAX_NAME, MAX_PARTS, MAX_TOOLS, FunctionBody

OLDEST_VERSION = "2023-06-01"
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
    """POST /v1/messages. What is not named here goes to the chat as it is: sampling, drafts, slots."""

    messages: Annotated[list[Any], Field(max_length=MAX_MESSAGES)]
    system: Any = None
    max_tokens: Length | None = None
    stop_sequences: Words = Field([])
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
    """One of `messages`."""

    role: Literal["user", "assistant", "system"]
    content: Any


class TextBlock(Body):
    """Text of any role."""

    text: StrictStr


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
    """What a call gave."""

    tool_use_id: StrictStr
    content: Any = ""
    is_error: StrictBool = False


def read_message(members: Mapping[str, object]) -> Translated[MessagesBody]:
    """The request and its chat. Raises InvalidRequestError, NotSupportedError or ValidationError."""
    _refuse(members)
    own = MessagesBody.model_validate(members)
    messages, found = _messages(own)
    tools, places = _tools(own, found)
    spelling = tools_at(places, renaming(_NAMES))
    chat = {**rest_of(members, own), "messages": messages, "tools": tools, "stop": own.stop_sequences}
    chat |= {**_choice(own), **_thinking(own), **_form(own), **_TELEMETRY}
    if own.max_tokens is not None:
        chat["max_tokens"] = own.max_tokens
    return Translated(own, chat_of(chat, spelling), spelling)


def check_version(version: str | None) -> None:
    """Raise InvalidRequestError for what is no version of the API, or one whose streams had no named events."""
    if version is not None and (not _DATE.fullmatch(version) or version < OLDEST_VERSION):
        raise InvalidRequestError(
            f"anthropic-version: must be a date from {OLDEST_VERSION} on, not {version[:64]!r}; send {OLDEST_VERSION}"
        )


def _refuse(members: Mapping[str, object]) -> None:
    """What runs on Anthropic's servers, and what an answer of this API cannot have."""
    for name in ("mcp_servers", "container"):
        if members.get(name):
            raise NotSupportedError(
                f"{name} is not supported: nothing runs here; send tools that the client runs", name
            )
    refuse_several(members)


def _tools(own: MessagesBody, found: Collection[str]) -> tuple[list[Json], list[int]]:
    """The tools of the chat, and the place of each in the request. One that is deferred waits until it is found."""
    tools = [(i, _tool(tool, f"tools.{i}")) for i, tool in enumerate(own.tools)]
    kept = [(i, tool) for i, tool in tools if not tool.defer_loading or tool.name in found]
    return [_told(tool) for _, tool in kept], [i for i, _ in kept]


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


def _tool(tool: Mapping[str, object], where: str) -> CustomTool:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise NotSupportedError.at(
            where, f"tools of type {str(kind)[:64]!r} are Anthropic's own; send one that has an input_schema"
        )
    return validated(CustomTool, tool, where)


def _told(tool: CustomTool) -> Json:
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
    return {
        **out,
        "response_format": {"type": "json_schema", "json_schema": {"schema": given["schema"], "strict": True}},
    }


# --- the conversation


def _messages(own: MessagesBody) -> tuple[list[Json], set[str]]:
    """The chat's messages, and the names of the tools that were found on the way."""
    talk, found = Dialogue(), set[str]()
    given = [] if own.system is None else texts_in(own.system, "system")
    system = [text for text in (_BILLING.sub("", one, count=1) for one in given) if text]
    if system:
        talk.say("system", system)
    for i, message in enumerate(own.messages):
        checkpoint()
        _turn(talk, f"messages.{i}", message, found)
    return talk.messages, found


def _turn(talk: Dialogue, where: str, message: object, found: set[str]) -> None:
    turn = validated(TurnBody, message, where)
    content = turn.content
    match turn.role:
        case "system":
            talk.say("system", texts_in(content, f"{where}.content"))
        case "user":
            _user(talk, f"{where}.content", content, found)
        case "assistant" if isinstance(content, str):
            talk.say("assistant", [content])
        case "assistant":
            for at, kind, block in _blocks(content, f"{where}.content", _ASSISTANT):
                _ASSISTANT[kind](talk, at, block)


def _user(talk: Dialogue, where: str, content: object, found: set[str]) -> None:
    """Results first, wherever they stand: they answer the calls before them. Turns in a row are one."""
    if isinstance(content, str):
        talk.go_on("user", [content])
        return
    blocks = _blocks(content, where, ("text", "tool_result"))
    for at, _, block in (one for one in blocks if one[1] == "tool_result"):
        _result(talk, at, validated(ResultBlock, block, at), found)
    texts = [validated(TextBlock, block, at).text for at, kind, block in blocks if kind == "text"]
    if texts or not blocks:
        talk.go_on("user", texts)


def _result(talk: Dialogue, where: str, result: ResultBlock, found: set[str]) -> None:
    """An error says that it is one: a chat has no other place for that."""
    if isinstance(result.content, str):
        texts = [result.content]
    else:
        blocks = _blocks(result.content, f"{where}.content", ("text", "tool_reference"))
        names = {at: validated(ReferenceBlock, block, at).tool_name for at, kind, block in blocks if kind != "text"}
        found.update(names.values())
        texts = [names[at] if at in names else validated(TextBlock, block, at).text for at, _, block in blocks]
    if result.is_error:
        texts = [f"Error: {text}" if i == 0 else text for i, text in enumerate(texts or [""])]
    talk.result(result.tool_use_id, texts)


def _say(talk: Dialogue, where: str, block: object) -> None:
    talk.say("assistant", [validated(TextBlock, block, where).text])


def _think(talk: Dialogue, where: str, block: object) -> None:
    thought = validated(ThinkingBlock, block, where)
    if text := thought.thinking or unsealed(thought.signature):
        talk.think(text)


def _use(talk: Dialogue, where: str, block: object) -> None:
    use = validated(UseBlock, block, where)
    talk.call(use.id, use.name, use.input)


def _nothing(talk: Dialogue, where: str, block: object) -> None:
    """Thoughts that only Anthropic's servers can read."""


_ASSISTANT: Mapping[str, Callable[[Dialogue, str, object], None]] = {
    "text": _say,
    "thinking": _think,
    "redacted_thinking": _nothing,
    "tool_use": _use,
}


def texts_in(content: object, where: str) -> list[str]:
    """The texts of a content that holds nothing else: a string, or a list of text blocks."""
    if isinstance(content, str):
        return [content]
    return [validated(TextBlock, block, at).text for at, _, block in _blocks(content, where, ("text",))]


def _blocks(
    content: object, where: str, kinds: Mapping[str, object] | tuple[str, ...]
) -> list[tuple[str, str, object]]:
    """(where, type, block) of each block of a content. Raises NotSupportedError for one of another type."""
    found: list[tuple[str, str, object]] = []
    for at, block in objects_in(content, where, "blocks", MAX_PARTS):
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            hint = (
                "image input is not supported: this server reads text" if kind == "image" else "this server reads text"
            )
            raise NotSupportedError.at(at, f"{hint}; blocks are {', '.join(kinds)} here, not {str(kind)[:64]!r}")
        found.append((at, kind, block))
    return found
