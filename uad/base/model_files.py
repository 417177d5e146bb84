"""Files of models, before anything of llama.cpp is loaded: whether they are there, GGUF files, and which they are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from uad.base.common.files import is_file, is_folder, is_there, no_such_file
from uad.base.config import Config, ModelConfig
from uad.base.config.kinds import AUTO
from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile, files_of, part_of

_EDGE_BYTES = 1 << 20
_HUB_FLAGS = {"target": "--hf-repo", "draft": "--hf-repo-draft"}


def check_files(config: ModelConfig, role: str) -> None:
    """Raises ModelLoadError unless the files of a model and of its adapters can be read and begin like GGUF files."""
    check_file(config.path, role)
    for lora in config.loras:
        check_file(lora.path, "adapter")


def check_file(path: Path, role: str) -> None:
    """Raises ModelLoadError unless it can be read and begins like a GGUF file, with all its parts beside it."""
    if not is_there(path):
        raise ModelLoadError(f"{role} {path}: {no_such_file(path)}{_from_hub(path, role)}")
    if is_folder(path) and role == "target":
        raise ModelLoadError(f"{role} {path}: a folder; `uad serve --models-dir {path}` serves all models in it")
    if not is_file(path):
        raise ModelLoadError(f"{role} {path}: not a file; give the path of a .gguf file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelLoadError(f"{role} {path}: cannot be read ({error.strerror})") from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{role} {path}: not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py or download a "
            ".gguf"
        )
    # a model in several files is loaded by the first, and the others have to lie beside it
    if (part := part_of(path.name)) is None:
        return
    if part.index != 1:
        raise ModelLoadError(f"{role} {path}: part {part.index} of {part.count}; give the first, {part.names()[0]}")
    if missing := [name for name in part.names() if not is_there(path.with_name(name))]:
        raise ModelLoadError(f"{role} {path}: of {part.count} parts are missing in its folder: {', '.join(missing)}")


def _from_hub(path: Path, role: str) -> str:
    """The way out for a name that is that of a model, as other programs know it, and not that of a file."""
    if role not in _HUB_FLAGS or path.suffix.lower() == ".gguf" or path.is_absolute() or len(path.parts) > 2:
        return ""
    repository = str(path) if len(path.parts) == 2 else "USER/REPO"
    return f"; a model of Hugging Face is named with {_HUB_FLAGS[role]} {repository}"


def wrong_files(config: Config) -> Iterator[ModelLoadError]:
    """Errors in the files that a configuration names, as far as they show without loading: files that are missing, not
    GGUF, damaged in their headers, or cut. Files of a hub are not looked at.
    """
    for path, role in _named(config):
        try:
            check_file(path, role)
            for part in files_of(path):
                GgufFile(part).close()
        except ModelLoadError as error:
            yield error
    tokenizers = [("--target-tokenizer", config.target), *(("--draft-tokenizer", model) for model in config.drafts[:1])]
    for flag, model in tokenizers:
        if model.tokenizer is not None and not is_there(model.tokenizer):
            yield ModelLoadError(f"{flag} {model.tokenizer}: {no_such_file(model.tokenizer)}")


def _named(config: Config) -> Iterator[tuple[Path, str]]:
    """The GGUF files of a configuration, with their roles."""
    for role, model in (("target", config.target), *(("draft", draft) for draft in config.drafts)):
        if model.hub is None and model.path != AUTO:
            yield model.path, role
        yield from ((lora.path, "adapter") for lora in model.loras)
    if config.vision.path not in (None, AUTO):
        yield config.vision.path, "mmproj"


def fingerprint(path: Path, role: str = "model") -> str:
    """Size and hash of the first and the last MiB: distinguishes models and weight types without reading gigabytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            # the header lies at the beginning, the last layer's weights at the end: a model that was quantized again,
            # or fine-tuned, differs in one of them
            digest = hashlib.sha256(file.read(_EDGE_BYTES))
            file.seek(max(size - _EDGE_BYTES, 0))
            digest.update(file.read(_EDGE_BYTES))
    except OSError as error:
        raise ModelLoadError(f"{role} {path}: cannot be read ({error.strerror})") from None
    return f"{size}-{digest.hexdigest()[:32]}"
