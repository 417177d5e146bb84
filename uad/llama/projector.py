"""Owner of a projector (mmproj), which makes rows of embeddings of images. Knows no request and no sequence.

Layouts may be asked for on any thread; rows are made on the model's.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from uad.base.common.arrays import Floats, Ints
from uad.base.config import ModelConfig, VisionConfig
from uad.base.errors import ConfigError, DecodeError, InvalidRequestError, ModelLoadError, UnavailableError
from uad.base.gguf import GgufFile
from uad.base.model_files import check_file
from uad.base.types import IMAGE_PLACE, Image
from uad.base.types.images import ImagePart, placeholders
from uad.llama.backend import abort, native, symbols
from uad.llama.backend.devices import used
from uad.llama.model import Model

_BY_PLACE = frozenset({"deepseek4v", "hunyuanvl"})
"""Projectors whose rows or positions depend on where an image stands in the prompt."""
_MARKER = IMAGE_PLACE.encode()
"""Stands for the image in a text that holds nothing else."""
_LAYOUTS = 512  # layouts that are remembered; each is a few hundred numbers
_HELD_BYTES = 64 << 20  # of rows that were made and may be wanted again


@dataclass(frozen=True, slots=True)
class ImageRows:
    """Rows of embeddings, [n, width], and their positions in an image that begins at 0: [1, n], or [4, n] where they
    have several dimensions; those of an image that begins at p are `positions + p * moving`. Where they are not causal,
    each row sees all of them.
    """

    rows: Floats
    positions: Ints
    moving: Ints
    is_causal: bool

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.rows)


@cache
def _binding() -> ModuleType:
    """The binding's module of images. Raises ConfigError where it lacks one, or names."""
    try:
        module = importlib.import_module("llama_cpp.mtmd_cpp")
    except (ImportError, AttributeError, OSError, FileNotFoundError):
        raise ConfigError(
            f"--mmproj: llama-cpp-python {native.build_info()} was built without its library for images (libmtmd)"
        ) from None
    if missing := ", ".join(symbols.missing_for_images(module)):
        raise ConfigError(f"--mmproj: llama-cpp-python {native.build_info()} lacks {missing}, which images need")
    return module


def check_projector(path: Path) -> None:
    """Raises ModelLoadError unless the file holds a projector for images that this server can use."""
    check_file(path, "mmproj")
    with GgufFile(path) as file:
        arch = file.text("general.architecture") or "unknown"
        kind = file.text("clip.projector_type") or file.text("clip.vision.projector_type") or ""
    if arch not in ("clip", "mmproj"):
        raise ModelLoadError(f"mmproj {path}: a model of the architecture {arch}, and no projector (mmproj) beside one")
    if not _binding().mtmd_get_cap_from_file(os.fsencode(path)).inp_vision:
        raise ModelLoadError(f"mmproj {path}: it has no encoder for images; sound is not supported")
    if kind in _BY_PLACE:
        raise ModelLoadError(
            f"mmproj {path}: images of the kind {kind} depend on their place in the prompt, which uad does not support"
        )


class Projector(native.Owner):
    """A projector for a loaded model, which has to stay loaded as long. Use with `with`, or call `close()`. config: how
    the model was loaded.

    Raises ModelLoadError for a file that is no projector, or not one of this model; ConfigError where the binding lacks
    images.
    """

    def __init__(self, model: Model, vision: VisionConfig, config: ModelConfig, n_threads: int) -> None:
        assert vision.path is not None
        self._log = native.start()
        self._mtmd = _binding()
        self.path = vision.path
        self._model, self._vision, self._config, self._n_threads = model, vision, config, n_threads
        self._handle: Any = None
        self._lock = threading.Lock()
        self._mtmd.mtmd_helper_log_set(self._log.callback, None)
        check_projector(vision.path)
        self.reopen()
        self.has_planes = bool(self._mtmd.mtmd_decode_use_mrope(self._handle))
        """Whether positions have several dimensions."""
        self.is_causal = not self._mtmd.mtmd_decode_use_non_causal(self._handle, None)
        """Whether a row of an image sees only those before it."""
        self._width = int(lib.llama_model_n_embd_inp(model.handle))
        self._layouts: OrderedDict[str, tuple[ImagePart, ...]] = OrderedDict()
        self._made: OrderedDict[tuple[str, int], ImageRows] = OrderedDict()

    def reopen(self) -> None:
        """Load it, unless it is loaded; after `close` as it was before. The model must be loaded. Raises
        ModelLoadError.
        """
        if self._handle:
            return
        vision, config = self._vision, self._config
        params = self._mtmd.mtmd_context_params_default()
        params.use_gpu = vision.offload and config.devices != ()
        if params.use_gpu and config.devices:
            params.device = used(config)[0].handle
        params.print_timings = False
        params.media_marker = _MARKER
        params.n_threads = self._n_threads
        params.flash_attn_type = symbols.FLASH_ATTN_TYPES[config.flash_attn]
        params.image_min_tokens = vision.min_tokens or -1
        params.image_max_tokens = vision.max_tokens or -1
        self._log.clear()
        with abort.starting(f"mmproj {self.path}"):
            self._handle = self._mtmd.mtmd_init_from_file(os.fsencode(self.path), self._model.handle, params)
        if not self._handle:
            reason = (self._log.reason() or "no reason given").splitlines()[0]
            raise ModelLoadError(
                f"mmproj {self.path}: llama.cpp cannot use it with {self._model.path.name} ({reason}); give the mmproj "
                "file of the same model"
            )

    # --- from any thread

    def layout(self, image: Image) -> tuple[ImagePart, ...]:
        """The parts that stand for an image in a prompt: its slices, and the ids of text around them. Raises
        InvalidRequestError for one that the projector cannot take, UnavailableError once it is closed.
        """
        with self._lock:
            if (known := self._layouts.get(image.digest)) is not None:
                self._layouts.move_to_end(image.digest)
                return known
            if not self._handle:
                raise UnavailableError("the server is shutting down")
            with self._chunks(image) as chunks:
                parts = tuple(self._part(image, i, chunk) for i, chunk in enumerate(chunks))
            self._layouts[image.digest] = parts
            if len(self._layouts) > _LAYOUTS:
                self._layouts.popitem(last=False)
        return parts

    def _part(self, image: Image, i: int, chunk: Any) -> ImagePart:
        mtmd = self._mtmd
        if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
            n = ctypes.c_size_t()
            ids = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(n))
            return ImagePart(tuple(int(ids[k]) for k in range(n.value)))
        n_positions = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        return ImagePart(placeholders(image.digest, i, n_positions), int(mtmd.mtmd_input_chunk_get_n_tokens(chunk)))

    @contextmanager
    def _chunks(self, image: Image) -> Iterator[list[Any]]:
        """The chunks that llama.cpp makes of an image: text, and embeddings to be."""
        mtmd = self._mtmd
        rgb = image.rgb  # held until llama.cpp has a copy, whoever frees it meanwhile
        if len(rgb) != 3 * image.width * image.height or not rgb:
            raise InvalidRequestError(f"an image of {image.width} x {image.height} pixels has other bytes", "images")
        pixels = ctypes.cast(ctypes.c_char_p(rgb), ctypes.POINTER(ctypes.c_uint8))
        bitmap = mtmd.mtmd_bitmap_init(image.width, image.height, pixels)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            text = mtmd.mtmd_input_text(_MARKER, len(_MARKER), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if code := int(mtmd.mtmd_tokenize(self.handle, chunks, ctypes.byref(text), bitmaps, 1)):
                raise InvalidRequestError(
                    f"an image of {image.width} x {image.height} pixels cannot be read by this model's projector "
                    f"(code {code})",
                    "images",
                )
            n = int(mtmd.mtmd_input_chunks_size(chunks))
            yield [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(n)]
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)

    # --- on the model thread

    @property
    def handle(self) -> Any:
        """llama.cpp's pointer. Raises ValueError once it is closed."""
        if not self._handle:
            raise ValueError(f"the projector {self.path} is closed")
        return self._handle

    def rows(self, image: Image, part: int) -> ImageRows:
        """The rows of a slice of an image, which are made where they are not held. Raises DecodeError."""
        if (held := self._made.get((image.digest, part))) is not None:
            self._made.move_to_end((image.digest, part))
            return held
        with self._chunks(image) as chunks:
            made = self._encoded(chunks[part])
        self._made[image.digest, part] = made
        while len(self._made) > 1 and sum(image.rows.nbytes for image in self._made.values()) > _HELD_BYTES:
            self._made.popitem(last=False)
        return made

    def _encoded(self, chunk: Any) -> ImageRows:
        mtmd = self._mtmd
        n = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        self._log.clear()
        if int(mtmd.mtmd_encode_chunk(self.handle, chunk)):
            raise DecodeError(f"an image could not be encoded ({self._log.reason() or 'no reason given'})")
        address = ctypes.cast(mtmd.mtmd_get_output_embd(self.handle), ctypes.c_void_p).value
        if address is None:
            raise DecodeError("an image was encoded to nothing")
        flat = (ctypes.c_float * (n * self._width)).from_address(address)
        rows = np.frombuffer(flat, np.float32).reshape(n, self._width).copy()  # type: ignore[call-overload]
        is_causal = not mtmd.mtmd_decode_use_non_causal(self.handle, chunk)
        if not self.has_planes:
            return ImageRows(rows, np.arange(n, dtype=np.int32)[None], np.ones((1, 1), np.int32), is_causal)
        positions = self._positions(chunk, n, 0)
        return ImageRows(rows, positions, self._positions(chunk, n, 1)[:, :1] - positions[:, :1], is_causal)

    def _positions(self, chunk: Any, n: int, first: int) -> Ints:
        """Positions of an image that begins at `first`. The order of dimensions is that of llama.cpp's batches."""
        positions = (self._mtmd.mtmd_decoder_pos * n)()
        tokens = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        self._mtmd.mtmd_helper_image_get_decoder_pos(tokens, first, positions)
        return np.array([[getattr(position, axis) for position in positions] for axis in "tyxz"], np.int32)

    def close(self) -> None:
        with self._lock:  # no layout is being made
            if self._handle:
                self._mtmd.mtmd_free(self._handle)
                self._handle = None
                self._made.clear()


def decode_rows(context: ctypes.c_void_p, seq: int, pos: int, image: ImageRows, first: int, n: int) -> int:
    """Decode n rows of an image that begins at position `pos`, from its row `first` on; returns llama.cpp's code."""
    int32 = ctypes.POINTER(ctypes.c_int32)
    rows = np.ascontiguousarray(image.rows[first : first + n])
    positions = np.ascontiguousarray(image.positions[:, first : first + n] + pos * image.moving, np.int32)
    seqs, counts, want = np.full(n, seq, np.int32), np.ones(n, np.int32), np.zeros(n, np.int8)
    pointers = seqs.ctypes.data + 4 * np.arange(n, dtype=np.uint64)
    batch: Any = lib.llama_batch()
    batch.n_tokens, batch.token = n, None
    batch.embd = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    batch.pos = positions.ctypes.data_as(int32)
    batch.n_seq_id = counts.ctypes.data_as(int32)
    batch.seq_id = pointers.ctypes.data_as(ctypes.POINTER(int32))
    batch.logits = want.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
    if not image.is_causal:
        lib.llama_set_causal_attn(context, False)
    try:
        return int(lib.llama_decode(context, batch))
    finally:
        if not image.is_causal:
            lib.llama_set_causal_attn(context, True)
