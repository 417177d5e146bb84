"""The messages and the tools of a chat, as bodies have them. Knows no template and no vocabulary."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    model_validator,
)

from uad.base.types import IMAGE_PLACE

MAX_TOOLS = 1024
MAX_CALLS = 1024
"""Calls of one message."""
MAX_PARTS = 4096
"""Parts of one message."""
MAX_NAME = 256
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
CHOICES = ("none", "auto", "required")


class Body(BaseModel):
    """Base of every request body, and of the objects in one. Null is the default of a field. Of a field with several
    names the first counts that has a value; null and an empty text do not count where another name has a value.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, regex_engine="rust-regex")

    @model_validator(mode="before")
    @classmethod
    def _first_said(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        hidden = {name for names in _several_names(cls) for name in _hidden(names, value)}
        hidden |= {name for name in _names_with_default(cls) if name in value and value[name] is None}
        return {name: member for name, member in value.items() if name not in hidden} if hidden else value


@lru_cache
def _several_names(kind: type[Body]) -> tuple[tuple[str, ...], ...]:
    """The names of each field that goes by several."""
    aliases = [field.validation_alias for field in kind.model_fields.values()]
    return tuple(tuple(map(str, alias.choices)) for alias in aliases if isinstance(alias, AliasChoices))


@lru_cache
def _names_with_default(kind: type[Body]) -> tuple[str, ...]:
    """All names of the fields whose default is another than null."""
    names: list[str] = []
    for name, field in kind.model_fields.items():
        alias = field.validation_alias
        if not field.is_required() and field.get_default(call_default_factory=False) is not None:
            names += map(str, alias.choices) if isinstance(alias, AliasChoices) else [name]
    return tuple(names)


def _hidden(names: tuple[str, ...], members: dict[str, Any]) -> list[str]:
    """Names that say nothing beside another."""
    # {"reasoning_content": null, "reasoning": "so far"}: the second is meant.
    empty = [name for name in names if name in members and (members[name] is None or members[name] == "")]
    return empty if empty and any(name in members for name in names if name not in empty) else []


def _function_only(value: object) -> object:
    if value != "function":
        raise ValueError("only functions can be called here; leave other kinds of tools out")
    return value


def _arguments(value: object) -> object:
    if value is not None and not isinstance(value, str | dict):
        raise ValueError("must be JSON text, or an object")
    return value


def _tool_choice(value: object) -> object:
    """A word, or the name in `{"type": "function", "function": {"name": …}}`, or what `allowed_tools` says."""
    if isinstance(value, str) and value in CHOICES:
        return value
    given = value if isinstance(value, dict) else {}
    if given.get("type") == "allowed_tools":
        return _allowed_tools(given.get("allowed_tools"))
    name = _function_name(given) if given.get("type", "function") == "function" else None
    if name is None:
        raise ValueError(
            'must be "none", "auto", "required", an object that names a function, or one of type "allowed_tools"'
        )
    return NamedTool(name=name)


def _function_name(given: object) -> str | None:
    function = given.get("function") if isinstance(given, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None


def _allowed_tools(given: object) -> AllowedTools:
    """OpenAI's object, with the names of the tools that may be called."""
    tools = given.get("tools") if isinstance(given, dict) else None
    names = [_function_name(tool) for tool in tools] if isinstance(tools, list) else []
    mode = given.get("mode", "auto") if isinstance(given, dict) else None
    allowed = tuple(name for name in names if name is not None)
    if mode not in ("auto", "required") or not allowed or len(allowed) < len(names):
        raise ValueError(
            'of type "allowed_tools" must have allowed_tools with mode "auto" or "required", and functions'
        )
    return AllowedTools(mode=mode, names=allowed)


def _reasoning(value: object) -> object:
    if value not in ("none", "auto", "deepseek", "deepseek-legacy"):
        raise ValueError('must be "none", "auto", "deepseek" or "deepseek-legacy"')
    return value


def _continued(value: object) -> object:
    if not isinstance(value, bool) and value not in ("content", "reasoning_content"):
        raise ValueError('must be true or false, "content" or "reasoning_content"')
    return value


def _text_parts(value: object) -> list[Any]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    return [_marked(part) if isinstance(part, dict) else part for part in value]


def _marked(part: dict[str, Any]) -> dict[str, Any]:
    """A part with a picture has the marker for its text. One with a text has no picture, whatever else it holds. A
    refusal is a text of the assistant.
    """
    if part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if part.get("type") == "image_url":
        url = part.get("image_url") or {}
        return {**part, "text": IMAGE_PLACE, "image_url": {"url": url} if isinstance(url, str) else url}
    return {name: member for name, member in part.items() if name != "image_url"}


class FunctionBody(Body):
    """A tool's name, what it does, and the JSON schema of its arguments."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    description: StrictStr | None = None
    parameters: dict[StrictStr, Any] | None = None
    strict: StrictBool | None = None

    def for_template(self) -> dict[str, object]:
        """The function as templates want it: with every member."""
        return {
            "name": self.name,
            "description": self.description or "",
            "parameters": self.parameters or _NO_PARAMETERS,
        }


class ToolBody(Body):
    """One of `tools`."""

    type: Annotated[Literal["function"], BeforeValidator(_function_only)] = "function"
    function: FunctionBody


class CalledBody(Body):
    """The function of a call in the history. `arguments` is JSON text; an object is taken, too."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    arguments: Annotated[Any, AfterValidator(_arguments)] = "{}"


class CallBody(Body):
    """One of a message's `tool_calls`."""

    id: StrictStr | None = None
    type: Annotated[Literal["function"], BeforeValidator(_function_only)] = "function"
    function: CalledBody


class NamedTool(Body):
    """`tool_choice` that names the function to call."""

    name: StrictStr


class AllowedTools(Body):
    """`tool_choice` that names the functions that may be called."""

    mode: Literal["auto", "required"]
    names: tuple[StrictStr, ...]


class PictureUrl(Body):
    """`image_url` of a part: an address with the picture in it, or of it. A text is read as its `url`, as in Ollama."""

    url: StrictStr


class TextPart(Body):
    """One part of a message's content: a text, or a picture, whose text is the marker of one. Other kinds are refused
    before validation.
    """

    type: Literal["text", "image_url"]
    text: StrictStr
    image_url: PictureUrl | None = None


class MessageBody(Body):
    """One chat message. Further members known to chat templates travel along. `refusal` is read as text after the
    content.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True), BeforeValidator(_text_parts)] | None
    ) = None
    name: StrictStr | None = None
    reasoning_content: StrictStr | None = Field(None, validation_alias=AliasChoices("reasoning_content", "reasoning"))
    tool_call_id: StrictStr | None = None
    tool_calls: Annotated[list[CallBody], Field(max_length=MAX_CALLS)] | None = None
    refusal: StrictStr | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_refusal(cls, value: Any) -> Any:
        refusal = value.get("refusal") if isinstance(value, dict) else None
        if not refusal or not isinstance(refusal, str):
            return value
        content = _text_parts(value.get("content") or [])
        return {**value, "content": [*content, {"type": "text", "text": refusal}]}

    @model_validator(mode="after")
    def _has_content(self) -> MessageBody:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("must contain 'content'")
        return self


ToolChoice = Annotated[Literal["none", "auto", "required"] | NamedTool | AllowedTools, BeforeValidator(_tool_choice)]
ReasoningFormat = Annotated[Literal["none", "auto", "deepseek", "deepseek-legacy"], BeforeValidator(_reasoning)]
Continued = Annotated[bool | Literal["content", "reasoning_content"], BeforeValidator(_continued)]
