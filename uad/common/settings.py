"""Fields of dataclasses that users may set, with all that flags, request fields and documents say of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One field. Its type is that of `default`: a whole number, a number, or a file where it is None.

    `flags` are names on the command line, separated by spaces; `metavar` stands for the value in the help, N or FILE
    where there is none; `env` is the name of its variable after LLAMA_ARG_;
    `aliases` are further names in requests. Values lie in low..high. Those in `off`, and those below
    `off_below`, switch it off; the first of `off` is what it is set to then. `default_text` replaces the default in the
    help.
    """

    default: int | float | None
    help: str
    flags: str = ""
    low: float = -math.inf
    high: float = math.inf
    metavar: str = ""
    env: str = ""
    aliases: tuple[str, ...] = ()
    off: tuple[float, ...] = ()
    off_below: float = -math.inf
    default_text: str | None = None

    def is_off(self, value: float) -> bool:
        """Whether this value switches it off."""
        return value in self.off or value < self.off_below

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.default, int)


def setting(default: int | float | None, help: str, flags: str = "", **more: Any) -> Any:
    """A dataclass field with that default and a `Setting` of these values."""
    return field(default=default, metadata={Setting: Setting(default, help, flags, **more)})


def settings_of(kind: Any) -> dict[str, Setting]:
    """The settings among the fields of a dataclass, by name, in their order."""
    return {one.name: one.metadata[Setting] for one in fields(kind) if Setting in one.metadata}
