"""Which file of a repository is meant: by its name, by a quantization, else the usual one. Knows no network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from uad.common.names import did_you_mean
from uad.common.splits import part_of
from uad.config import HubModel
from uad.errors import ConfigError

_USUAL = ("Q4_K_M", "Q8_0")  # llama-server's order; behind them the first file
_OTHERS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_QUANT = re.compile(r"[-.]([a-z0-9_]+)$", re.IGNORECASE)
_SHOWN = 12


def choose(model: HubModel, names: Iterable[str]) -> str:
    """The file of a repository that a model is loaded by; of a split one the first part.

    Raises ConfigError that says which files or quantizations there are.
    """
    files = sorted(name for name in names if name.lower().endswith(".gguf"))
    if not files:
        raise ConfigError(f"{model.repo} has no GGUF file; choose a repository with .gguf files, or convert the model")
    if model.file:
        return _named(model, files)
    models = [name for name in files if _is_model(name)]
    for quant in (model.quant,) if model.quant else _USUAL:
        pattern = re.compile(rf"{re.escape(quant)}[.-]", re.IGNORECASE)
        if found := next((name for name in models if pattern.search(name)), None):
            return found
    if model.quant or not models:
        raise ConfigError(_none_such(model, models))
    return models[0]


def parts(name: str, names: Iterable[str], repo: str) -> tuple[str, ...]:
    """All files that are loaded with this one, itself first. Raises ConfigError naming those that are missing."""
    part = part_of(name)
    if part is None:
        return (name,)
    there = set(names)
    if missing := [one for one in part.names() if one not in there]:
        raise ConfigError(f"{repo}: {name} is one of {part.count} parts, of which are missing: {', '.join(missing)}")
    return part.names()


def quant_of(name: str) -> str:
    """The quantization in a file's name, in capitals; "" where it says none."""
    part = part_of(name)
    stem = part.stem if part else name[: -len(".gguf")]
    found = _QUANT.search(stem)
    return found[1].upper() if found else ""


def _named(model: HubModel, files: Sequence[str]) -> str:
    if model.file not in files:
        raise ConfigError(f"{model.repo} has no file {model.file!r}; {did_you_mean(model.file, files)}")
    part = part_of(model.file)
    return part.names()[0] if part else model.file


def _is_model(name: str) -> bool:
    base = name.rpartition("/")[2]
    part = part_of(name)
    return (part is None or part.index == 1) and not any(other in base for other in _OTHERS)


def _none_such(model: HubModel, models: Sequence[str]) -> str:
    quants = list(dict.fromkeys(quant for name in models if (quant := quant_of(name))))
    if not models:
        return f"{model.repo} has no model that can be loaded by itself; name a file with --hf-file"
    there = ", ".join(quants[:_SHOWN]) + (" …" if len(quants) > _SHOWN else "")
    return f"{model.repo} has no quantization {model.quant!r}; there are {there or 'none'} (--hf-file names a file)"
