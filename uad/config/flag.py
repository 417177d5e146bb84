"""One row of the table of flags, the help text that is made from it, and a value that was given for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uad.common.files import check_text
from uad.common.settings import INT32_MAX, Setting
from uad.config.kinds import FILE, Kind, integer, number
from uad.config.slices import Config, ModelConfig
from uad.errors import ConfigError

VARIABLE = "LLAMA_ARG_"


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting under all its names, which are separated by spaces.

    `path` is the place of its value in `Config`, such as "target.n_ctx". `off` are the names that say no. `bare` is
    what the flag means without a value, where it may have none. `many` values add up. `env` are variables
    without the start that llama-server gives them, `whole_env` those that have another.
    `metavar` and `default` replace what the kind and the dataclasses have for the help; a `default` of "" shows none.
    """

    names: str
    path: str
    kind: Kind
    help: str
    metavar: str = ""
    env: str = ""
    whole_env: str = ""
    off: str = ""
    bare: str | None = None
    many: bool = False
    default: str | None = None

    @property
    def name(self) -> str:
        """The name to use in messages: the first long one."""
        return next(name for name in self.all_names if name.startswith("--"))

    @property
    def all_names(self) -> tuple[str, ...]:
        """Its names on the command line, those that say no last."""
        return (*self.names.split(), *self.off.split())

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it."""
        return (*(VARIABLE + name for name in self.env.split()), *self.whole_env.split())

    @property
    def paths(self) -> tuple[str, ...]:
        """Places in `Config`; with several, the kind parses to a tuple of as many values."""
        return tuple(self.path.split())

    def help_text(self) -> str:
        """What the flag does, its default and its variables: the only source of help."""
        default = (
            f"default: {shown}" if (shown := self.default if self.default is not None else default_text(self)) else ""
        )
        facts = [part for part in (default, f"env: {self.variables[0]}" if self.variables else "") if part]
        return f"{self.help} ({'; '.join(facts)})" if facts else self.help


def default_text(flag: Flag) -> str:
    """The default as people write it, read from the dataclasses; "" where there is nothing to say."""
    value: object = Config(target=ModelConfig(Path()), draft=ModelConfig(Path()))
    for part in flag.paths[0].split(".") if flag.paths else ():
        value = getattr(value, part)
    if value is None or value == () or value == "" or isinstance(value, (Config, Path)):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_flag(path: str, setting: Setting) -> Flag:
    """The flag of a field of settings that says all about it itself."""
    if setting.default is None:
        kind = FILE
    elif setting.is_whole:
        kind = integer(int(setting.low), int(min(setting.high, INT32_MAX)))
    else:
        kind = number(setting.low, setting.high)
    return Flag(setting.flags, path, kind, setting.help, setting.metavar, setting.env, default=setting.default_text)


@dataclass(frozen=True, slots=True)
class Given:
    """One value of one flag. `where` is how the user wrote it: "--port", "LLAMA_ARG_PORT" or "uad.yaml:3: port"."""

    flag: Flag
    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class Layer:
    """Everything from one source, in the order given; `ignored` are names that were accepted without effect."""

    given: tuple[Given, ...] = ()
    ignored: tuple[str, ...] = ()


def read(flag: Flag, texts: Sequence[str], where: str, negated: bool = False) -> Given:
    """The checked value of a flag. Raises ConfigError naming the place and what was expected."""
    if not flag.kind.is_path:
        for text in texts:
            check_text(text, where)
    try:
        value = checked(flag.kind, texts)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return Given(flag, not value if negated else value, where)


def checked(kind: Kind, texts: Sequence[str]) -> object:
    """The value that these texts are. Raises ConfigError, which says what was expected."""
    try:
        return kind.parse(*texts)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        shown = " ".join(repr(text if len(text) <= 60 else text[:60] + "…") for text in texts)
        raise ConfigError(f"expected {kind.expects}, got {shown}") from error
