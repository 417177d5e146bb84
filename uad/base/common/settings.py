"""Fields of dataclasses that users may set, with all that flags, variables, YAML, request fields and documents say of
them.

    port: int = setting(8080, "port; 0 takes a free one", "--port LLAMA_ARG_PORT", low=0, high=65535)

declares `--port`, LLAMA_ARG_PORT, `port:` in the file of --config, their check and error text, and a line of the help.

A field of `types.Request` that a body over HTTP sets as it is, is a row there (`request_field`), and what reads it.
From the row come the member of every body, with its type and bounds (`requests/fields`), the value in the request
(`requests/job`), its repetition in answers (`apis/native`), its line in docs/http.md, and cases for `scripts/fuzz.py`.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

INT32_MAX = 2**31 - 1
Refused = Literal["nothing", "below", "above", "both"]
"""On which side of its bounds a number of a request is an error. On the other the nearest bound counts in its place."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one field, under all its names."""

    default: Any
    help: str
    names: str = ""
    """Names on the command line and of environment variables, separated by spaces."""
    low: float = -math.inf
    high: float = math.inf
    """Bounds of numbers; of whole ones that say none these are 0 and `INT32_MAX`."""
    kind: Any = None
    """A `Kind` of `config/kinds`. None: by the default a switch, a whole number or a number in low..high; a file where
    there is no default."""
    metavar: str = ""
    """Stands for the value in the help; empty: the kind's."""
    no: str = ""
    """Names on the command line that say no."""
    bare: str = ""
    """The meaning of the flag without a value, if it can be given without one."""
    default_text: str | None = None
    """Replaces the default in the help; empty: none is shown."""
    group: str = ""
    """The setting's group in the help; empty: that of its dataclass in `config/flags`."""
    after: str = ""
    """The flag that it follows in the help, where that is not the one declared before it; the group's title: none."""
    fields: str = ""
    """The fields that it sets, where these are several; the kind parses to as many values."""
    secret: bool = False
    """The value is not shown where the dataclass is."""
    also: tuple[Setting, ...] = ()
    """Further flags of the same field."""
    draft: Setting | None = None
    """Flags of the same field of the draft model; without a kind it has this one's, and its bounds."""
    inherited: bool = False
    """Settings of a model: the draft has the target's value unless it is given one."""
    aliases: tuple[str, ...] = ()
    """Further names in requests."""
    off: tuple[float, ...] = ()
    """Values that switch it off, the first of which it is set to then."""
    off_below: float = -math.inf
    """Values below switch it off, too."""
    refused: Refused = "nothing"
    """Values out of bounds that requests refuse. Flags refuse all of them."""
    usual_below: bool = False
    """A request's value below the bounds means the server's own."""

    def __post_init__(self) -> None:
        """Give whole numbers their bounds."""
        if self.is_whole:
            object.__setattr__(self, "low", 0 if self.low == -math.inf else self.low)
            object.__setattr__(self, "high", min(self.high, INT32_MAX))

    def is_off(self, value: float) -> bool:
        """Whether this value switches it off."""
        return value in self.off or value < self.off_below

    @property
    def flags(self) -> str:
        """The setting's names on the command line, separated by spaces."""
        return " ".join(name for name in self.names.split() if name.startswith("-"))

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it."""
        return tuple(name for name in self.names.split() if not name.startswith("-"))

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.default, int)


def setting(default: Any, help: str, names: str = "", **more: Any) -> Any:
    """A dataclass field with that default and a `Setting` of these values; MISSING is no default, and a type is called
    for each value.
    """
    if isinstance(default, type):
        return field(default_factory=default, metadata={Setting: Setting(default(), help, names, **more)})
    declared = Setting(None if default is MISSING else default, help, names, **more)
    return field(default=default, repr=not declared.secret, metadata={Setting: declared})


def flag(help: str, names: str = "", **more: Any) -> Setting:
    """Further flags of a field, for `also` and `draft`; the default is the field's."""
    return Setting(None, help, names, **more)


def settings_of(kind: Any) -> dict[str, Setting]:
    """The settings among the fields of a dataclass, by name, in their order."""
    return {field.name: field.metadata[Setting] for field in fields(kind) if Setting in field.metadata}


@dataclass(frozen=True, slots=True)
class RequestField:
    """One row of `types.Request`. The type is that of the field: true or false, a number, texts, token ids."""

    says: str
    """The effect of the field, in the words of docs/http.md."""
    name: str = ""
    """The name in bodies and answers, where it differs from the one in `Request`."""
    low: float = 0
    high: float = INT32_MAX
    refused: Refused = "both"
    counts_from: float | None = None
    """Smaller numbers are taken for this one."""
    only_streamed: bool = False
    """It means nothing, and is off, in a request that is not streamed."""
    is_echoed: bool = True
    """Whether `generation_settings` of answers has it."""
    default_text: str = ""
    """Text that docs/http.md shows in place of the default."""


def request_field(default: object, says: str, name: str = "", **more: Any) -> Any:
    """A dataclass field with that default and a `RequestField` of these values."""
    return field(default=default, metadata={RequestField: RequestField(says, name, **more)})


def request_fields(kind: Any) -> dict[str, RequestField]:
    """The rows among the fields of a dataclass, by the field's name, in their order."""
    return {field.name: field.metadata[RequestField] for field in fields(kind) if RequestField in field.metadata}
