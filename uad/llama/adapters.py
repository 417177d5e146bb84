"""The LoRA adapters of a loaded model: their files, their facts, and how much of each a context adds to its weights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.base.config import LoraConfig
from uad.base.errors import DecodeError, ModelLoadError
from uad.base.events import AdapterInfo
from uad.llama.backend import native

_TASK, _PREFIX = "adapter.lora.task_name", "adapter.lora.prompt_prefix"
_TEXT_BYTES = 4096  # bytes


class Adapters:
    """Adapters of one model, in the order of the command line; llama.cpp frees them with it.

    scales: how much of each is added at start. Raises ModelLoadError for a file that is no adapter of this model.
    """

    def __init__(self, model: ctypes.c_void_p, configs: Sequence[LoraConfig], is_applied: bool, role: str) -> None:
        self._configs, self._role = configs, role
        self._handles = [_load(model, config, role) for config in configs]
        self.scales = tuple(config.scale if is_applied else 0.0 for config in configs)
        self.infos = tuple(
            AdapterInfo(i, str(config.path), self.scales[i], _text(handle, _TASK), _text(handle, _PREFIX))
            for i, (config, handle) in enumerate(zip(configs, self._handles, strict=True))
        )

    def reopen(self, model: ctypes.c_void_p) -> None:
        """Load them again, for the same model that was loaded again. Raises ModelLoadError."""
        self._handles = [_load(model, config, self._role) for config in self._configs]

    def add_to(self, context: ctypes.c_void_p | None, scales: Sequence[float]) -> None:
        """Have a context add so much of each. One of which nothing is added costs nothing and changes no bit.

        Its KV still holds values of the adapters before. Raises DecodeError.
        """
        # llama.cpp takes the whole list each time: what is not in it is not added any more
        chosen = [(handle, scale) for handle, scale in zip(self._handles, scales, strict=True) if scale]
        handles = (lib.llama_adapter_lora_p_ctypes * len(chosen))(*(handle for handle, _ in chosen))
        amounts = (ctypes.c_float * len(chosen))(*(scale for _, scale in chosen))
        if lib.llama_set_adapters_lora(context, handles, len(chosen), amounts):
            raise DecodeError("llama.cpp does not apply the LoRA adapters")


def _load(model: ctypes.c_void_p, config: LoraConfig, role: str) -> Any:
    log = native.start()
    log.clear()
    handle = lib.llama_adapter_lora_init(model, os.fsencode(config.path))
    if not handle:
        raise ModelLoadError(
            f"adapter {config.path}: llama.cpp cannot apply it to the {role} ({log.reason() or 'no reason given'}); "
            "is it an adapter of this very model, made by convert_lora_to_gguf.py?"
        )
    if lib.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise ModelLoadError(
            f"adapter {config.path}: it is one that certain tokens switch on (aLoRA), which are not supported; give a "
            "plain LoRA"
        )
    return handle


def _text(handle: Any, key: str) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    n = int(lib.llama_adapter_meta_val_str(handle, key.encode(), buffer, _TEXT_BYTES))
    return buffer.value.decode(errors="replace") if n > 0 else ""
