"""The devices of a configuration: RPC workers are added, and names are looked up before anything is loaded."""

from __future__ import annotations

from dataclasses import replace

from uad.backend import rpc
from uad.backend.devices import every, named, used
from uad.common.files import size_text
from uad.config import Config, ModelConfig


def connected(config: Config) -> Config:
    """The configuration with its workers added.

    A draft without devices of its own stays on this machine's devices: each of its ids would wait for the network.
    Raises ConfigError for workers that cannot be used and for names that no device has.
    """
    if config.rpc:
        rpc.connect(config.rpc)
    draft = config.draft
    if config.rpc and draft is not None and draft.devices is None:
        draft = replace(draft, devices=tuple(one.name for one in every() if one.takes_layers and not one.is_remote))
    for model, flag in ((config.target, "--device"), (draft, "--device-draft")):
        if model is not None and model.devices:
            named(model.devices, [one for one in every() if one.takes_layers], flag)
    return replace(config, draft=draft)


def notes(config: Config) -> tuple[str, ...]:
    """The lines at start that name the devices of each model, where they were chosen or there are workers; and the
    one that says that there is no GPU, where the flags count on one.
    """
    lines = []
    asked = [model.n_gpu_layers for model in (config.target, config.draft) if model is not None]
    if max(asked) > 0 and not any(one.takes_layers for one in every()):
        lines.append(
            f"--gpu-layers {max(asked)} has no effect: this llama.cpp finds no GPU, or was built without support for "
            "one (make clean; make serve CMAKE_ARGS=-DGGML_CUDA=on)"
        )
    for role, model in (("target", config.target), ("draft", config.draft)):
        if model is not None and (config.rpc or model.devices is not None):
            lines.append(f"devices of the {role}: {_names(model)}")
    return tuple(lines)


def _names(model: ModelConfig) -> str:
    shown = [f"{one.name} ({one.description}, {size_text(one.free)} free)" for one in used(model)]
    return ", ".join(shown) or "this machine's CPU"
