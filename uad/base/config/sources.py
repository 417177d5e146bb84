"""Where models and adapters come from, beside plain files: repositories of a hub, LoRA files with their scales."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from uad.base.common.files import path_of
from uad.base.common.settings import setting
from uad.base.config.kinds import SWITCH, Kind, integer, number, only, some_text
from uad.base.errors import ConfigError

T = TypeVar("T")
_OVERRIDE = re.compile(r"(?P<key>[^=]+)=(?P<type>int|float|bool|str):(?P<value>.*)", re.DOTALL)
_MOST_BYTES = 127  # of llama.cpp's fields
_EXPERTS, _DENSE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", r"\.ffn_(up|down|gate)\."
_MOST_LAYERS = 4096
_INT64 = integer(-(2**63), 2**63 - 1)
_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in a repository of a hub."""

    repo: str
    quant: str = ""
    """Chooses among its files; empty: the usual one."""
    file: str = ""
    """The name of one; empty: what `quant` says."""

    @property
    def label(self) -> str:
        """The model as it is written on the command line."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


MOST_LORA_SCALE = 100.0
"""How much of an adapter may be added, or taken away. Far above it, numbers of the model overflow to NaN."""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """A LoRA adapter of the target and how much of it is added at start."""

    path: Path
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class KvOverride:
    """A value of a model file's metadata that is replaced while it is loaded; what it is in Python is its type."""

    key: str
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Place:
    """Tensors whose names a regular expression finds, and the buffer that they are kept in."""

    pattern: str
    buffer: str

    @property
    def word(self) -> str:
        """The place as --override-tensor takes it."""
        return f"{self.pattern}={self.buffer}"


def hub_model(text: str) -> HubModel:
    """The model that `user/repo[:quant]` names. Raises ValueError."""
    match = _REPO.fullmatch(text.strip())
    if match is None or any(part in (".", "..") for part in match["repo"].split("/")):
        raise ValueError
    return HubModel(match["repo"], match["quant"] or "")


def _token(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ConfigError("expected a token, which is printable ASCII without blanks")  # it is not shown
    return text


def _each(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Parses a comma list."""
    return lambda text: tuple(parse(part) for part in text.split(","))


def _lora(text: str) -> LoraConfig:
    return LoraConfig(path_of(some_text(text.strip())))


def _scaled(text: str) -> LoraConfig:
    path, _, scale = text.strip().rpartition(":")  # C:/a.gguf:0.5
    return LoraConfig(path_of(some_text(path)), number(-MOST_LORA_SCALE, MOST_LORA_SCALE).parse(scale))


def _override(text: str) -> KvOverride:
    parts = _OVERRIDE.fullmatch(text.strip())
    if parts is None or max(len(parts["key"].encode()), len(parts["value"].encode())) > _MOST_BYTES:
        raise ValueError
    key, value = parts["key"], parts["value"]
    match parts["type"]:
        case "int":
            return KvOverride(key, _INT64.parse(value))
        case "float":
            return KvOverride(key, number().parse(value))
        case "bool":
            return KvOverride(key, ("false", "true").index(value) == 1)
        case _:
            return KvOverride(key, value)


def _place(text: str) -> Place:
    pattern, _, buffer = map(some_text, text.rpartition("="))  # a=b=CUDA0: the buffer is after the last one
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression ({error})") from error
    return Place(pattern, buffer)


def _first_layers(tensors: str) -> Kind:
    """Parse a number n into these tensors of the first n layers: 2 gives the places of blk.0 and blk.1."""

    def parse(text: str) -> tuple[Place, ...]:
        return tuple(Place(rf"blk\.{i}{tensors}", "CPU") for i in range(integer(0, _MOST_LAYERS).parse(text)))

    return Kind("a number of layers", parse, (int,), metavar="N", many=True)


HUB_MODEL = Kind(
    "a repository such as user/model-GGUF or user/model-GGUF:Q4_K_M", hub_model, metavar="USER/REPO[:QUANT]"
)
HUB_MODELS = replace(HUB_MODEL, parse=lambda text: (hub_model(text),), many=True)
HUB_FILE = Kind(
    "a .gguf file of the repository, such as model-Q4_K_M.gguf",
    only(str, lambda text: text.lower().endswith(".gguf") and text[0] != "/" and ".." not in text.split("/")),
    metavar="FILE",
)
HUB_TOKEN = Kind("a token", _token, metavar="TOKEN")
KV_OVERRIDES = Kind(
    "KEY=TYPE:VALUE (TYPE: int, float, bool or str), or several with commas between them",
    _each(_override),
    metavar="KEY=TYPE:VALUE",
    many=True,
)
PLACES = Kind(
    "PATTERN=BUFFER such as exps=CPU, or several with commas between them",
    _each(_place),
    metavar="PATTERN=BUFFER",
    many=True,
)
ALL_EXPERTS = replace(SWITCH, parse=lambda text: (Place(_EXPERTS, "CPU"),) if SWITCH.parse(text) else (), many=True)
FIRST_EXPERTS, FIRST_DENSE = _first_layers(_EXPERTS), _first_layers(_DENSE)
LORAS = Kind("a file name, or several with commas between them", _each(_lora), is_path=True, metavar="FILE", many=True)
LORAS_SCALED = Kind(
    f"FILE:SCALE with a scale from -{MOST_LORA_SCALE:g} to {MOST_LORA_SCALE:g}, or several with commas between them",
    _each(_scaled),
    is_path=True,
    metavar="FILE:SCALE",
    many=True,
)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """How hubs are used."""

    token: str | None = setting(
        None,
        "token for repositories that are private or gated",
        "-hft --hf-token HF_TOKEN",
        kind=HUB_TOKEN,
        default_text="the one that `hf auth login` stored",
        after="--hf-repo-draft",
        secret=True,
    )
    offline: bool = setting(
        False, "models of hubs come from the cache only", "--offline LLAMA_ARG_OFFLINE", after="--hf-token"
    )
    file: str = setting(
        "", "the file of that repository to load", "-hff --hf-file LLAMA_ARG_HF_FILE", kind=HUB_FILE, after="--hf-repo"
    )
