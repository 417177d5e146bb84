"""Whether a file holds a head for multi-token prediction, by its header alone: llama.cpp ends the process where a head
is asked for that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import GgufFile, all_tensors

# architectures whose heads llama.cpp 0.3.36's can run; others (exaone, bailingmoe2, dots …) load theirs for nothing
RUNNABLE = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "hy_v3",
        "mimo2",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "step35",
    }
)
SHARING = frozenset({"gemma4-assistant"})
"""Architectures whose heads have no memory of their own: they look into the target's."""
_SEVERAL = frozenset({"mimo2", "step35", "hy_v3"})
"""Architectures that may have several heads, of which one is run; of the others llama.cpp takes files with one only."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """The heads that a file declares. is_alone: it holds no more than them, and is no model to write with."""

    arch: str
    n_heads: int
    is_alone: bool

    @property
    def obstacle(self) -> str:
        """Why it cannot be run; empty where it can."""
        if self.arch in SHARING:
            return f"heads of {self.arch} look into the target's memory, which uad does not support"
        if self.arch not in RUNNABLE:
            return f"llama.cpp cannot run heads of the architecture {self.arch}"
        if self.n_heads > 1 and self.arch not in _SEVERAL:
            return f"llama.cpp runs one head of the architecture {self.arch}, and the file has {self.n_heads}"
        return ""


def head_in(path: Path) -> HeadFile | None:
    """The heads that a file, or the parts of one, declares; None where it has none, or is no file that can be read."""
    try:
        with GgufFile(path) as file:
            arch = file.text("general.architecture") or ""
            n_heads = file.whole(f"{arch}.nextn_predict_layers") or 0
            n_blocks = file.whole(f"{arch}.block_count") or 0
        names = {tensor.name for tensor in all_tensors(path)}
    except ModelLoadError:
        return None
    if arch in SHARING:
        return HeadFile(arch, max(n_heads, 1), is_alone=True)
    if not n_heads or f"blk.{n_blocks - n_heads}.nextn.eh_proj.weight" not in names:
        return None
    return HeadFile(arch, n_heads, is_alone="blk.0.attn_norm.weight" not in names)


def refuse_alone(head: HeadFile | None, what: str) -> None:
    """Raises ConfigError for a file that is to write text and holds a head alone: llama.cpp ends the process there."""
    if head is not None and head.is_alone:
        raise ConfigError(
            f"{what}: it holds a head for multi-token prediction alone, which writes no text by itself; name its model "
            "here, and the head as --model-draft of `uad serve`"
        )
