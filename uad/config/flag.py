"""One row of the table of flags, and the help text that is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uad.config.kinds import Kind
from uad.config.slices import Config, ModelConfig


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting under all its names, which are separated by spaces.

    `off` are the names that say no. `bare` is what the flag means without a value, where it may have none. `many`
    values add up. `env` are full variable names. `default` replaces the default shown in the help; "" shows none.
    """

    names: str
    path: str
    kind: Kind
    group: str
    help: str
    metavar: str = ""
    env: str = ""
    off: str = ""
    bare: str | None = None
    many: bool = False
    default: str | None = None

    @property
    def name(self) -> str:
        """The name to use in messages: the first long one."""
        return next(name for name in (*self.names.split(), *self.off.split()) if name.startswith("--"))

    @property
    def paths(self) -> tuple[str, ...]:
        """Places in `Config`; with several, the kind parses to a tuple of as many values."""
        return tuple(self.path.split())

    def help_text(self) -> str:
        """What the flag does, its default and its variables: the only source of help."""
        default = (
            f"default: {shown}" if (shown := self.default if self.default is not None else default_text(self)) else ""
        )
        facts = [part for part in (default, f"env: {self.env.split()[0]}" if self.env else "") if part]
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
