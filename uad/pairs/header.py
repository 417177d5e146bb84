"""Facts from the header of a model's file, read without llama.cpp: for lists of models and the choice of a draft."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar

from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile, files_of
from uad.base.model_files import fingerprint
from uad.pairs.able import purpose, why_not

Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, size, time of change and number of each file of a model: another file has another stamp. The number of one that
may not be read is 0."""
_FTYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
}
"""llama.cpp's numbers of file types."""
_MODEL, _TOKENS = "model", "tokenizer.ggml.tokens"
_FIM = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.fim_mid_token_id")


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """Sizes are in bytes; a number that the file does not have is 0."""

    arch: str = ""
    name: str = ""
    n_params: int = 0
    size: int = 0
    ftype: str = ""
    n_ctx_train: int = 0
    n_embd: int = 0
    n_vocab: int = 0
    chat_template: str = ""
    fills_in: bool = False
    """Whether it has tokens for filling in the middle."""
    is_model: bool = True
    """Whether it is no adapter, projector or vocabulary."""
    problem: str = ""
    """Why the file cannot be read."""
    no_draft: str = ""
    """Why it cannot draft, though it is a model."""
    purpose: str = ""
    """"embedding" or "rerank" of a model that is made to embed or to rank; empty of one that writes text."""
    vocab: str = ""
    """A hash of the tokens: models of one family have the same."""

    @property
    def can_draft(self) -> bool:
        """Whether it may write text for another model."""
        return self.is_model and not self.problem and not self.no_draft and self.n_vocab > 0


T = TypeVar("T")
S = TypeVar("S")


class ByStamp(Generic[S, T]):
    """A function of a file and its stamp. Each result is kept until the file has another stamp, so there are as many as
    files. From any thread; two that want the same wait for one.
    """

    def __init__(self, work: Callable[[Path, S], T]) -> None:
        self._work, self._lock = work, RLock()
        self._kept: dict[Path, tuple[S, T]] = {}

    def __call__(self, path: Path, of: S) -> T:
        with self._lock:
            if (result := self.kept(path, of)) is None:
                result = (of, self._work(path, of))
                self._kept[path] = result
            return result[1]

    def kept(self, path: Path, of: S) -> tuple[S, T] | None:
        """Stamp and result, if it was worked out; nobody waits for that."""
        result = self._kept.get(path)
        return result if result is not None and result[0] == of else None


def stamp(path: Path) -> Stamp:
    """The stamp of a model's files as they are now; those that are missing are left out."""
    return tuple(part_stamp for part in files_of(path) if (part_stamp := _stamp(part)) is not None)


def n_bytes(of: Stamp) -> int:
    """Bytes of all files."""
    return sum(size for _, size, _, _ in of)


def _stamp(path: Path) -> tuple[str, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return str(path), status.st_size, status.st_mtime_ns, status.st_ino if os.access(path, os.R_OK) else 0


@ByStamp
def identity(path: Path, of: Stamp) -> str:
    """The fingerprint of a file, which is read once as long as its stamp is the same. Raises ModelLoadError."""
    return fingerprint(path)


@ByStamp
def facts(path: Path, of: Stamp) -> HeaderFacts:
    """Read the header; `of` is the stamp of the files, for which the answer holds. Takes a tenth of a second for a
    large vocabulary: for worker threads.
    """
    size = n_bytes(of)
    try:
        with GgufFile(path) as file:
            arch = file.text("general.architecture") or ""
            n_params = _parameters(file, path)
            return HeaderFacts(
                arch=arch,
                name=file.text("general.name") or "",
                n_params=n_params,
                size=size,
                ftype=_FTYPES.get(_whole(file, "general.file_type", -1), "unknown"),
                n_ctx_train=_whole(file, f"{arch}.context_length"),
                n_embd=_whole(file, f"{arch}.embedding_length"),
                n_vocab=file.length(_TOKENS),
                chat_template=file.text("tokenizer.chat_template") or "",
                fills_in=all(key in file.values for key in _FIM),
                is_model=(file.text("general.type") or _MODEL) == _MODEL and arch != "clip" and n_params > 0,
                no_draft=why_not(file, arch),
                purpose=purpose(file, arch),
                vocab=_hash(file),
            )
    except ModelLoadError as error:
        return HeaderFacts(size=size, problem=str(error))
    except Exception as error:  # a file that nobody thought of is one bad file, too
        return HeaderFacts(size=size, problem=f"{path}: its header cannot be read ({error!r})")


def _hash(file: GgufFile) -> str:
    value = file.values.get(_TOKENS)
    return "" if value is None else hashlib.blake2b(file.bytes_of(value.span), digest_size=16).hexdigest()


def _whole(file: GgufFile, key: str, default: int = 0) -> int:
    """A whole number from 0 on; the default for any other value, with which llama.cpp loads no model."""
    value = file.whole(key)
    return default if value is None or value < 0 else value


def _parameters(file: GgufFile, path: Path) -> int:
    """Numbers in all tensors, those of other parts of a split file included. Raises ModelLoadError."""
    n = sum(math.prod(tensor.shape) for tensor in file.tensors)
    for part in files_of(path)[1:]:
        with GgufFile(part) as other:
            n += sum(math.prod(tensor.shape) for tensor in other.tensors)
    return n
