"""The greedy answer to a prompt with images, by llama.cpp's own loop over its own chunks: what uad is compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import llama_cpp.mtmd_cpp as mtmd

from uad.base.config import ModelConfig
from uad.base.types import IMAGE_PLACE, Image
from uad.llama.backend import native
from uad.llama.context import context_params
from uad.llama.model import model_params


def greedy_answer(
    config: ModelConfig, projector: Path, prompt: str, images: Sequence[Image], n: int
) -> tuple[list[int], int]:
    """The ids of the answer, and how many tokens the prompt has."""
    log = native.start()
    mtmd.mtmd_helper_log_set(log.callback, None)
    model = lib.llama_model_load_from_file(str(config.path).encode(), model_params(config))
    params = mtmd.mtmd_context_params_default()
    params.n_threads = config.n_threads
    params.flash_attn_type = 1
    params.media_marker = IMAGE_PLACE.encode()
    seer = mtmd.mtmd_init_from_file(str(projector).encode(), model, params)
    assert seer, log.reason()
    context = lib.llama_init_from_model(model, context_params(config, config.n_ctx, 1))
    chunks = mtmd.mtmd_input_chunks_init()
    bitmaps = [
        mtmd.mtmd_bitmap_init(
            one.width, one.height, ctypes.cast(ctypes.c_char_p(one.rgb), ctypes.POINTER(ctypes.c_uint8))
        )
        for one in images
    ]
    try:
        data = prompt.encode()
        text = mtmd.mtmd_input_text(data, len(data), True, True)
        handles = (ctypes.c_void_p * len(bitmaps))(*bitmaps)
        assert not mtmd.mtmd_tokenize(seer, chunks, ctypes.byref(text), handles, len(bitmaps))
        n_past = ctypes.c_int32()
        assert not mtmd.mtmd_helper_eval_chunks(seer, context, chunks, 0, 0, config.n_batch, True, ctypes.byref(n_past))
        ids = [_likeliest(context, model)]
        for pos in range(n_past.value, n_past.value + n - 1):
            ids.append(_next(context, model, ids[-1], pos))
        return ids, int(mtmd.mtmd_helper_get_n_tokens(chunks))
    finally:
        mtmd.mtmd_input_chunks_free(chunks)
        for bitmap in bitmaps:
            mtmd.mtmd_bitmap_free(bitmap)
        lib.llama_free(context)
        mtmd.mtmd_free(seer)
        lib.llama_model_free(model)


def _next(context: Any, model: Any, id_: int, pos: int) -> int:
    batch: Any = lib.llama_batch_init(1, 0, 1)
    batch.n_tokens = 1
    batch.token[0], batch.pos[0], batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = id_, pos, 1, 0, 1
    assert not lib.llama_decode(context, batch)
    lib.llama_batch_free(batch)
    return _likeliest(context, model)


def _likeliest(context: Any, model: Any) -> int:
    n = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    row = lib.llama_get_logits_ith(context, -1)
    return max(range(n), key=row.__getitem__)
