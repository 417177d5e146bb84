"""Owner of a context of a model that embeds or ranks texts. Knows no request."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from uad.base.common.embedding import Ids, Vectors
from uad.base.config import ModelConfig
from uad.base.config.slices import POOLINGS
from uad.base.errors import ConfigError, DecodeError, ModelLoadError
from uad.base.gguf import all_tensors
from uad.llama.backend import abort, native
from uad.llama.context import Batch, context_params
from uad.llama.kernels import use as kernels
from uad.llama.kernels.library import ANYWHERE
from uad.llama.model import Model

CHUNK = 256
"""Cells of which uad's attention makes one sum: a text within one has the same bits wherever it begins there."""
_MOST_TOGETHER = 64
_USUAL_MOST = 8192
"""Ids of the longest text, unless --ctx-size says otherwise: each takes memory in a model with a KV cache."""
_ENCODERS = r".*bert.*|gemma-embedding|t5encoder"
"""Architectures that read a text in both directions, whatever their files say."""
_SEED, _LENGTHS = 7, (3, 17, 40, 1, 64, 9, 90, 31)
"""Texts of the trial whether passes may be shared: lengths in ids, of which all fit into a chunk."""


class EmbeddingContext(native.Owner):
    """Turns texts into vectors. pooling: a name of POOLINGS, empty: as the model's file says.

    Raises ConfigError for a pooling that the model cannot have, ModelLoadError where llama.cpp makes no such context.
    """

    projector = None

    def __init__(self, model: Model, config: ModelConfig, pooling: str) -> None:
        self.model, self._config = model, config
        self._log, self._kernels = native.start(), kernels.parts_of_passes(config) | {ANYWHERE}
        self._asked = POOLINGS.index(pooling) if pooling else -1
        self.n_most = _longest(model, config)
        self._handle: ctypes.c_void_p | None = None
        self.reopen()
        try:
            self.pooling = POOLINGS[int(lib.llama_pooling_type(self._handle))]
            if self.pooling == "rank":
                self._check_rank()
                self.width = max(int(lib.llama_model_n_cls_out(model.handle)), 1)
            else:
                self.width = int(lib.llama_model_n_embd_out(model.handle))
            self._batch = Batch(max(self.n_most, CHUNK))
            self.n_together = 1
            """Texts that may share a pass of CHUNK ids: each has the bits then that it has alone."""
            with abort.starting(f"target {model.path}"):
                self.embed([[0]])
            if self._may_share() and self._agrees():
                self.n_together = _MOST_TOGETHER
        except BaseException:
            self.close()
            raise

    def _check_rank(self) -> None:
        names = {tensor.name for tensor in all_tensors(self.model.path)}
        if names.isdisjoint(("cls.weight", "cls.output.weight")):
            raise ConfigError(
                f"--pooling rank: {self.model.path} has no classifier, so it ranks nothing; choose a reranker"
            )

    def reopen(self) -> None:
        """Make a closed context again; its model must be open. Raises ModelLoadError."""
        if self._handle:
            return
        params = self._parameters()
        self._log.clear()
        with abort.starting(f"target {self.model.path}"):
            handle = lib.llama_init_from_model(self.model.handle, params)
        if not handle:
            raise ModelLoadError(
                f"target {self.model.path}: no context for texts of {self.n_most} tokens "
                f"({self._log.reason() or 'out of memory?'}); try a smaller --ctx-size"
            )
        self._handle = handle
        self._memory = lib.llama_get_memory(handle)
        self.model.adapters.add_to(handle, self.model.adapters.scales)

    def _parameters(self) -> Any:
        own = self.model
        has_state = lib.llama_model_is_recurrent(own.handle) or lib.llama_model_is_hybrid(own.handle)
        self._n_seq = 1 if has_state or (own.n_swa and _is_causal(own)) else _MOST_TOGETHER
        params = context_params(self._config, self.n_most, 1)
        params.n_ctx = max(self.n_most, CHUNK)
        params.n_seq_max, params.kv_unified, params.n_rs_seq = self._n_seq, True, 0
        params.n_batch = params.n_ubatch = max(self.n_most, CHUNK)
        if _is_causal(own) and self._pools_last():
            params.n_ubatch = min(params.n_ubatch, max(self._config.n_ubatch, CHUNK))
        params.embeddings, params.pooling_type = True, self._asked
        return params

    def _pools_last(self) -> bool:
        """Whether the last row alone counts, so that a text may be read in several passes."""
        in_file = self.model.meta(f"{self.model.info.arch}.pooling_type") or ""
        return (str(self._asked) if self._asked >= 0 else in_file) in ("3", "4")

    def embed(self, texts: Sequence[Ids]) -> list[Vectors]:
        """One pass over these texts, at most `n_together` of CHUNK ids together, or a single one of `n_most`. Raises
        DecodeError, also where the model computes no numbers.
        """
        batch = self._batch
        batch.clear()
        for seq, ids in enumerate(texts):
            batch.add(seq, 0, ids, len(ids))
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        kernels.before_pass(self._kernels)
        self._log.clear()
        if code := int(lib.llama_decode(self._handle, batch.seal())):
            reason = self._log.reason() or "no reason given"
            raise DecodeError(f"target: llama_decode failed with code {code} ({reason})")
        vectors = self._rows(texts)
        if not all(np.isfinite(rows).all() for rows in vectors):
            raise DecodeError(
                f"the target {self.model.path} computes no numbers (NaN): its weights or its metadata are damaged"
            )
        return vectors

    def _rows(self, texts: Sequence[Ids]) -> list[Vectors]:
        if self.pooling != "none":
            return [
                self._copy(lib.llama_get_embeddings_seq(self._handle, seq), 1, self.width) for seq in range(len(texts))
            ]
        rows = self._copy(lib.llama_get_embeddings(self._handle), sum(map(len, texts)), self.width)
        return np.split(rows, np.cumsum([len(ids) for ids in texts])[:-1])

    def _copy(self, pointer: Any, n: int, width: int) -> Vectors:
        if not pointer:
            raise DecodeError("target: no embeddings after decode")
        return np.ctypeslib.as_array(pointer, (n, width)).astype(np.float32)

    def _may_share(self) -> bool:
        """Whether attention and products of activations run in uad's kernels, and memory is kept by position."""
        return kernels.keep_rows(self._config) and self._n_seq > 1

    def _agrees(self) -> bool:
        """Whether texts have the same bits alone and in a pass of several, in a trial of three orders."""
        rng = np.random.default_rng(_SEED)
        texts = [rng.integers(0, self.model.info.n_vocab, n).tolist() for n in _LENGTHS]
        alone = [self.embed([ids])[0] for ids in texts]
        n = len(texts)
        for order in (range(n), range(n - 1, -1, -1), [(3 * i + 1) % n for i in range(n)]):
            together = self.embed([texts[i] for i in order])
            if not all(np.array_equal(alone[i], rows) for i, rows in zip(order, together, strict=True)):
                return False
        return True

    def close(self) -> None:
        if self._handle:
            lib.llama_free(self._handle)
            self._handle = None


def _longest(model: Model, config: ModelConfig) -> int:
    """Ids of the longest text. Learned positions end where training did; --ubatch-size bounds passes over whole
    texts where it was chosen.
    """
    n = config.n_ctx or min(model.info.n_ctx_train, _USUAL_MOST)
    if model.info.arch == "bert":
        n = min(n, model.info.n_ctx_train)
    was_chosen = config.n_ubatch != ModelConfig.__dataclass_fields__["n_ubatch"].default
    return min(n, config.n_ubatch) if was_chosen and not _is_causal(model) else n


def _is_causal(model: Model) -> bool:
    """Whether texts are read from left to right, in a memory."""
    arch = model.info.arch
    return not re.fullmatch(_ENCODERS, arch) and model.meta(f"{arch}.attention.causal") != "false"
