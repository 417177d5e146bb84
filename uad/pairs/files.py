"""Which files of a folder are models: whole ones, the first parts of split ones, and the projectors and heads beside
them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.files import is_file, is_folder, is_there, no_such_file, path_text
from uad.base.errors import ConfigError
from uad.base.gguf import part_of

_log = logging.getLogger("uad")
_END = ".gguf"
_LEVELS = 3
"""The folder itself, its folders, and theirs: LM Studio keeps models as PUBLISHER/REPOSITORY/FILE."""
_PROJECTOR = re.compile(r"mmproj", re.IGNORECASE)
_HEAD = re.compile(r"(?:mtp|eagle3|dflash|dspark)-", re.IGNORECASE)  # how names of heads begin, as in llama-server
_PRECISION = re.compile(r"[-_.](?:f16|bf16|f32|q\d\w*|iq\d\w*)$", re.IGNORECASE)
_UNSAYABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends, and bytes that are no UTF-8: no client can ask for such a name."""
Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file in the folder, its projector, and a head that drafts for it."""

    path: Path
    projector: Path | None = None
    head: Path | None = None


def find_models(folder: Path, tell: Tell = _log.warning) -> dict[str, ModelFile]:
    """GGUF files of a folder, of its folders and of theirs, by the names of their models. Hidden ones do not count, of
    a split file the first part does.

    A folder that holds one model gives it its name, as in llama-server; of several each has that of its file. The
    second model of a name has its folder in front. `tell` gets a line about each file that is left out. Raises
    ConfigError where the folder cannot be read.
    """
    models: dict[str, ModelFile] = {}
    seen: set[str] = set()
    level = [folder]
    for depth in range(_LEVELS):
        folders, level = level, []
        for inner in folders:
            if (real := os.path.realpath(inner)) in seen:  # a link to a folder above it
                continue
            seen.add(real)
            try:
                entries = _shown(inner)
            except OSError as error:
                if depth == 0:
                    raise ConfigError(f"--models-dir: {folder} cannot be read ({error.strerror})") from None
                tell(f"{inner} cannot be read ({error.strerror})")
                continue
            below = list(_in_one(entries, tell))
            for name, model in below:
                _add(models, model, inner.parent if depth and len(below) == 1 else inner, name, tell)
            level += filter(is_folder, entries)
    return models


def _shown(folder: Path) -> list[Path]:
    """The entries of a folder, without hidden ones. Raises OSError."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def beside(target: Path) -> ModelFile:
    """A model's file, with the projector and the head that lie beside it. Raises OSError."""
    models = _in_one(_shown(target.parent), lambda line: None)
    return next((model for _, model in models if model.path == target), ModelFile(target))


def _add(models: dict[str, ModelFile], model: ModelFile, folder: Path, name: str, tell: Tell) -> None:
    """Give a model its name. `folder` holds what it is named after: its file, or the folder where it lies alone."""
    name = (model.path.parent.name if folder != model.path.parent else name).replace(",", "_")
    if _UNSAYABLE.search(name):
        tell(f"{path_text(model.path)} is left out: its name has control characters or is not UTF-8; rename it")
    elif name not in models:
        models[name] = model
    elif (longer := f"{folder.name.replace(',', '_')}/{name}") in models or _UNSAYABLE.search(longer):
        tell(f"{model.path} is left out: there is a model {name} already, {models[name].path}")
    else:
        tell(f"{model.path} is called {longer}: there is a model {name} already, {models[name].path}")
        models[longer] = model


def _in_one(entries: Sequence[Path], tell: Tell) -> Iterator[tuple[str, ModelFile]]:
    """The models among the entries of one folder, with the names of their files."""
    files = [file for file in entries if file.name.lower().endswith(_END) and not is_folder(file)]
    projectors = [file for file in files if _PROJECTOR.search(file.name) and is_file(file)]
    heads = [file for file in files if _HEAD.match(file.name) and is_file(file)]
    models = []
    for file in files:
        part = part_of(file.name)
        if part is not None and part.index > 1:
            if not is_there(first := file.with_name(part.names()[0])):
                tell(f"{file} is left out: the first part, {first.name}, is missing")
        elif not is_there(file):
            tell(f"{file} is left out: {no_such_file(file)}")
        elif not is_file(file):
            tell(f"{file} is left out: it is not a file")
        elif file not in projectors and file not in heads:
            models.append((file.name[: -len(_END)] if part is None else part.stem, file))
    for name, file in models:
        is_alone = len(models) == 1
        yield (
            name,
            ModelFile(file, _helper(name, projectors, _PROJECTOR, is_alone), _helper(name, heads, _HEAD, is_alone)),
        )


def _helper(name: str, files: Sequence[Path], mark: re.Pattern[str], is_alone: bool) -> Path | None:
    """The file that belongs to a model, of these, whose names have this mark: any where the model has a folder for
    itself, else the first that has its name.

    gemma-3-4b-it-Q4_K_M.gguf has mmproj-gemma-3-4b-it-f16.gguf: without the precision that name begins the model's.
    """
    for file in files:
        own = _PRECISION.sub("", mark.sub("", file.name[: -len(_END)]).strip("-_.")).casefold()
        if is_alone or (own and name.casefold().startswith(own)):
            return file
    return None
