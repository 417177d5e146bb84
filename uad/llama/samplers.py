"""Owner of one llama.cpp sampler chain, applied to a row of logits in place of numpy's own arithmetic. Knows stages,
not requests.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from uad.base.common.logits import likeliest
from uad.base.errors import NotSupportedError
from uad.engine.sampling.stages import LogitBias, Stage, most_kept
from uad.llama.backend import native


class SamplerChain:
    """Stages over a vocabulary of n_vocab ids. Close it, or its native memory stays."""

    def __init__(self, n_vocab: int, stages: Sequence[Stage], vocab: object = None) -> None:
        native.start()
        params = lib.llama_sampler_chain_default_params()
        params.no_perf = True
        self._chain = lib.llama_sampler_chain_init(params)
        try:
            for stage in stages:
                lib.llama_sampler_chain_add(self._chain, _make(stage, n_vocab, vocab))
        except BaseException:
            self.close()
            raise
        self._data = np.zeros(n_vocab, np.dtype(lib.llama_token_data))
        self._ids, self._logits = self._data["id"], self._data["logit"]
        self._all_ids = _all_ids(n_vocab)
        self._most_kept = most_kept(stages)
        array: Any = lib.llama_token_data_array()  # the binding declares its pointer field as an array
        self._address = self._data.ctypes.data
        self._start = self._data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
        self._array = array
        self._reference = ctypes.byref(array)

    def apply(
        self, row: npt.NDArray[np.float32], ids: npt.NDArray[np.intp] | None = None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """See `uad.engine.sampling.steps.Chain`."""
        if ids is None and self._most_kept:
            # writing and sorting 150,000 records takes longer than finding the few that a leading top_k keeps
            ids = likeliest(row, self._most_kept)
            row = row if ids is None else row[ids]
        n = len(row)
        self._ids[:n] = self._all_ids if ids is None else ids
        self._logits[:n] = row
        array = self._array
        array.data = self._start  # a stage that drops the first candidates has moved it
        array.size = n
        array.selected = -1
        array.sorted = False
        lib.llama_sampler_apply(self._chain, self._reference)
        # where XTC drops the first 10 of 40 candidates, `data` points 10 records further than before
        first = (ctypes.addressof(array.data.contents) - self._address) // self._data.itemsize
        left = slice(first, first + array.size)
        return self._ids[left], self._logits[left]

    def accept(self, id_: int) -> None:
        lib.llama_sampler_accept(self._chain, id_)

    def close(self) -> None:
        if self._chain:
            lib.llama_sampler_free(self._chain)
            self._chain = None


@lru_cache(maxsize=4)
def _all_ids(n_vocab: int) -> npt.NDArray[np.int32]:
    """For all chains; nothing writes to it."""
    return np.arange(n_vocab, dtype=np.int32)


def _make(stage: Stage, n_vocab: int, vocab: object) -> object:
    if isinstance(stage, LogitBias):
        entries = (lib.llama_logit_bias * len(stage.bias))(
            *(lib.llama_logit_bias(id_, value) for id_, value in stage.bias)
        )
        return lib.llama_sampler_init_logit_bias(n_vocab, len(stage.bias), entries)
    if stage.sampler.takes_vocab and lib.llama_vocab_eot(vocab) < 0 and lib.llama_vocab_eos(vocab) < 0:
        name = stage.sampler.name  # it would end the process where no other token is left
        raise NotSupportedError(f"samplers: {name} needs a token that ends answers, which this model lacks", "samplers")
    make = getattr(lib, stage.sampler.native)
    before = (n_vocab,) if stage.sampler.takes_n_vocab else (vocab,) if stage.sampler.takes_vocab else ()
    return make(*before, *stage.args, *stage.sampler.more)
