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
from uad.base.config.kinds import SAMPLERS, SWITCH
from uad.base.errors import ConfigError

ALL = "*"
STOP_SECONDS = 10
"""Between the signal that a model's process is to end and the one that ends it, unless a preset says otherwise."""
_HEADER = re.compile(r"\[\s*([^\]]*?)\s*\]\s*(?:[;#].*)?")
_PAIR = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*=[ \t]*(.*)")
_COMMENT = re.compile(r"(?:^|[ \t]+)([;#](?!\}).*)")  # {# is Jinja's, and so is #}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNQUOTED = ("FILE", "DIR", "NAME", "NAMES")
_OWN = ("load-on-startup", "stop-timeout", "dedup-cache-models")


@dataclass(slots=True)
class Preset:
    """One section: its flags, and its keys that are no flags."""

    where: str
    given: list[Given] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    @property
    def layer(self) -> Layer:
        """The flags as one source of values."""
        return Layer(tuple(self.given))

    def value(self, path: str) -> Given | None:
        """The last entry for a place in `Config`."""
        return next((entry for entry in reversed(self.given) if path in entry.flag.paths), None)


def read_presets(path: Path) -> dict[str, Preset]:
    """The sections of a file by their names. File names in it are relative to the folder that uad runs in. Raises
    ConfigError with file and line.
    """
    presets: dict[str, Preset] = {}
    section: Preset | None = None
    for number, line in enumerate(read_text(path).split("\n"), 1):
        text, where = line.strip(), f"{path}:{number}"
        if not text or text[0] in ";#":
            continue
        if _CONTROL.search(text):
            raise ConfigError(f"{where}: a control character; leave it out")
        if header := _HEADER.fullmatch(text):
            if not header[1] or header[1] in presets:
                raise ConfigError(
                    f"{where}: section [{header[1]}] " + ("is there twice" if header[1] else "has no name")
                )
            section = presets[header[1]] = Preset(where)
        elif pair := _PAIR.fullmatch(text):
            _add(section, pair[1], pair[2], where)
        else:
            raise ConfigError(f"{where}: expected [MODEL], or a line such as `ctx-size = 4096`")
    return presets


def _add(section: Preset | None, key: str, line: str, where: str) -> None:
    """One line of a section. A comment begins after a blank: `samplers = top_k;top_p` has none, in contrast to
    llama-server, where top_k would be left of it.
    """
    at = _COMMENT.search(line)
    text, comment = (line, "") if at is None else (line[: at.start()], at[1])
    if key == "version":
        return
    if section is None:
        raise ConfigError(f"{where}: {key} stands before any [MODEL]; what holds for all models stands below [*]")
    if key in _OWN:
        section.own[key] = text
    elif (known := _known().get(key)) is not None:
        section.given.append(_value(*known, text, comment, f"{where}: {key}"))
    elif key in _ignored():
        section.ignored.append(key)
    else:
        for name in (f"--{key}", f"-{key}"):
            check_refused(name, f"{where}: {key}")
        raise ConfigError(f"{where}: option '{key}' is not known; {did_you_mean(key, _known())}")


def _value(flag: Flag, is_negated: bool, text: str, comment: str, where: str) -> Given:
    """The value of a flag. Raises ConfigError, also where a person and this parser may read it differently."""
    if comment.startswith(";") and flag.kind is SAMPLERS:
        raise ConfigError(f"{where}: a ; after a blank begins a comment; write names without blanks: top_k;top_p")
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and flag.kind.metavar in _UNQUOTED:
        raise ConfigError(f"{where}: {text} has quotes, which would be part of the value; leave them out")
    try:
        return read(flag, [text], where, is_negated)
    except ConfigError as error:
        raise ConfigError(f"{error} ({comment!r} is a comment)" if comment else str(error)) from None


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
