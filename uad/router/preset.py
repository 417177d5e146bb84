"""Preset files: INI, as llama-server's router reads them. A section is a model, `[*]` is all of them, and a key is a
flag without its dashes, in its long or short form, or the name of its variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from uad.base.common.files import read_text
from uad.base.common.names import did_you_mean
from uad.base.config.flags import FLAGS, Flag, Given, Layer, read
from uad.base.config.foreign import IGNORED, check_refused
from uad.base.config.kinds import SWITCH
from uad.base.errors import ConfigError

ALL = "*"
STOP_SECONDS = 10
"""Between the signal that a model's process is to end and the one that ends it, unless a preset says otherwise."""
_HEADER = re.compile(r"\[\s*([^\]]*?)\s*\]\s*(?:[;#].*)?")
_PAIR = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*=[ \t]*([^;#]*)(?:[;#].*)?")
_OWN = ("load-on-startup", "stop-timeout", "dedup-cache-models")


@dataclass(slots=True)
class Preset:
    """A section: flags, and what is none."""

    where: str
    given: list[Given] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    @property
    def layer(self) -> Layer:
        """The flags as one source of values."""
        return Layer(tuple(self.given))

    def value(self, path: str) -> Given | None:
        """What it gives for a place in `Config`, the last of it."""
        return next((entry for entry in reversed(self.given) if path in entry.flag.paths), None)


def read_presets(path: Path) -> dict[str, Preset]:
    """The sections of a file by their names. File names in it are relative to the folder that uad runs in. Raises
    ConfigError with file and line.
    """
    presets: dict[str, Preset] = {}
    section: Preset | None = None
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text, where = line.strip(), f"{path}:{number}"
        if not text or text[0] in ";#":
            continue
        if header := _HEADER.fullmatch(text):
            if not header[1] or header[1] in presets:
                raise ConfigError(
                    f"{where}: section [{header[1]}] " + ("is there twice" if header[1] else "has no name")
                )
            section = presets[header[1]] = Preset(where)
        elif pair := _PAIR.fullmatch(text):
            _add(section, pair[1], pair[2].strip(), where)
        else:
            raise ConfigError(f"{where}: expected [MODEL], or a line such as `ctx-size = 4096`")
    return presets


def _add(section: Preset | None, key: str, text: str, where: str) -> None:
    """One line of a section."""
    if key == "version":
        return
    if section is None:
        raise ConfigError(f"{where}: {key} stands before any [MODEL]; what holds for all models stands below [*]")
    if key in _OWN:
        section.own[key] = text
    elif (known := _known().get(key)) is not None:
        flag, is_negated = known
        section.given.append(read(flag, [text], f"{where}: {key}", is_negated))
    elif key in _ignored():
        section.ignored.append(key)
    else:
        for name in (f"--{key}", f"-{key}"):
            check_refused(name, f"{where}: {key}")
        raise ConfigError(f"{where}: option '{key}' is not known; {did_you_mean(key, _known())}")


@cache
def _known() -> Mapping[str, tuple[Flag, bool]]:
    """Flags by their keys, and whether the key says no."""
    return dict(_keys())


def _keys() -> Iterator[tuple[str, tuple[Flag, bool]]]:
    for flag in FLAGS:
        if flag.path and flag.kind.arity < 2:
            for name in (*flag.names.split(), *flag.variables):
                yield name.lstrip("-"), (flag, False)
            for name in flag.off.split():
                yield name.lstrip("-"), (flag, True)


@cache
def _ignored() -> frozenset[str]:
    return frozenset(name.lstrip("-") for names in IGNORED.values() for name in names.split())


def stop_seconds(preset: Preset) -> int:
    """How long the model's process may take to end. Raises ConfigError."""
    text = preset.own.get("stop-timeout", str(STOP_SECONDS))
    if not (text.isdecimal() and text.isascii()):
        raise ConfigError(f"{preset.where}: stop-timeout: expected a number of seconds, got {text!r}")
    return int(text)


def loads_at_start(preset: Preset) -> bool:
    """Whether the model is loaded before anybody asks. Raises ConfigError."""
    text = preset.own.get("load-on-startup", "off")
    try:
        return bool(SWITCH.parse(text))
    except ValueError:
        raise ConfigError(f"{preset.where}: load-on-startup: expected on or off, got {text!r}") from None
