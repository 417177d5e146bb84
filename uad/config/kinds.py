"""Kinds of values: how the text of a flag, variable or YAML scalar becomes a checked value. Knows no flag by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from uad.common.files import path_of, read_text
from uad.common.samplers import NAMED, sampler_names
from uad.common.settings import INT32_MAX
from uad.errors import ConfigError
from uad.types import Constraint, ConstraintKind, SpecPolicy

T = TypeVar("T")
RANDOM_SEED = 2**32 - 1
MOST_WORKERS = 16  # of llama.cpp's RPC backend
TRUE = ("on", "true", "1", "enabled", "yes")
FALSE = ("off", "false", "0", "disabled", "no")
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `parse` takes `arity` texts and raises ValueError; `expects` then says what was wanted.

    arity 0 is a switch, which takes a text only from the environment and YAML. `yaml` are the types that YAML may give.
    `is_path` values in a configuration file are relative to that file. Kinds of repeatable flags parse to tuples.
    `metavar` stands for the value in help texts, where the flag has no word of its own.
    """

    expects: str
    parse: Callable[..., Any]
    yaml: tuple[type, ...] = (str,)
    arity: int = 1
    is_path: bool = False
    metavar: str = ""


def integer(low: int, high: int = INT32_MAX) -> Kind:
    """A whole number in low..high."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    span = f"from {low} to {high}" if high != INT32_MAX else f"of {low} or more"
    return Kind(f"a whole number {span}", parse, (int,), metavar="N")


def number(low: float = -math.inf, high: float = math.inf) -> Kind:
    """A finite number in low..high."""

    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError
        return value

    span = "" if low == -math.inf else f" of {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
    return Kind(f"a number{span}", parse, (int, float), metavar="N")


def choice(*names: str) -> Kind:
    """One of a few words. `off`, which YAML reads as a boolean, is taken as a word."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError
        return text

    return Kind(f"one of {', '.join(names)}", parse, (str, bool) if "off" in names else (str,))


def several(kind: Kind) -> Kind:
    """A comma list of values of a kind, each once, as a tuple."""

    def parse(text: str) -> tuple[object, ...]:
        return each_once(text, kind.parse)

    return Kind(f"{kind.expects}, or several with commas between them, each once", parse)


def each_once(text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """The values of a comma list, in which none occurs twice."""
    values = tuple(parse(part.strip()) for part in text.split(","))
    if len(set(values)) < len(values):
        raise ValueError
    return values


def _switch(text: str) -> bool:
    value = text.strip().lower()
    if value in TRUE or value in FALSE:
        return value in TRUE
    raise ValueError


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _one_name(text: str) -> str:
    if not text.strip() or "," in text:
        raise ValueError
    return text.strip()


def _names(text: str) -> str:
    return ",".join(each_once(text, _one_name))


def _host(text: str) -> str:
    if text.strip().endswith(".sock"):
        raise ConfigError(f"{text.strip()} is a socket of the file system, which uad does not serve; name an address")
    return _one_name(text)


def _path(text: str) -> Path:
    return path_of(_text(text))


def _draft_path(text: str) -> Path:
    if text.isdecimal():
        raise ConfigError(
            f"the draft model's file is expected, got {text}; the draft length is set with --spec-draft-n-max {text}"
        )
    return _path(text)


def _load_mode(text: str) -> tuple[bool, bool]:
    """(mmap, mlock) of llama-server's --load-mode."""
    modes = {
        "auto": (True, False),
        "none": (False, False),
        "mmap": (True, False),
        "mlock": (False, True),
        "mmap+mlock": (True, True),
    }
    if text == "dio":
        raise ConfigError("dio is known to llama-server, not supported by uad; use auto")
    if text not in modes:
        raise ValueError
    return modes[text]


def _endpoint(text: str) -> str:
    """A worker's address as llama.cpp takes it: a name or an IPv4 address, and a port."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host) or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError
    return text


def _endpoints(text: str) -> tuple[str, ...]:
    found = each_once(text, _endpoint)
    if len(found) > MOST_WORKERS:
        raise ValueError
    return found


def _devices(text: str) -> tuple[str, ...]:
    """Names of devices, each once; none for `none`."""
    names = each_once(text, _text)
    if "none" in names and len(names) > 1:
        raise ValueError
    return () if names == ("none",) else names


def _shares(text: str) -> tuple[float, ...]:
    values = tuple(float(part) for part in re.split("[,/]", text))
    if not all(0 <= value < math.inf for value in values) or not sum(values):
        raise ValueError
    return values


def _parallel(text: str) -> int:
    return 1 if int(text) == -1 else integer(1, 1024).parse(text)


def _on_off_auto(text: str) -> str:
    return "auto" if text in ("auto", "-1") else "on" if _switch(text) else "off"


def _gpu_layers(text: str) -> int:
    return -1 if text in ("auto", "all") else max(int(text), -1)


def _rope_scale(text: str) -> float:
    """The frequency scale of llama-server's --rope-scale, which names its inverse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return 1 / value


def _seed(text: str) -> int | None:
    return None if int(text) in (-1, RANDOM_SEED) else int(integer(0, RANDOM_SEED).parse(text))


def _prefix(text: str) -> str:
    if text and not re.fullmatch(r"(/[\w.~-]+)+", text):
        raise ValueError
    return text


def _ping(text: str) -> float:
    value = float(text)
    if not (-1 <= value <= 0 or 1 <= value < math.inf):
        raise ValueError
    return value


def _template(text: str) -> str:
    if "{{" not in text and "{%" not in text:
        raise ConfigError(
            f"Jinja source is expected, {text[:40]!r} has no {{{{ }}}} or {{% %}}; names of templates are "
            "not supported, give a file with --chat-template-file"
        )
    return text


def _object(text: str) -> dict[str, object]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _grammar(text: str) -> Constraint:
    return Constraint(ConstraintKind.GRAMMAR, _text(text))


def _schema(text: str) -> Constraint:
    json.loads(text)
    return Constraint(ConstraintKind.JSON_SCHEMA, text)


def _in_file(what: str, parse: Callable[[str], object]) -> Kind:
    """The name of a file whose text is parsed."""
    return Kind(f"a file with {what}", lambda text: parse(read_text(_path(text))), is_path=True, metavar="FILE")


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    if not keys:
        raise ValueError
    return keys


def _key_file(text: str) -> tuple[str, ...]:
    lines = (line.strip() for line in read_text(_path(text)).splitlines())
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{text} holds no key; a server that was meant to have keys is not started without")
    return keys


def _directory(text: str) -> tuple[Path, ...]:
    path = _path(text)
    if not path.is_dir():
        raise ConfigError(f"{path} is not a directory")
    return (path,)


def _pair(first: str, second: str) -> tuple[tuple[str, str], ...]:
    return ((_text(first), second),)


def _logit_bias(text: str) -> tuple[tuple[int, float], ...]:
    match = re.fullmatch(r"(\d{1,10})([+-].+)", text)
    if match is None or math.isnan(float(match[2])):
        raise ValueError
    return ((int(match[1]), float(match[2])),)


def _samplers(words: Sequence[str]) -> tuple[str, ...]:
    for word in words:
        if not list(sampler_names([word])):
            raise ConfigError(f"there is no sampler {word!r}; those that there are: {', '.join(NAMED)}")
    return tuple(sampler_names(words))


def _breaker(text: str) -> tuple[str, ...]:
    return () if text == "none" else (_text(text),)


SWITCH = Kind("on or off", _switch, (bool,), arity=0)
ON_OFF = Kind("on or off", _switch, (bool,), metavar="MODE")
ONE_NAME = Kind("one name, without a comma", _one_name, metavar="NAME")
HOSTS = Kind(
    "an address, or several with commas between them, each once",
    lambda text: ",".join(each_once(text, _host)),
    metavar="HOST",
)
NAMES = Kind("one name, or several with commas between them, each once", _names, metavar="NAMES")
FILE = Kind("a file name", _path, is_path=True, metavar="FILE")
DRAFT_FILE = Kind("a file name", _draft_path, is_path=True, metavar="FILE")
LOAD_MODE = Kind("one of auto, none, mmap, mlock, mmap+mlock", _load_mode, metavar="MODE")
SPEC_POLICY = Kind(f"one of {', '.join(SpecPolicy)}", SpecPolicy, metavar="POLICY")
THREADS = Kind(
    "a number of threads, or -1 for the physical cores",
    lambda text: max(integer(-1, 4096).parse(text), 0),
    (int,),
    metavar="N",
)
PARALLEL = Kind("a whole number from 1 to 1024, or -1 for one", _parallel, (int,), metavar="N")
TEXT = Kind("a text", _text)
ON_OFF_AUTO = Kind("one of on, off, auto", _on_off_auto, (str, bool, int))
GPU_LAYERS = Kind("a whole number, auto or all", _gpu_layers, (int, str), metavar="N")
ENDPOINTS = Kind(
    f"HOST:PORT of a worker, or up to {MOST_WORKERS} with commas between them, each once",
    _endpoints,
    metavar="HOST:PORT",
)
DEVICES = Kind("names of devices with commas between them, each once, or none", _devices, metavar="NAMES")
SHARES = Kind(
    "a share for each device with commas between them, such as 3,1", _shares, (str, int, float), metavar="N,N"
)
ROPE_SCALE = Kind("a number above 0", _rope_scale, (int, float), metavar="N")
SEED = Kind(f"a whole number from 0 to {RANDOM_SEED}, or -1 for a random seed", _seed, (int,), metavar="N")
PREFIX = Kind("a path such as /llm, with a slash at its start and none at its end", _prefix, metavar="/PATH")
PING = Kind("a number of seconds, 1 or more, or 0 or -1 for none", _ping, (int, float), metavar="SECONDS")
TEMPLATE = Kind("a Jinja template", _template, metavar="JINJA")
TEMPLATE_FILE = _in_file("a Jinja template", _template)
OBJECT = Kind('a JSON object, such as {"enable_thinking": false}', _object, (str, dict), metavar="JSON")
GRAMMAR = Kind("a grammar", _grammar, metavar="TEXT")
GRAMMAR_FILE = _in_file("a grammar", _grammar)
JSON_SCHEMA = Kind("a JSON schema, such as {}", _schema, metavar="JSON")
JSON_SCHEMA_FILE = _in_file("a JSON schema", _schema)
KEYS = Kind("one or more keys, separated by commas", _keys, metavar="KEYS")
KEY_FILE = Kind("a file with one key per line", _key_file, is_path=True, metavar="FILE")
DIRECTORY = Kind("a directory", _directory, is_path=True, metavar="DIR")
PAIR = Kind("two texts, the target's and the draft's", _pair, arity=2)
SAMPLERS = Kind(
    "names of samplers, separated by ;",
    lambda text: _samplers([word.strip() for word in text.split(";") if word.strip()]),
    metavar="NAMES",
)
SAMPLER_LETTERS = Kind("letters of samplers", lambda text: _samplers(list(text)), metavar="LETTERS")
BREAKER = Kind("a text", _breaker, metavar="TEXT")
KV_TYPE = replace(choice(*KV_TYPES), metavar="TYPE")
LOGIT_BIAS = Kind("ID+BIAS or ID-BIAS, such as 42-1.5 or 42-inf", _logit_bias, metavar="ID+BIAS")
