"""Sampling on the backend: the likeliest ids of rows are found where the logits are computed, so that rows of 150,000
logits need not be copied to the host. Draws nothing: the draw is the sampler's, keyed by position.

llama.cpp attaches a chain of samplers to a sequence, and its nodes become part of the graph. Two chains are used: the
first of the highest logits (greedy requests), and the `top_k` highest with their logits (requests that begin with
top_k). While a sequence has a chain its whole rows are not copied, so a row that needs to be whole is decoded again.

llama.cpp's own greedy sampler is no use here. It copies the whole row as well, and of equal logits ggml's argmax takes
the last one on CPUs and any on CUDA, where the host takes the first. So the argmax is a sampler of ours, made of ggml's
operations. For the logits 1 7 3 7 with the highest, 7, at the places 1 and 3:

    logit - highest         -6     0      -4     0
    its sign                -1     0      -1     0
    minus place / 8         -1     -1/8   -1 1/4 -3/8      the highest of these is unique: place 1
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_void_p
from functools import cache
from typing import Any

import llama_cpp.llama_cpp as binding
import numpy as np

from uad.base.common.logits import Likeliest, Logits, Outputs
from uad.base.errors import ConfigError
from uad.base.types import Rows
from uad.llama.backend import ggml, native, symbols

MOST_ROWS = 64
"""Rows of a sequence in one decode whose ids are found so. Where it has more, as echoed prompts do, all are whole."""
_FEWEST, _MOST = 64, 1024  # ids that top_k finds: more than any usual top_k, and few beside a whole row
_OFTEN = 0.02  # share of rows decoded again from which on top_k costs more than it saves
_MANY = 256  # rows, before that share is believed
_log = logging.getLogger("uad.llama")


def check() -> None:
    """Raises ConfigError where the installed llama.cpp lacks a name that this needs."""
    lacking = [*symbols.missing_for_sampling(binding), *(name for name in symbols.SAMPLING_GGML if not ggml.has(name))]
    if lacking:
        raise ConfigError(
            f"--backend-sampling: llama-cpp-python {native.build_info()} lacks {', '.join(lacking)}; leave the flag out"
        )


def make_room(params: Any) -> None:
    """For chains in the context that these parameters are for."""
    params.n_outputs_max_per_seq = min(MOST_ROWS, params.n_batch)


class BackendSampling:
    """Which sequences of a context have a chain, and what the chains found in the last decode.

    has_top_k: whether rows can be decoded again, which `top_k` needs where logits are equal.
    """

    def __init__(self, context: c_void_p, n_vocab: int, n_seq: int, has_top_k: bool) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self.has_top_k = has_top_k
        self._wanted = [0] * n_seq
        """How many of the likeliest ids each sequence's sampler needs: 0 for whole rows."""
        self._chains: dict[int, tuple[int, Any]] = {}
        """By sequence: how many ids its chain finds, and the chain."""
        self._decoded: Sequence[Rows] = ()
        """The rows of the last decode."""
        self._are_whole = False
        self._n_found = self._n_again = 0

    def want(self, seq: int, n: int) -> None:
        """From the next decode on."""
        self._wanted[seq] = n

    def attach(self, rows: Sequence[Rows]) -> None:
        """Before these rows are decoded; none: before those of an image."""
        self._decoded = rows
        for row in rows:
            if row.n_logits:
                n = 0 if self._are_whole or row.n_logits > MOST_ROWS else self._n_of_chain(self._wanted[row.seq])
                if n != self._chains.get(row.seq, (0, None))[0]:
                    self._exchange(row.seq, n)

    @property
    def is_used(self) -> bool:
        """Whether some rows of the last decode were sampled instead of copied."""
        return any(row.n_logits > 0 and row.seq in self._chains for row in self._decoded)

    def rows(self, places: Sequence[int], whole: Callable[[], Logits]) -> Outputs | None:
        """The likeliest ids of each row of the last decode that wants logits, or the row itself; None where one that
        was sampled must be whole. places: of these rows in the batch.
        """
        outputs: list[Logits | Likeliest] = []
        for row in self._decoded:
            of_row = places[len(outputs) : len(outputs) + row.n_logits]
            if row.seq not in self._chains:
                outputs += [*whole()[len(outputs) : len(outputs) + row.n_logits]] if of_row else []
            elif of_row:
                if (likeliest := self.likeliest(row, of_row)) is None:
                    return None
                outputs += likeliest
        return outputs

    def likeliest(self, rows: Rows, at: Sequence[int]) -> list[Likeliest] | None:
        """The likeliest ids of the rows at these places of the batch; None where a row must be whole."""
        if self._chains[rows.seq][0] == 1:
            ids = [int(binding.llama_get_sampled_token_ith(self._context, i)) for i in at]
            return [(np.array([id_]), np.zeros(1, np.float32)) for id_ in ids] if min(ids) >= 0 else None
        self._n_found += len(at)
        likeliest = [self._top(i, self._wanted[rows.seq]) for i in at]
        return None if None in likeliest else [ids for ids in likeliest if ids is not None]

    @contextmanager
    def decoded_again(self) -> Iterator[Sequence[Rows]]:
        """The rows of the last decode, to be decoded once more in this block: they come whole then. Where equal logits
        are common (16-bit ones), top_k stops.
        """
        self._n_again += 1
        if self._n_found >= _MANY and self._n_again > _OFTEN * self._n_found and self.has_top_k:
            self.has_top_k = False
            _log.warning("--backend-sampling: logits are often equal, so top_k is left to the host from now on")
        self._are_whole = True
        try:
            yield self._decoded
        finally:
            self._are_whole = False

    def detach(self) -> None:
        """All rows are whole again."""
        for seq in list(self._chains):
            self._exchange(seq, 0)

    def reopen(self, context: c_void_p) -> None:
        """The context was made again, after `close`; no sequence has a chain."""
        self._context = context
        self._decoded = ()

    def close(self) -> None:
        """Free the chains. Only once the context is freed."""
        for _, chain in self._chains.values():
            binding.llama_sampler_free(chain)
        self._chains.clear()

    def _n_of_chain(self, n: int) -> int:
        """How many ids the chain finds where n are needed; 0: none does. One more than n shows whether logits at the
        edge are equal. Few sizes, so that requests with another top_k can often keep the chain: to exchange it costs
        milliseconds.
        """
        if n <= 1:
            return n
        size = max(_FEWEST, 1 << n.bit_length())
        return size if self.has_top_k and size <= min(_MOST, self._n_vocab - 1) else 0

    def _exchange(self, seq: int, n: int) -> None:
        _, before = self._chains.pop(seq, (0, None))
        chain = _chain(n) if n else None
        if not binding.llama_set_sampler(
            self._context, seq, chain
        ):  # tensors split over devices cannot be sampled there
            binding.llama_set_sampler(self._context, seq, None)
            binding.llama_sampler_free(chain)
            self._wanted[seq] = 0
        elif chain is not None:
            self._chains[seq] = n, chain
        if before is not None:
            binding.llama_sampler_free(before)

    def _top(self, i: int, n: int) -> Likeliest | None:
        """The ids that top_k found for the row at this place of the batch, in no order. None where it found none, or
        where logits among the first n + 1 are equal: then which of them the host would keep is up to its own sort.
        """
        size = int(binding.llama_get_sampled_candidates_count_ith(self._context, i))
        if size <= n:
            return None
        ids = _copy(binding.llama_get_sampled_candidates_ith(self._context, i), size, np.int32)
        logits: Logits = _copy(binding.llama_get_sampled_logits_ith(self._context, i), size, np.float32)
        best = np.sort(logits)[: -(n + 2) : -1]
        return (ids, logits) if (best[:-1] > best[1:]).all() else None


def _copy(pointer: Any, n: int, kind: Any) -> Any:
    return np.array(np.ctypeslib.as_array(pointer, (n,)), kind)


def _chain(n: int) -> Any:
    """A chain that finds the n likeliest ids. Close it."""
    params = binding.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = binding.llama_sampler_chain_init(params)
    sampler = (
        binding.llama_sampler_init(ctypes.byref(_argmax()), None) if n == 1 else binding.llama_sampler_init_top_k(n)
    )
    binding.llama_sampler_chain_add(chain, sampler)
    return chain


@cache
def _argmax() -> Any:
    """The functions of our sampler, kept as long as the process lives: graphs point to them.

    llama.cpp calls `build` when it makes a graph for another number of rows, once for each row: 5 microseconds.
    """
    n_elements = ggml.function("ggml_nelements")
    # each adds a tensor to a graph's context, which comes first
    argmax, get_rows = ggml.function("ggml_argmax"), ggml.function("ggml_get_rows")
    column, first_of = ggml.function("ggml_reshape_2d"), ggml.function("ggml_view_1d")
    minus, sign, range_ = ggml.function("ggml_sub"), ggml.function("ggml_sgn"), ggml.function("ggml_arange")

    def build(_sampler: object, graph: int, _nodes: object, data: Any) -> None:
        logits = data.contents.logits
        n = n_elements(logits)
        highest = get_rows(graph, column(graph, logits, 1, n), argmax(graph, logits))
        # a power of two, so that all places / size are exact, and differ
        size = 1 << n.bit_length()
        places = first_of(graph, range_(graph, 0.0, 1.0, 1.0 / size), n, 0)
        data.contents.sampled = argmax(graph, minus(graph, sign(graph, minus(graph, logits, highest)), places))
        data.contents.logits = None  # else the whole row would be copied

    functions = binding.llama_sampler_i()
    functions.name = binding.llama_sampler_i_name(lambda _: b"first-of-highest")
    functions.backend_init = binding.llama_sampler_i_backend_init(lambda *_: True)
    functions.backend_apply = binding.llama_sampler_i_backend_apply(build)
    return functions
