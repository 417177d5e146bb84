"""Where models and adapters come from, beside plain files: repositories of a hub, LoRA files with their scales."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from uad.common.files import path_of
from uad.config.kinds import Kind
from uad.errors import ConfigError

_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in a repository of a hub. `quant` chooses among its files, `file` names one; empty: the usual one."""

    repo: str
    quant: str = ""
    file: str = ""

    @property
    def label(self) -> str:
        """As it is written on the command line."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


@dataclass(frozen=True, slots=True)
class HubConfig:
    """How hubs are used. `token`: who asks, None for the one that is stored; `offline`: what is in the cache serves;
    `file`: that of the target's repository.
    """

    token: str | None = field(default=None, repr=False)
    offline: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """A LoRA adapter of the target and how much of it is added at start."""

    path: Path
    scale: float = 1.0


def hub_model(text: str) -> HubModel:
    """What `user/repo[:quant]` names. Raises ValueError."""
    found = _REPO.fullmatch(text.strip())
    if found is None or any(part in (".", "..") for part in found["repo"].split("/")):
        raise ValueError
    return HubModel(found["repo"], found["quant"] or "")


def _hub_file(text: str) -> str:
    if not text.lower().endswith(".gguf") or text.startswith("/") or ".." in text.split("/"):
        raise ValueError
    return text


def _token(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ConfigError("expected a token, which is printable ASCII without blanks")  # it is not shown
    return text


def _loras(text: str) -> tuple[LoraConfig, ...]:
    paths = [part.strip() for part in text.split(",")]
    if not all(paths):
        raise ValueError
    return tuple(LoraConfig(path_of(path)) for path in paths)


def _scaled(text: str) -> tuple[LoraConfig, ...]:
    pairs = [part.strip().rpartition(":") for part in text.split(",")]
    if not all(path and math.isfinite(float(scale)) for path, _, scale in pairs):
        raise ValueError
    return tuple(LoraConfig(path_of(path), float(scale)) for path, _, scale in pairs)


HUB_MODEL = Kind("a repository such as user/model-GGUF or user/model-GGUF:Q4_K_M", hub_model)
HUB_FILE = Kind("a .gguf file of the repository, such as model-Q4_K_M.gguf", _hub_file)
HUB_TOKEN = Kind("a token", _token)
LORAS = Kind("a file name, or several with commas between them", _loras, is_path=True)
LORAS_SCALED = Kind("FILE:SCALE, or several with commas between them", _scaled, is_path=True)
