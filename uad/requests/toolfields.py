"""Fields of a chat request about tools and thoughts, checked. Knows no template and no vocabulary."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr

MAX_TOOLS = 1024
MAX_CALLS = 1024  # of one message
MAX_NAME = 256
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
CHOICES = ("none", "auto", "required")


class _AnyBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


def _function_only(value: object) -> object:
    if value != "function":
        raise ValueError("only functions can be called here; leave other kinds of tools out")
    return value


def _arguments(value: object) -> object:
    if value is not None and not isinstance(value, str | dict):
        raise ValueError("must be JSON text, or an object")
    return value


def _choice(value: object) -> object:
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


class FunctionBody(_AnyBody):
    """What a tool is called, what it does, and the JSON schema of its arguments."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    description: StrictStr | None = None
    parameters: dict[StrictStr, Any] | None = None
    strict: StrictBool | None = None

    def told(self) -> dict[str, object]:
        """As templates want it: with every member."""
        return {
            "name": self.name,
            "description": self.description or "",
            "parameters": self.parameters or _NO_PARAMETERS,
        }


class ToolBody(_AnyBody):
    """One of `tools`."""

    type: Annotated[Literal["function"], BeforeValidator(_function_only)] = "function"
    function: FunctionBody


class CalledBody(_AnyBody):
    """The function of a call in the history. `arguments` is JSON text; an object is taken, too."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME)
    arguments: Annotated[Any, AfterValidator(_arguments)] = "{}"


class CallBody(_AnyBody):
    """One of a message's `tool_calls`."""

    id: StrictStr | None = None
    type: Annotated[Literal["function"], BeforeValidator(_function_only)] = "function"
    function: CalledBody


class NamedTool(_AnyBody):
    """`tool_choice` that names the function to call."""

    name: StrictStr


ToolChoice = Annotated[Literal["none", "auto", "required"] | NamedTool, BeforeValidator(_choice)]
ReasoningFormat = Annotated[Literal["none", "auto", "deepseek"], BeforeValidator(_reasoning)]
