"""What trimming would bring, from the header of a draft alone, for `uad inspect`."""

from __future__ import annotations

from pathlib import Path

from uad.common.files import size_text
from uad.errors import ConfigError, ModelLoadError
from uad.gguf import GgufFile
from uad.trim.choose import DEFAULT_KEEP
from uad.trim.cut import check_source, row_tensors
from uad.trim.vocabulary import BPE, MERGES, MODEL, SCORES, SPM, TOKENS, TYPES

_LEAST_SAVING = 0.15


def saving(path: Path, keep: int = DEFAULT_KEEP) -> str | None:
    """A sentence about it; None where a draft of `keep` tokens would not be smaller by 15 %, or cannot be made."""
    try:
        with GgufFile(path) as file:
            return _saving(file, keep)
    except (ConfigError, ModelLoadError):
        return None


def _saving(file: GgufFile, keep: int) -> str | None:
    if file.text(MODEL) not in (BPE, SPM) or TOKENS not in file.values:
        return None
    n_vocab = len(file.elements(TOKENS))
    check_source(file, n_vocab)
    rows = sum(tensor.n_bytes for tensor in row_tensors(file, n_vocab))
    lists = sum(
        value.span[1] - value.span[0] for key, value in file.values.items() if key in (TOKENS, TYPES, SCORES, MERGES)
    )
    saved = (rows + lists) * (1 - min(keep / n_vocab, 1))
    if saved < _LEAST_SAVING * file.size:
        return None
    part = rows / sum(tensor.n_bytes for tensor in file.tensors)
    return (
        f"the draft's vocabulary is {100 * part:.0f} % of its weights; `uad trim` would make the file about "
        f"{size_text(file.size - saved)} "
        f"({size_text(file.size)} now)"
    )
