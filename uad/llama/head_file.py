"""Whether a file holds a head, of which kind and for which target, by headers alone: llama.cpp ends the process where a
head is asked for that is not there, or of another target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import GgufFile, all_tensors
from uad.base.types import Origin

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
TAPPED = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "gemma4",
        "gpt-oss",
        "hunyuan_vl",
        "lfm2",
        "lfm2moe",
        "llama",
        "mimo2",
        "minimax-01",
        "minimax-m2",
        "muse-glimmer",
        "nanbeige",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen3",
        "qwen35",
        "qwen35moe",
        "qwen3moe",
        "qwen3next",
        "qwen4exp",
    }
)
"""Architectures of targets whose layers llama.cpp 0.3.36's hands out; with others it would end the process."""
KINDS = {
    Origin.HEAD: "a head for multi-token prediction",
    Origin.EAGLE3: "a head of EAGLE-3",
    Origin.DFLASH: "a head of DFlash",
    Origin.DSPARK: "a head of DSpark",
}
_EAGLE3, _DFLASH = "eagle3", "dflash"
_EAGLE3_LAYERS = 3


@dataclass(frozen=True, slots=True)
class HeadFile:
    """The heads that a file declares. is_alone: it holds no more than them, and is no model to write with.

    Of one that was trained apart from its target: layers: the target's that it reads; n_embd: numbers of a row of
    these; shares: numbers of a row of the target's embedding or output, where it has none of its own, 0 where it has
    both; n_vocab: tokens of its vocabulary; n_block: ids that it reads at once, the known one and masks;
    is_anchored: whether the known one is followed by a guess at its own place; n_candidates: ids that a head of DFlash2
    chooses from at each place, 0 for others. why_not: a part of it that uad does not run.
    """

    arch: str
    n_heads: int
    is_alone: bool
    origin: Origin = Origin.HEAD
    layers: tuple[int, ...] = ()
    n_embd: int = 0
    shares: int = 0
    n_vocab: int = 0
    n_block: int = 0
    is_anchored: bool = False
    n_candidates: int = 0
    why_not: str = ""

    @property
    def is_trained(self) -> bool:
        """Whether it was trained apart from its target."""
        return self.origin is not Origin.HEAD

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows of layers that it reads for one id."""
        return 4 * len(self.layers) * self.n_embd

    @property
    def obstacle(self) -> str:
        """Why it cannot be run; empty where it can."""
        if self.is_trained:
            return self.why_not
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
            if arch in (_EAGLE3, _DFLASH):
                return _trained(file, arch, names)
    except ModelLoadError:
        return None
    if arch in SHARING:
        return HeadFile(arch, max(n_heads, 1), is_alone=True)
    if not n_heads or f"blk.{n_blocks - n_heads}.nextn.eh_proj.weight" not in names:
        return None
    return HeadFile(arch, n_heads, is_alone="blk.0.attn_norm.weight" not in names)


def _trained(file: GgufFile, arch: str, names: set[str]) -> HeadFile:
    """A head that was trained apart from its target. Raises ModelLoadError."""
    layers = tuple(int(number) for number in file.numbers(f"{arch}.target_layers"))
    own = file.whole(f"{arch}.embedding_length") or 0
    origin, why_not, anchor = Origin.EAGLE3, "", file.values.get(f"{arch}.sample_from_anchor")
    if arch == _DFLASH:
        origin = Origin.DSPARK if "markov_w1.weight" in names else Origin.DFLASH
    if not layers or (arch == _EAGLE3 and len(layers) != _EAGLE3_LAYERS):
        why_not = f"it reads {len(layers)} layers of its target, which is not what heads of its kind do"
    elif file.whole(f"{arch}.hyper_connection.count"):
        why_not = "it is made of blocks of DeepSeek-V4, which uad does not run"
    return HeadFile(
        arch,
        1,
        is_alone=True,
        origin=origin,
        layers=layers,
        n_embd=file.whole(f"{arch}.target_hidden_size") or own,
        shares=0 if {"token_embd.weight", "output.weight"} <= names else own,
        n_vocab=file.length("tokenizer.ggml.tokens"),
        n_block=(file.whole(f"{arch}.block_size") or 16) if arch == _DFLASH else 0,
        is_anchored=origin is Origin.DSPARK and not (anchor and file.bytes_of(anchor.span) == b"\0"),
        n_candidates=(file.whole(f"{arch}.selector_top_k") or 0) if "selector_hidden.weight" in names else 0,
        why_not=why_not,
    )


def mismatch(head: HeadFile, target: Path) -> str:
    """Why a head that was trained apart cannot be of this target, by the headers; empty where it may be. Raises
    ModelLoadError.
    """
    with GgufFile(target) as file:
        arch = file.text("general.architecture") or ""
        n_embd = file.whole(f"{arch}.embedding_length") or 0
        n_layers = (file.whole(f"{arch}.block_count") or 0) - (file.whole(f"{arch}.nextn_predict_layers") or 0)
        n_vocab = file.length("tokenizer.ggml.tokens")
    if arch not in TAPPED:
        return f"llama.cpp does not hand out the layers of targets of the architecture {arch}"
    if head.n_embd != n_embd:
        return f"its target's rows have {head.n_embd} numbers, and those of {target.name} {n_embd}"
    if head.shares not in (0, n_embd):
        return (
            f"it shares the target's embedding, of rows of {head.shares} numbers; those of {target.name} have {n_embd}"
        )
    if (last := max(head.layers)) >= n_layers:
        return f"it reads layer {last} of its target, and {target.name} has layers 0 to {n_layers - 1}"
    if head.n_vocab != n_vocab:
        return f"its vocabulary has {head.n_vocab:,} tokens, and that of {target.name} {n_vocab:,}"
    return ""


def refuse_alone(head: HeadFile | None, what: str) -> None:
    """Raises ConfigError for a file that is to write text and holds a head alone: llama.cpp ends the process there."""
    if head is not None and head.is_alone:
        raise ConfigError(
            f"{what}: it holds {KINDS[head.origin]} alone, which writes no text by itself; name its model "
            "here, and the head as --model-draft of `uad serve`"
        )
