"""Which files of a folder are models: whole ones, the first parts of split ones, and the projectors beside them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.files import is_folder
from uad.base.errors import ConfigError
from uad.base.gguf import part_of

_log = logging.getLogger("uad")
_END = ".gguf"
_PROJECTOR = re.compile(r"mmproj", re.IGNORECASE)
_PRECISION = re.compile(r"[-_.](?:f16|bf16|f32|q\d\w*|iq\d\w*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file in the folder, and its projector."""

    path: Path
    projector: Path | None = None


def find_models(folder: Path) -> dict[str, ModelFile]:
    """GGUF files of a folder and of its folders, by the names of their models. Of a split file the first part counts.

    A folder that holds one model gives it its name, as in llama-server; of several each has that of its file.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"--models-dir: {folder} cannot be read ({error.strerror})") from None
    models = _in_one(entries)
    for inner in (entry for entry in entries if is_folder(entry)):
        try:
            below = _in_one(sorted(inner.iterdir()))
        except OSError as error:
            _log.warning("%s cannot be read (%s)", inner, error.strerror)
            continue
        for name, model in below.items() if len(below) > 1 else ((inner.name, model) for model in below.values()):
            name = name.replace(",", "_")
            if name in models:
                _log.warning("%s is left out: there is a model %s already, %s", model.path, name, models[name].path)
            else:
                models[name] = model
    return models


def projector_beside(target: Path) -> Path | None:
    """The projector of a model's file, if one lies beside it. Raises OSError."""
    models = _in_one(sorted(target.parent.iterdir())).values()
    return next((model.projector for model in models if model.path == target), None)


def _in_one(entries: Sequence[Path]) -> dict[str, ModelFile]:
    """The models among the entries of one folder."""
    files = [file for file in entries if file.name.lower().endswith(_END) and not is_folder(file)]
    projectors = [file for file in files if _PROJECTOR.search(file.name)]
    named: dict[str, ModelFile] = {}
    models = [
        file for file in files if file not in projectors and ((part := part_of(file.name)) is None or part.index == 1)
    ]
    for file in models:
        part = part_of(file.name)
        name = (file.name[: -len(_END)] if part is None else part.stem).replace(",", "_")
        named[name] = ModelFile(file, _projector(name, projectors, len(models) == 1))
    return named


def _projector(name: str, projectors: Sequence[Path], is_alone: bool) -> Path | None:
    """The projector of a model: any where the model has a folder for itself, else one that has its name.

    gemma-3-4b-it-Q4_K_M.gguf has mmproj-gemma-3-4b-it-f16.gguf: without the precision that name begins the model's.
    """
    for projector in projectors:
        own = _PRECISION.sub("", _PROJECTOR.sub("", projector.name[: -len(_END)]).strip("-_.")).casefold()
        if is_alone or (own and name.casefold().startswith(own)):
            return projector
    return None
