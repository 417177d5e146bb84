"""Which models embed or rank texts, and which can draft, by their headers: those that write text from left to right. It
lists those that cannot, since most new architectures of llama.cpp can. A draft that was chosen and fails costs a line
(`runtime/draft_model.py`).
"""

from __future__ import annotations

import re

from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile, all_tensors

_CANNOT = {
    "an encoder, which writes no text": r".*bert.*|.*embed|.*-embedding|t5encoder",
    "an encoder beside a decoder, of which llama.cpp's loop runs neither alone": r"t5",
    "a diffusion model, which writes in no order": r"dream|llada.*|rnd1|.*diffusion.*",
    "of sounds": r"wavtokenizer.*|.*tts.*|.*-codec|.*vocoder.*",
    "a head, which drafts with the hidden rows of its own target alone": r"eagle.*|dflash|.*-assistant|medusa.*",
    "a projector": r"clip|mmproj.*",
}
_WRITES = frozenset(("pangu-embedded",))
"""Architectures that write text, whatever their names look like."""
_RANKS = ("cls.weight", "cls.output.weight")
_POOLED = (1, 2, 3)
_RANK = 4
EMBEDDING, RERANK = "embedding", "rerank"
_ENCODERS, _DIFFUSION = next(iter(_CANNOT.values())), _CANNOT["a diffusion model, which writes in no order"]


def purpose(file: GgufFile, arch: str) -> str:
    """EMBEDDING or RERANK for a model that is made to do so, by its pooling, its architecture or its classifier; "" for
    one that writes. Raises ModelLoadError.
    """
    if re.fullmatch(_DIFFUSION, arch) or any(key.startswith("diffusion.") for key in file.values):
        return ""
    pooling = file.whole(f"{arch}.pooling_type") or 0
    is_encoder = bool(re.fullmatch(_ENCODERS, arch)) and arch not in _WRITES
    if pooling == _RANK:
        return RERANK
    if pooling in _POOLED or is_encoder:
        has_classifier = not {tensor.name for tensor in file.tensors}.isdisjoint(_RANKS)
        return RERANK if has_classifier and file.length(f"{arch}.classifier.output_labels") else EMBEDDING
    return ""


def why_not(file: GgufFile, arch: str) -> str:
    """Why the model in a file cannot draft; "" where it can. Raises ModelLoadError."""
    if arch not in _WRITES:
        for why, pattern in _CANNOT.items():
            if re.fullmatch(pattern, arch):
                return f"it is {why}"
    if (causal := file.values.get(f"{arch}.attention.causal")) and file.bytes_of(causal.span) == b"\0":
        return "it reads text in both directions, and writes none"
    if any(key.startswith("diffusion.") for key in file.values):
        return "it is a diffusion model, which writes in no order"
    if file.whole(f"{arch}.pooling_type") or file.length(f"{arch}.classifier.output_labels"):
        return "it is trained to embed or to rank texts"
    names = {tensor.name for tensor in file.tensors}
    if not names.isdisjoint(_RANKS):
        return "it is trained to rank texts"
    if file.whole(f"{arch}.nextn_predict_layers") and not _has_layers(file, names):
        return "it holds a head for multi-token prediction alone"
    return ""


def _has_layers(file: GgufFile, names: set[str]) -> bool:
    """Whether there is a first layer, in this file or in another part of a split one."""
    try:
        return any(name.startswith("blk.0.") for name in names) or any(
            tensor.name.startswith("blk.0.") for tensor in all_tensors(file.path)
        )
    except ModelLoadError:
        return False
