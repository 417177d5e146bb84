"""Owner of one context: KV of several sequences, decode with distinct errors, logits without copies. Must not know
which model drafts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from statistics import median
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Ints
from uad.base.common.cores import usable_cores
from uad.base.common.logits import Logits, Outputs
from uad.base.config import ModelConfig
from uad.base.errors import AbortedError, DecodeError, ModelLoadError, NoKvRoomError
from uad.base.types import READ_AGAIN, PlacedImage, Rows
from uad.llama import backend_sampling
from uad.llama.backend import abort, native, symbols
from uad.llama.backend.devices import has_cpu_kernels, offloads
from uad.llama.backend_sampling import BackendSampling
from uad.llama.hidden import HiddenRows
from uad.llama.kernels import use as kernels
from uad.llama.kernels.library import ACTIVATIONS, ATTENTION
from uad.llama.memory import TAIL_IDS, Memory, Way
from uad.llama.model import Model
from uad.llama.projector import Projector, decode_rows

_TIMED_STEPS = 9
_PROBED, _PROBED_TOP = 8, 40  # ids of a probe, and how many of the likeliest are compared
_NOISE = (
    "the {role} {path} computes no numbers (NaN), so what it writes is noise: its weights or its metadata (such as "
    "rope.freq_base) are damaged; --check-tensors looks into the weights"
)
_SHARED_OUT = ("f16", "f32")
_GRAIN_POSITIONS = 256  # positions of a sequence: contexts are made in such steps


class Context(native.Owner):
    """A context with n_seq sequences of n_ctx positions each, every one with its own KV stream (neighbours change no
    bit).
    """

    width = 0
    """Numbers of the hidden row that each id has besides; 0: ids alone are decoded."""

    def __init__(self, model: Model, config: ModelConfig, n_seq: int, role: str = "model") -> None:
        self._log = native.start()
        if 0 < config.n_seq < n_seq:  # which weights were rearranged depends on it
            raise ValueError(f"the {role} was loaded for {config.n_seq} sequences, not {n_seq}")
        self._role, self._config = role, config
        self._kernels = kernels.parts_of_passes(config)
        self.model = model
        self.vocab = model.vocab
        self.n_seq = n_seq
        self._handle: ctypes.c_void_p | None = self._open(model, config)
        self.n_ctx = int(lib.llama_n_ctx_seq(self._handle))
        self.n_batch = int(lib.llama_n_batch(self._handle))
        self.n_ubatch = int(lib.llama_n_ubatch(self._handle))
        on_cpu = has_cpu_kernels(config)
        self.computes_later = not on_cpu
        flash_attn, n_alike = attention(config, on_cpu=on_cpu)
        self.n_alike = min(self.n_ubatch, n_alike)
        self.n_vocab = model.info.n_vocab
        self.has_flash_attention = flash_attn != "off"
        self.rows_are_apart = _are_rows_apart(config, flash_attn, on_cpu)
        """Whether a single row of a sequence is computed as several are."""
        self._batch = Batch(self.n_batch, self.width)
        self._whole = _WholeRows(self._batch, self.n_vocab, role)
        self._interruption = _Interruption()
        self.interrupt = self._interruption.want
        self.hidden: HiddenRows | None = None  # kept for a head that reads them
        self._sampling: BackendSampling | None = None
        self.projector: Projector | None = None  # makes rows of images
        self.memory = Memory(
            self._handle, n_seq, model.n_swa, config.swa_full, config.n_checkpoints, config.checkpoint_step
        )
        self.keep, self.mark = self.memory.keep, self.memory.mark
        self.reach, self.take_back, self.clear = self.memory.reach, self.memory.take_back, self.memory.clear
        self._n_threads: tuple[int, int] | None = None  # as they were chosen, else those of its parameters
        self.notes: tuple[str, ...] = ()
        """Lines that say what is unusual."""
        is_noise = False

        def look(rows: Rows) -> None:
            nonlocal is_noise
            self.decode([rows])
            is_noise |= bool(rows.n_logits and np.isnan(self.logits()).any())

        try:
            self.add_adapters(model.adapters.scales)
            with abort.starting(f"{role} {model.path}"):
                self.memory.probe(look, self.logits)
                _begin_all(self)
                if is_noise:
                    self.notes += (_NOISE.format(role=role, path=model.path),)
                if config.backend_sampling:
                    backend_sampling.check()
                    has_top_k = self.memory.way is Way.POSITIONS and not self.memory.n_swa
                    self._sampling = BackendSampling(self._handle, self.n_vocab, n_seq, has_top_k)
                    note = "--backend-sampling: the likeliest tokens are found where the logits are computed"
                    if is_noise or not _finds_the_likeliest(self, self._sampling):
                        self._sampling.detach()
                        self._sampling = None
                        note = (
                            "--backend-sampling has no effect: llama.cpp does not find the tokens there that the host "
                            "finds"
                        )
                    self.notes += (note,)
        except BaseException:
            self.close()
            raise
        way = self.memory.way
        self.can_take_back = way is not Way.NOTHING
        """Whether drafts can be taken back, whatever that costs."""
        self.can_stop = way is Way.POSITIONS
        """Whether what was decoded of a batch that was interrupted can be taken back."""
        self.n_free = self.memory.n_free
        """Ids of a draft that can be taken back at no cost."""
        self.keep_ms = self.memory.keep_ms
        """Milliseconds that taking back more than these costs, beside decoding again the ids that were right."""
        self.tail = TAIL_IDS if self.memory.marks_help else 0
        """Ids at the end of a prompt that are decoded apart, since a mark before them helps later prompts; 0: it does
        not.
        """

    def _parameters(self, config: ModelConfig, n_ctx: int) -> Any:
        """llama.cpp's parameters of this context, of n_ctx positions in all."""
        return context_params(config, n_ctx, self.n_seq)

    @property
    def handle(self) -> ctypes.c_void_p:
        """llama.cpp's pointer to the context. Raises ValueError once it is closed."""
        if not self._handle:
            raise ValueError(f"the context of the {self._role} is closed")
        return self._handle

    def _open(self, model: Model, config: ModelConfig) -> ctypes.c_void_p:
        params = self._parameters(config, config.n_ctx or model.info.n_ctx_train)
        self._log.clear()
        with abort.starting(f"{self._role} {model.path}"):
            handle = lib.llama_init_from_model(model.handle, params)
        if not handle:
            raise ModelLoadError(
                f"{self._role} {model.path}: no context of {params.n_ctx} tokens "
                f"({self._log.reason() or 'out of memory?'}); "
                "try a smaller --ctx-size, or --flash-attn on where the KV cache is quantized"
            )
        return handle  # type: ignore[no-any-return]

    def add_adapters(self, scales: Sequence[float]) -> None:
        """Add so much of each of the model's adapters from now on. The KV's content is to be forgotten.

        Raises DecodeError.
        """
        self.model.adapters.add_to(self._handle, scales)
        self._scales = tuple(scales)

    def choose_threads(self, config: ModelConfig) -> None:
        """Without --threads, one or all cores, whichever decodes a single row faster: the threads of a tiny
        model mostly wait.

        Prompts are read with as many as was said, else with all cores.
        """
        cores = usable_cores()
        if config.n_threads or cores == 1:
            return
        seconds = {}
        for n_threads in (1, cores):
            lib.llama_set_n_threads(self._handle, n_threads, n_threads)
            times = []
            for i in range(_TIMED_STEPS):
                began = perf_counter()
                self.decode([Rows(0, i, (0,), 1)])
                times.append(perf_counter() - began)
            self.clear(0)
            seconds[n_threads] = median(times)
        self._n_threads = min(seconds, key=seconds.__getitem__), config.n_threads_batch or cores
        lib.llama_set_n_threads(self._handle, *self._n_threads)

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        """One batched decode. may_stop: `interrupt` ends it. Raises NoKvRoomError, AbortedError or DecodeError; after
        NoKvRoomError the KV is as before, after AbortedError it may hold some of the rows.
        """
        if may_stop:
            with self._interruption.of(self._handle):
                self.decode(rows)
            return
        batch = self._batch
        batch.clear()
        for row in rows:
            batch.add(row.seq, row.pos, row.ids, row.n_logits)
        if self.hidden is not None:
            self.hidden.ask(rows)
        if self._sampling is not None:
            self._sampling.attach(rows)
        seqs = [row.seq for row in rows]
        self.memory.states.begin(seqs)
        kernels.before_pass(self._kernels)
        self._check(int(lib.llama_decode(self._handle, batch.seal())), batch.n, seqs)
        for row in rows:
            self.memory.decoded(row)
        if self.hidden is not None:
            self.hidden.take(rows)

    def _check(self, code: int, n_rows: int, seqs: Sequence[int]) -> None:
        """Raises what llama.cpp's code of a decode of these sequences means."""
        if code == 0:
            return
        self.memory.states.failed(seqs, n_rows)
        if code == 1:
            raise NoKvRoomError(f"{self._role}: no KV room for {n_rows} rows")
        if code == 2:
            raise AbortedError(f"{self._role}: decode was aborted")
        raise DecodeError(
            f"{self._role}: llama_decode failed with code {code} ({self._log.reason() or 'no reason given'})"
        )

    def see(self, seq: int, placed: PlacedImage, n_done: int) -> int:
        """Decode rows of an image in this sequence, of which n_done were decoded: a pass of them, or all where they see
        each other. How many are done then. Raises what `decode` does.
        """
        assert self.projector is not None, "requests with images are refused where there is none"
        image = self.projector.rows(placed.image, placed.part)
        n = min(image.n - n_done, self.n_ubatch)
        if not image.is_causal and n < image.n:  # llama.cpp would end the process
            raise DecodeError(f"{self._role}: an image of {image.n} rows does not fit into a pass of {self.n_ubatch}")
        if self.hidden is not None:
            self.hidden.skip(seq, placed.start)
        if self._sampling is not None:
            self._sampling.attach(())
        self.memory.states.begin((seq,))
        kernels.before_pass(self._kernels)
        self._check(decode_rows(self.handle, seq, placed.start, image, n_done, n), n, (seq,))
        if n_done + n == image.n:
            self.memory.seen(seq, placed.start, placed.end)
        return n_done + n

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        """The rows that are left to decode: those that may have to be taken back get a checkpoint before them, where
        the memory needs one. Raises what decoding does.
        """
        left = []
        for row in rows:
            if self.memory.needs_checkpoint(row):
                # many rows that stay are decoded before the checkpoint, else they might be decoded again and again
                n_sure = len(row.ids) - max(row.n_unsure, row.n_logits)
                if n_sure > READ_AGAIN:
                    self.decode([Rows(row.seq, row.pos, row.ids[:n_sure], 0)])
                    row = Rows(row.seq, row.pos + n_sure, row.ids[n_sure:], row.n_logits, row.n_unsure)
                self.keep(row.seq)
            left.append(row)
        return left

    def want_likeliest(self, seq: int, n: int) -> None:
        """From now on the sampler of this sequence needs only the n likeliest ids of each row; 0: whole rows."""
        if self._sampling is not None:
            self._sampling.want(seq, n)

    def rows(self) -> Outputs:
        """The outputs that samplers draw from: of each row that wanted logits in the last decode, in batch order, the
        likeliest ids where the backend found them, else the whole row, as `logits` has it.
        """
        if self._sampling is None or not self._sampling.is_used:
            return self._whole.read(self._handle)
        sampled = self._sampling.rows(self._batch.outputs.tolist(), lambda: self._whole.read(self._handle))
        return self.logits() if sampled is None else sampled

    def logits(self) -> Logits:
        """All rows that wanted logits in the last decode, [n_outputs, n_vocab], in batch order; a view that the next
        decode overwrites. Rows that were sampled on the backend are decoded again. Raises what decoding does.
        """
        if self._sampling is not None and self._sampling.is_used:
            with self._sampling.decoded_again() as rows:
                for row in rows:
                    if self.take_back(row.seq, row.pos) != row.pos:
                        raise DecodeError(f"{self._role}: rows that were sampled cannot be decoded again")
                self.decode(rows)
        return self._whole.read(self._handle)

    def reopen(self) -> None:
        """Make a closed context again, as it was, with nothing in it; its model must be open. Raises ModelLoadError,
        and what decoding does.
        """
        if self._handle:
            return
        self._handle = self._open(self.model, self._config)
        try:
            self.memory.reopen(self._handle)
            if self._sampling is not None:
                self._sampling.reopen(self._handle)
            self._whole = _WholeRows(self._batch, self.n_vocab, self._role)
            if self._n_threads is not None:
                lib.llama_set_n_threads(self._handle, *self._n_threads)
            self.add_adapters(self._scales)
            _begin_all(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._handle:
            lib.llama_free(self._handle)
            self._handle = None
            self.memory.states.close()
            if self._sampling is not None:
                self._sampling.close()


def _begin_all(context: Context) -> None:
    """Each sequence holds something once, in order (see `memory`), which also warms the backend up."""
    context.decode([Rows(seq, 0, (0,), 1) for seq in range(context.n_seq)])
    for seq in range(context.n_seq):
        context.clear(seq)


def context_params(config: ModelConfig, n_ctx: int, n_seq: int) -> Any:
    """llama.cpp's parameters of a context of n_ctx positions in all, shared out among n_seq sequences."""
    params = lib.llama_context_default_params()
    params.n_ctx = max(
        n_ctx, _GRAIN_POSITIONS * n_seq
    )  # llama.cpp makes no fewer, but batches would have n_ctx rows at most
    params.n_batch = config.n_batch
    params.n_ubatch = min(config.n_ubatch, config.n_batch)
    params.n_seq_max = n_seq
    params.n_threads = config.n_threads or usable_cores()
    params.n_threads_batch = config.n_threads_batch or params.n_threads
    params.flash_attn_type = symbols.FLASH_ATTN_TYPES[attention(config, on_cpu=has_cpu_kernels(config))[0]]
    params.type_k = symbols.TYPES[config.type_k]
    params.type_v = symbols.TYPES[config.type_v]
    params.kv_unified = False
    if config.backend_sampling:
        backend_sampling.make_room(params)
    params.offload_kqv = config.kv_offload
    params.op_offload = config.op_offload
    params.swa_full = config.swa_full
    params.n_rs_seq = config.n_snapshots
    params.no_perf = True
    params.rope_scaling_type = symbols.ROPE_SCALING_TYPES[config.rope_scaling]
    params.rope_freq_base = config.rope_freq_base
    params.rope_freq_scale = config.rope_freq_scale
    params.yarn_orig_ctx = config.yarn_orig_ctx
    params.yarn_ext_factor = config.yarn_ext_factor
    params.yarn_attn_factor = config.yarn_attn_factor
    params.yarn_beta_fast = config.yarn_beta_fast
    params.yarn_beta_slow = config.yarn_beta_slow
    return params


def _finds_the_likeliest(context: Context, sampling: BackendSampling) -> bool:
    """Whether the backend finds what the host finds in the same rows. Takes three decodes of a few ids in sequences
    that are empty, then and afterwards.
    """
    ids = [(7919 * i + 13) % context.n_vocab for i in range(_PROBED)]
    rows = [Rows(seq, 0, ids, len(ids)) for seq in sorted({0, context.n_seq - 1})]
    whole: Logits = np.empty((0, context.n_vocab), np.float32)
    does_agree = True
    for n in (0, 1, _PROBED_TOP):
        for row in rows:
            context.want_likeliest(row.seq, n)
        context.decode(rows)
        if not n:
            whole = context.logits().copy()
        for output, expected in zip(context.rows(), whole, strict=True):
            if isinstance(output, tuple):
                likeliest, logits = output
                does_agree &= expected.argmax() in likeliest and (n == 1 or np.array_equal(expected[likeliest], logits))
            elif n == 1:
                does_agree = False
            elif n:  # the device cannot sort, or the model has 16-bit logits, which are often equal
                sampling.has_top_k = False
        for row in rows:
            context.want_likeliest(row.seq, 0)
            context.clear(row.seq)
    return does_agree


def attention(config: ModelConfig, on_cpu: bool) -> tuple[str, int]:
    """The flash attention setting, and up to how many rows of a sequence every pass gives a row the same bits.

    Attention of uad's kernels gives a row the same bits in any pass. llama.cpp's on the CPU has another kernel from 64
    rows on: the faster one for prompts, the slower one for drafts. Without flash attention a single row of a sequence
    is computed by another kernel than several: then even quantized weights need `--exact`.
    """
    if not on_cpu:
        return config.flash_attn, config.n_ubatch
    part, flash_attn = (ACTIVATIONS, "off") if config.flash_attn == "off" else (ATTENTION, "on")
    if part in kernels.certain_parts(config):
        return flash_attn, config.n_ubatch
    return ("off", 128) if config.flash_attn == "off" else ("on", 60)


def _are_rows_apart(config: ModelConfig, flash_attn: str, on_cpu: bool) -> bool:
    """See `Context.rows_are_apart`. llama.cpp's flash attention on CPUs shares out the cells of a single row among the
    threads from 512 cells on, where the cache is of floats: another sum than that of several rows.
    """
    if flash_attn == "off":
        return ACTIVATIONS in kernels.certain_parts(config)
    if not on_cpu or ATTENTION in kernels.certain_parts(config):
        return True
    has_one_thread = not offloads(config) and (config.n_threads or usable_cores()) == 1
    return has_one_thread or config.type_k != config.type_v or config.type_k not in _SHARED_OUT


class _Interruption:
    """Ends decodes of a context from other threads."""

    def __init__(self) -> None:
        self._stop = ctypes.create_string_buffer(2)

    def want(self, wanted: bool = True) -> None:
        """From any thread: decodes that may stop raise AbortedError, those to come too, until it is not wanted any
        more. On backends that cannot be interrupted (GPUs) nothing happens.
        """
        self._stop[0] = bytes([wanted])

    @contextmanager
    def of(self, context: ctypes.c_void_p | None) -> Iterator[None]:
        """A decode in this block may stop."""
        lib.llama_set_abort_callback(context, _is_set(), ctypes.addressof(self._stop))
        try:
            yield
        finally:
            lib.llama_set_abort_callback(context, lib.ggml_abort_callback(0), None)


@lru_cache(maxsize=1)
def _is_set() -> Any:
    """llama.cpp asks this before each operation: whether the first byte is set. The C library's strlen, since a Python
    function would wait there for the interpreter's lock.

    Of the two bytes of `_stop`, 0 0 has the length 0 (go on), and 1 0 the length 1 (stop).
    """
    return ctypes.cast(ctypes.CDLL(None if os.name != "nt" else "msvcrt").strlen, lib.ggml_abort_callback)


class Batch:
    """Up to `capacity` rows. A row is (id, position, sequence, wants logits); rows keep the order in which they were
    added. width: numbers of the hidden row that each has besides, `hidden`, in the same order (0: none). has_ids: False
    hands over no ids, but hidden rows alone.
    """

    def __init__(self, capacity: int, width: int = 0, has_ids: bool = True) -> None:
        self.capacity = capacity
        self._ids = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._n_seq = np.ones(capacity, np.int32)
        self._want = np.zeros(capacity, np.int8)
        self.hidden = np.zeros((capacity, width), np.float32) if width else None
        # llama.cpp wants one pointer per row to that row's list of sequences; each list has one entry here
        self._seq_pointers = self._seq.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        self.native = _native(self._ids, self._pos, self._n_seq, self._seq_pointers, self._want)
        if self.hidden is not None:
            self.native.embd = self.hidden.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if not has_ids:
            self.native.token = None
        self.n = 0
        self.n_outputs = 0

    def clear(self) -> None:
        self.n = 0
        self.n_outputs = 0

    def add(self, seq: int, pos: int, ids: Sequence[int] | Ints, n_logits: int) -> int:
        """Append ids of one sequence from position pos on; the last n_logits rows give logits. Returns the first one's
        output index.
        """
        n = len(ids)
        lo, hi = self.n, self.n + n
        if hi > self.capacity:
            raise ValueError(f"{hi} rows do not fit into a batch of {self.capacity}")
        if n == 1:  # of every plain round; slices take several times as long
            self._ids[lo], self._pos[lo], self._seq[lo], self._want[lo] = ids[0], pos, seq, n_logits
        else:
            self._ids[lo:hi] = ids
            self._pos[lo:hi] = np.arange(pos, pos + n, dtype=np.int32)
            self._seq[lo:hi] = seq
            self._want[lo : hi - n_logits] = 0
            self._want[hi - n_logits : hi] = 1
        first = self.n_outputs
        self.n = hi
        self.n_outputs += n_logits
        return first

    @property
    def outputs(self) -> Ints:
        """The rows that want logits, in order."""
        return np.flatnonzero(self._want[: self.n]).astype(np.int32)

    def seal(self) -> Any:
        """llama.cpp's batch of the rows added so far: always the same object, over the memory that `add` writes."""
        self.native.n_tokens = self.n
        return self.native


def _native(ids: Ints, pos: Ints, n_seq: Ints, seq_pointers: npt.NDArray[np.uint64], want: npt.NDArray[np.int8]) -> Any:
    int32 = ctypes.POINTER(ctypes.c_int32)
    batch: Any = lib.llama_batch()  # the binding declares its pointer fields as arrays
    batch.n_tokens = 0
    batch.token = ids.ctypes.data_as(int32)
    batch.embd = None
    batch.pos = pos.ctypes.data_as(int32)
    batch.n_seq_id = n_seq.ctypes.data_as(int32)
    batch.seq_id = seq_pointers.ctypes.data_as(ctypes.POINTER(int32))
    batch.logits = want.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
    return batch


class _WholeRows:
    """The logits of the rows of a batch that wanted them, where llama.cpp has them."""

    def __init__(self, batch: Batch, n_vocab: int, role: str) -> None:
        self._batch, self._n_vocab, self._role = batch, n_vocab, role
        self._viewed = 0, 0  # where the last view lies, and its rows
        self._view: Logits = np.empty((0, self._n_vocab), np.float32)

    def read(self, context: ctypes.c_void_p | None) -> Logits:
        """A view that the next decode overwrites, [n_outputs, n_vocab]. Raises DecodeError without logits."""
        pointer = lib.llama_get_logits(context)
        if not pointer:
            raise DecodeError(f"{self._role}: no logits after decode")
        address, n = ctypes.addressof(pointer.contents), self._batch.n_outputs
        # the same memory over and over: the view shows what the last decode wrote there
        if (address, n) != self._viewed:  # llama.cpp rarely moves its buffer, and making a view takes microseconds
            flat = (ctypes.c_float * (n * self._n_vocab)).from_address(address)
            self._view = np.frombuffer(flat, np.float32).reshape(n, self._n_vocab)  # type: ignore[call-overload]
            self._viewed = address, n
        return self._view
