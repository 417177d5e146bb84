"""A folder of models behind one address: which there are, and how many of them are loaded at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uad.base.common.settings import setting
from uad.base.config import kinds


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """The models that `uad serve` without a target serves. Without a folder and a file there is no router."""

    models_dir: Path | None = setting(
        None,
        "serve all models of this folder, each in a process of its own that is started when a request names it; in "
        "place of --model",
        "--models-dir LLAMA_ARG_MODELS_DIR",
        kind=kinds.FOLDER,
        default_text="one model is served",
    )
    models_preset: Path | None = setting(
        None,
        "file (INI) with options of single models, or with further ones: its sections are models, its keys flags",
        "--models-preset LLAMA_ARG_MODELS_PRESET",
    )
    models_max: int = setting(
        4,
        "most models of the folder that are loaded at a time; the one used longest ago makes room; 0 is no limit",
        "--models-max LLAMA_ARG_MODELS_MAX",
    )
    autoload: bool = setting(
        True,
        "a model of the folder is loaded when a request names it",
        "--models-autoload LLAMA_ARG_MODELS_AUTOLOAD",
        no="--no-models-autoload",
    )

    @property
    def is_on(self) -> bool:
        """Whether several models are served."""
        return self.models_dir is not None or self.models_preset is not None
