"""Kinds of values: how the text of a flag, variable or YAML scalar becomes a checked value. Knows no flag by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from uad.base.common.files import is_folder, path_of, read_text, why_hidden
from uad.base.common.samplers import NAMED, sampler_names
from uad.base.common.settings import INT32_MAX
from uad.base.errors import ConfigError
from uad.base.types import Constraint, ConstraintKind, SpecPolicy

T = TypeVar("T")
RANDOM_SEED = 2**32 - 1
MOST_WORKERS = 16  # of llama.cpp's RPC backend
FASTEST = "fastest"
"""The value of --kernels for uad's or llama.cpp's own, whichever take less time with a type of weights here."""
TRUE = ("on", "true", "1", "enabled", "yes")
FALSE = ("off", "false", "0", "disabled", "no")
_LEAST, _MOST = 2e-38, 3e38  # in single precision
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


@dataclass(frozen=True, slots=True)
class Kind:
    """How the text of a flag, variable or YAML scalar becomes a checked value."""

    expects: str
    """Description of the expected value, for messages."""
    parse: Callable[..., Any]
    """Takes `arity` texts and raises ValueError."""
    yaml: tuple[type, ...] = (str,)
    """The types that YAML may give."""
    arity: int = 1
    """0 is a switch, which takes a text only from the environment and YAML."""
    is_path: bool = False
    """In a configuration file it is relative to that file."""
    many: bool = False
    """Flags may be repeated: the values are tuples, which add up."""
    metavar: str = ""
    """Stands for the value in help texts, where the setting has no word of its own."""


def only(parse: Callable[[str], T], fits: Callable[[T], object]) -> Callable[[str], T]:
    """Parses, and raises ValueError for a value that does not fit."""

    def parse_fitting(text: str) -> T:
        value = parse(text)
        if not fits(value):
            raise ValueError
        return value

    return parse_fitting


def integer(low: int, high: int = INT32_MAX) -> Kind:
    """A whole number in low..high."""
    span = f"from {low} to {high}" if high != INT32_MAX else f"of {low} or more"
    return Kind(f"a whole number {span}", only(int, lambda value: low <= value <= high), (int,), metavar="N")


def number(low: float = -math.inf, high: float = math.inf) -> Kind:
    """A number in low..high that single precision, which llama.cpp has, can tell from 0 and from infinity."""
    span = "" if low == -math.inf else f" of {low:g} or more" if high == math.inf else f" from {low:g} to {high:g}"
    parse = only(float, lambda value: low <= value <= high and (not value or _LEAST < abs(value) < _MOST))
    return Kind(f"a number{span}", parse, (int, float), metavar="N")


def choice(*names: str) -> Kind:
    """One of a few words. `off`, which YAML reads as a boolean, is taken as a word."""
    parse = only(str, lambda text: text in names)
    return Kind(f"one of {', '.join(names)}", parse, (str, bool) if "off" in names else (str,))


def several(kind: Kind) -> Kind:
    """A comma list of values of a kind, each once, as a tuple."""
    parse = partial(each_once, parse=kind.parse)
    return Kind(f"{kind.expects}, or several with commas between them, each once", parse)


def each_once(text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """The values of a comma list, in which none occurs twice."""
    values = tuple(parse(part.strip()) for part in text.split(","))
    if len(set(values)) < len(values):
        raise ValueError
    return values


some_text = only(str, bool)
_one_name = only(str.strip, lambda name: name and "," not in name)


def _switch(text: str) -> bool:
    value = text.strip().lower()
    if value in TRUE or value in FALSE:
        return value in TRUE
    raise ValueError


def _host(text: str) -> str:
    if text.strip().endswith(".sock"):
        raise ConfigError(f"{text.strip()} is a socket of the file system, which uad does not serve; name an address")
    return _one_name(text)


def _path(text: str) -> Path:
    return path_of(some_text(text))


AUTO = Path("auto")
"""In place of a file: a draft is chosen, a projector looked for. A file of that name is given with its folder."""


def _draft_path(text: str) -> Path:
    if text.isdecimal():  # llama.cpp's --draft was a number once
        raise ConfigError(
            f"the draft model's file is expected, got {text}; the draft length is set with --spec-draft-n-max {text}"
        )
    return _path(text)


def _load_mode(text: str) -> tuple[bool, bool]:
    """(mmap, mlock) of llama-server's --load-mode."""
    if text == "dio":
        raise ConfigError("dio is known to llama-server, not supported by uad; use auto")
    if text not in ("auto", "none", "mmap", "mlock", "mmap+mlock"):
        raise ValueError
    return text == "auto" or "mmap" in text, "mlock" in text


def _endpoint(text: str) -> str:
    """A worker's address as llama.cpp takes it: a name or an IPv4 address, and a port."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host) or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError
    return text


def _devices(text: str) -> tuple[str, ...]:
    """Names of devices, each once; none for `none`."""
    names = each_once(text, some_text)
    if "none" in names and len(names) > 1:
        raise ValueError
    return () if names == ("none",) else names


def _on_off_auto(text: str) -> str:
    return "auto" if text in ("auto", "-1") else "on" if _switch(text) else "off"


def _kernels(text: str) -> bool | str:
    return FASTEST if text == FASTEST else _switch(text)


def _template(text: str) -> str:
    if "{{" not in text and "{%" not in text:
        raise ConfigError(
            f"Jinja source is expected, {text[:40]!r} has no {{{{ }}}} or {{% %}}; names of templates are "
            "not supported, give a file with --chat-template-file"
        )
    return text


def _prefix(text: str) -> tuple[tuple[str, str], ...]:
    match = re.fullmatch(r"(?s)([a-z_]+)=(.*)", text)  # "query=query: "
    return ((match[1], match[2]) if match else ("", some_text(text)),)


def _grammar(text: str) -> Constraint:
    return Constraint(ConstraintKind.GRAMMAR, some_text(text))


def _schema(text: str) -> Constraint:
    json.loads(text)
    return Constraint(ConstraintKind.JSON_SCHEMA, text)


def _in_file(what: str, parse: Callable[[str], object]) -> Kind:
    """The name of a file whose text is parsed."""
    return Kind(f"a file with {what}", lambda text: parse(read_text(_path(text))), is_path=True, metavar="FILE")


def _key_file(text: str) -> tuple[str, ...]:
    lines = (line.strip() for line in read_text(_path(text)).splitlines())
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{text} holds no key; a server that was meant to have keys is not started without")
    return keys


def _folder(text: str) -> Path:
    path = _path(text)
    if not is_folder(path):
        raise ConfigError(
            f"{path} cannot be looked at ({why})" if (why := why_hidden(path)) else f"{path} is not a directory"
        )
    return path


def _logit_bias(text: str) -> tuple[tuple[int, float], ...]:
    match = re.fullmatch(r"(\d{1,10})([+-].+)", text)  # 42-1.5, 42+inf
    if match is None:
        raise ValueError
    bias = float(match[2])
    return ((int(match[1]), bias if math.isinf(bias) else number().parse(match[2])),)


def _samplers(words: Sequence[str]) -> tuple[str, ...]:
    for word in words:
        if not list(sampler_names([word])):
            raise ConfigError(f"there is no sampler {word!r}; those that there are: {', '.join(NAMED)}")
    return tuple(sampler_names(words))


SWITCH = Kind("on or off", _switch, (bool,), arity=0)
ON_OFF = Kind("on or off", _switch, (bool,), metavar="MODE")
KERNELS = Kind(f"one of on, off, {FASTEST}", _kernels, (str, bool))
ON_OFF_AUTO = Kind("one of on, off, auto", _on_off_auto, (str, bool, int))
TEXT = Kind("a text", some_text)
FILE = Kind("a file name", _path, is_path=True, metavar="FILE")
FILES = Kind("a file name", lambda text: (_path(text),), is_path=True, metavar="FILE", many=True)
DRAFT_FILES = Kind("a file name", lambda text: (_draft_path(text),), is_path=True, metavar="FILE", many=True)
FOLDER = Kind("a directory", _folder, is_path=True, metavar="DIR")
DIRECTORY = Kind("a directory", lambda text: (_folder(text),), is_path=True, metavar="DIR", many=True)
ONE_NAME = Kind("one name, without a comma", _one_name, metavar="NAME")
NAMES = Kind(
    "one name, or several with commas between them, each once",
    lambda text: ",".join(each_once(text, _one_name)),
    metavar="NAMES",
)
HOSTS = Kind(
    "an address, or several with commas between them, each once",
    lambda text: ",".join(each_once(text, _host)),
    metavar="HOST",
)
LOAD_MODE = Kind("one of auto, none, mmap, mlock, mmap+mlock", _load_mode, metavar="MODE")
SPEC_POLICY = Kind(f"one of {', '.join(SpecPolicy)}", SpecPolicy, metavar="POLICY")
THREADS = Kind(
    "a number of threads, or -1 for the usable cores",
    lambda text: max(integer(-1, 4096).parse(text), 0),
    (int,),
    metavar="N",
)
PARALLEL = Kind(
    "a whole number from 1 to 1024, or -1 for one",
    lambda text: 1 if int(text) == -1 else integer(1, 1024).parse(text),
    (int,),
    metavar="N",
)
GPU_LAYERS = Kind(
    "a whole number, auto or all",
    lambda text: -1 if text in ("auto", "all") else max(int(text), -1),
    (int, str),
    metavar="N",
)
ENDPOINTS = Kind(
    f"HOST:PORT of a worker, or up to {MOST_WORKERS} with commas between them, each once",
    only(partial(each_once, parse=_endpoint), lambda workers: len(workers) <= MOST_WORKERS),
    metavar="HOST:PORT",
)
DEVICES = Kind("names of devices with commas between them, each once, or none", _devices, metavar="NAMES")
SHARES = Kind(
    "a share for each device with commas between them, such as 3,1",
    only(lambda text: tuple(map(number(0, 1e9).parse, re.split("[,/]", text))), sum),
    (str, int, float),
    metavar="N,N",
)
LEAST_SCALE, MOST_SCALE = 1e-4, 1e4
"""Bounds of stretched positions: far beyond, models compute no numbers."""
ROPE_SCALE = replace(
    number(LEAST_SCALE, MOST_SCALE), parse=lambda text: 1 / number(LEAST_SCALE, MOST_SCALE).parse(text)
)
"""llama-server's --rope-scale names the inverse of what it sets."""
ROPE_FREQ_SCALE = Kind(
    f"0, or a number from {LEAST_SCALE:g} to {MOST_SCALE:g}",
    only(number().parse, lambda value: not value or LEAST_SCALE <= value <= MOST_SCALE),
    (int, float),
    metavar="N",
)
SEED = Kind(
    f"a whole number from 0 to {RANDOM_SEED}, or -1 for a random seed",
    lambda text: None if int(text) in (-1, RANDOM_SEED) else integer(0, RANDOM_SEED).parse(text),
    (int,),
    metavar="N",
)
PREFIX = Kind(
    "a path such as /llm, with a slash at its start and none at its end",
    only(str, lambda text: not text or re.fullmatch(r"(/[\w.~-]+)+", text)),
    metavar="/PATH",
)
PING = Kind(
    "a number of seconds, 1 or more, or 0 or -1 for none",
    only(number().parse, lambda value: -1 <= value <= 0 or value >= 1),
    (int, float),
    metavar="SECONDS",
)
SLEEP = Kind(
    "a number of seconds above 0, or -1 for never",
    only(number().parse, lambda value: value == -1 or value > 0),
    (int, float),
    metavar="SECONDS",
)
TEMPLATE = Kind("a Jinja template", _template, metavar="JINJA")
TEMPLATE_FILE = _in_file("a Jinja template", _template)
OBJECT = Kind(
    'a JSON object, such as {"enable_thinking": false}',
    only(json.loads, lambda value: isinstance(value, dict)),
    (str, dict),
    metavar="JSON",
)
GRAMMAR = Kind("a grammar", _grammar, metavar="TEXT")
GRAMMAR_FILE = _in_file("a grammar", _grammar)
JSON_SCHEMA = Kind("a JSON schema, such as {}", _schema, metavar="JSON")
JSON_SCHEMA_FILE = _in_file("a JSON schema", _schema)
KEYS = Kind(
    "one or more keys, separated by commas",
    only(lambda text: tuple(key.strip() for key in text.split(",") if key.strip()), bool),
    metavar="KEYS",
    many=True,
)
KEY_FILE = Kind("a file with one key per line", _key_file, is_path=True, metavar="FILE", many=True)
PAIR = Kind(
    "two texts, the target's and the draft's", lambda first, second: ((some_text(first), second),), arity=2, many=True
)
PREFIXES = Kind("a text, or KIND=TEXT with the kind of texts that it is for", _prefix, metavar="[KIND=]TEXT", many=True)
SAMPLERS = Kind(
    "names of samplers, separated by ;",
    lambda text: _samplers([word.strip() for word in text.split(";") if word.strip()]),
    metavar="NAMES",
)
SAMPLER_LETTERS = Kind("letters of samplers", _samplers, metavar="LETTERS")
BREAKER = Kind("a text", lambda text: () if text == "none" else (some_text(text),), metavar="TEXT", many=True)
KV_TYPE = replace(choice(*KV_TYPES), metavar="TYPE")
LOGIT_BIAS = Kind("ID+BIAS or ID-BIAS, such as 42-1.5 or 42-inf", _logit_bias, metavar="ID+BIAS", many=True)
