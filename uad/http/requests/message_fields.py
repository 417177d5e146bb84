"""The messages and the tools of a chat, as bodies have them. Knows no template and no vocabulary."""

from __future__ import annotations

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
"""Of one message."""
MAX_PARTS = 4096
"""Of one message."""
MAX_NAME = 256
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
CHOICES = ("none", "auto", "required")


class Body(BaseModel):
    """Base of every request body, and of the objects in one."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, regex_engine="rust-regex")


def _function_only(value: object) -> object:
    if value != "function":
        raise ValueError("only functions can be called here; leave other kinds of tools out")
    return value


def _arguments(value: object) -> object:
    if value is not None and not isinstance(value, str | dict):
        raise ValueError("must be JSON text, or an object")
    return value


def _tool_choice(value: object) -> object:
    """A word, or the name in `{"type": "function", "function": {"name": …}}`."""
    if isinstance(value, str) and value in CHOICES:
        return value
    function = (
        value.get("function") if isinstance(value, dict) and value.get("type", "function") == "function" else None
    )
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError('must be "none", "auto", "required", or an object that names a function')
    return NamedTool(name=name)


def _reasoning(value: object) -> object:
    if value not in ("none", "auto", "deepseek"):
        raise ValueError('must be "none", "auto" or "deepseek"')
    return value


def _text_parts(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    return [_marked(part) if isinstance(part, dict) else part for part in value]


def _marked(part: dict[str, Any]) -> dict[str, Any]:
    """A part with a picture has the marker for its text. One with a text has no picture, whatever else it holds."""
    if part.get("type") == "image_url":
        url = part.get("image_url") or {}
        return {**part, "text": IMAGE_PLACE, "image_url": {"url": url} if isinstance(url, str) else url}
    return {name: member for name, member in part.items() if name != "image_url"}


class FunctionBody(Body):
    """What a tool is called, what it does, and the JSON schema of its arguments."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    description: StrictStr | None = None
    parameters: dict[StrictStr, Any] | None = None
    strict: StrictBool | None = None

    def for_template(self) -> dict[str, object]:
        """As templates want it: with every member."""
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
    """One chat message. Further members known to chat templates travel along."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True), BeforeValidator(_text_parts)] | None
    ) = None
    name: StrictStr | None = None
    reasoning_content: StrictStr | None = Field(None, validation_alias=AliasChoices("reasoning_content", "reasoning"))
    tool_call_id: StrictStr | None = None
    tool_calls: Annotated[list[CallBody], Field(max_length=MAX_CALLS)] | None = None

    @model_validator(mode="after")
    def _has_content(self) -> MessageBody:
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("must contain 'content'")
        return self


ToolChoice = Annotated[Literal["none", "auto", "required"] | NamedTool, BeforeValidator(_tool_choice)]
ReasoningFormat = Annotated[Literal["none", "auto", "deepseek"], BeforeValidator(_reasoning)]
