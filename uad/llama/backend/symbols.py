"""Facts of llama.cpp that the rooms of `llama/` rely on: names and fields of its binding, so that `native.start` can
say what an installed version lacks; functions of ggml with their signatures; structures and numbers of C.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from typing import Any

from uad.base.common.samplers import SAMPLERS

VERSIONS = ">=0.3.36,<0.4"
"""Versions of llama-cpp-python, as in pyproject.toml."""

SYMBOLS = (
    "ggml_abort_callback",
    "llama_adapter_get_alora_n_invocation_tokens",
    "llama_adapter_lora_init",
    "llama_adapter_lora_p_ctypes",
    "llama_adapter_meta_val_str",
    "llama_backend_init",
    "llama_batch",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_embeddings",
    "llama_get_embeddings_seq",
    "llama_get_logits",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_callback",
    "llama_log_set",
    "llama_logit_bias",
    "llama_max_devices",
    "llama_memory_clear",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_pos_min",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_desc",
    "llama_model_free",
    "llama_model_ftype",
    "llama_model_get_vocab",
    "llama_model_has_decoder",
    "llama_model_has_encoder",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_kv_override",
    "llama_model_load_from_file",
    "llama_model_meta_val_str",
    "llama_model_n_cls_out",
    "llama_model_n_ctx_train",
    "llama_model_n_embd",
    "llama_model_n_embd_inp",
    "llama_model_n_embd_out",
    "llama_model_n_params",
    "llama_model_n_swa",
    "llama_model_quantize",
    "llama_model_quantize_default_params",
    "llama_model_size",
    "llama_n_batch",
    "llama_n_ctx_seq",
    "llama_n_rs_seq",
    "llama_n_ubatch",
    "llama_numa_init",
    "llama_pooling_type",
    "llama_print_system_info",
    "llama_progress_callback",
    "llama_sampler_accept",
    "llama_sampler_apply",
    "llama_sampler_chain_add",
    "llama_sampler_chain_default_params",
    "llama_sampler_chain_init",
    "llama_sampler_free",
    "llama_sampler_init_logit_bias",
    "llama_set_abort_callback",
    "llama_set_adapters_lora",
    "llama_set_causal_attn",
    "llama_set_n_threads",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_get_size_ext",
    "llama_state_seq_set_data_ext",
    "llama_supports_gpu_offload",
    "llama_token_data",
    "llama_token_data_array",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_eot",
    "llama_vocab_fim_mid",
    "llama_vocab_fim_pre",
    "llama_vocab_fim_rep",
    "llama_vocab_fim_sep",
    "llama_vocab_fim_suf",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_add_eos",
    "llama_vocab_get_add_sep",
    "llama_vocab_get_attr",
    "llama_vocab_get_text",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
    "llama_vocab_sep",
    "llama_vocab_type",
)
"""Functions and structures of the binding that are written out in these rooms."""

CONSTRUCTORS = tuple(sampler.native for sampler in SAMPLERS if sampler.native)
"""Constructors of samplers, which the table of samplers names."""

FIELDS = {
    "llama_context_params": (
        "embeddings",
        "flash_attn_type",
        "kv_unified",
        "n_batch",
        "n_ctx",
        "n_outputs_max",
        "n_rs_seq",
        "n_seq_max",
        "n_threads",
        "n_threads_batch",
        "n_ubatch",
        "no_perf",
        "offload_kqv",
        "op_offload",
        "pooling_type",
        "rope_freq_base",
        "rope_freq_scale",
        "rope_scaling_type",
        "swa_full",
        "type_k",
        "type_v",
        "yarn_attn_factor",
        "yarn_beta_fast",
        "yarn_beta_slow",
        "yarn_ext_factor",
        "yarn_orig_ctx",
    ),
    "llama_model_params": (
        "check_tensors",
        "devices",
        "kv_overrides",
        "load_mode",
        "n_gpu_layers",
        "no_alloc",
        "no_host",
        "tensor_buft_overrides",
        "progress_callback",
        "tensor_split",
        "use_extra_bufts",
        "vocab_only",
    ),
    "llama_sampler_chain_params": ("no_perf",),
}
"""Fields of parameter structures that are set. To set one that is missing would be no error: ctypes takes any name, and
nothing reads it.
"""


HEAD_NAMES = ("LLAMA_CONTEXT_TYPE_MTP", "llama_model_n_embd_out")
HEAD_FIELDS = {"llama_context_params": ("ctx_other", "ctx_type"), "llama_model_params": ("load_mtp",)}
HEAD_EXTENSION = ("llama_get_embeddings_nextn", "llama_set_embeddings_nextn")
"""Names and fields that heads need, of the binding and of its module of experimental functions. Without them nothing
else is missed.
"""


IMAGE_NAMES = (
    "MTMD_INPUT_CHUNK_TYPE_TEXT",
    "mtmd_bitmap_free",
    "mtmd_bitmap_init",
    "mtmd_context_params_default",
    "mtmd_decode_use_mrope",
    "mtmd_decode_use_non_causal",
    "mtmd_decoder_pos",
    "mtmd_encode_chunk",
    "mtmd_free",
    "mtmd_get_cap_from_file",
    "mtmd_get_output_embd",
    "mtmd_helper_image_get_decoder_pos",
    "mtmd_helper_log_set",
    "mtmd_init_from_file",
    "mtmd_input_chunk_get_n_pos",
    "mtmd_input_chunk_get_n_tokens",
    "mtmd_input_chunk_get_tokens_image",
    "mtmd_input_chunk_get_tokens_text",
    "mtmd_input_chunk_get_type",
    "mtmd_input_chunks_free",
    "mtmd_input_chunks_get",
    "mtmd_input_chunks_init",
    "mtmd_input_chunks_size",
    "mtmd_input_text",
    "mtmd_tokenize",
)
IMAGE_FIELDS = {
    "mtmd_context_params": (
        "device",
        "flash_attn_type",
        "image_max_tokens",
        "image_min_tokens",
        "n_threads",
        "print_timings",
        "use_gpu",
    ),
    "mtmd_input_text": ("text_len",),
}
"""Names and fields that images need, of the binding's module for them."""


SAMPLING_NAMES = (
    "llama_get_sampled_candidates_count_ith",
    "llama_get_sampled_candidates_ith",
    "llama_get_sampled_logits_ith",
    "llama_get_sampled_token_ith",
    "llama_sampler_i_backend_apply",
    "llama_sampler_i_backend_init",
    "llama_sampler_i_name",
    "llama_sampler_init",
    "llama_set_sampler",
)
SAMPLING_FIELDS = {"llama_context_params": ("n_outputs_max_per_seq",)}
SAMPLING_GGML = (
    "ggml_arange",
    "ggml_argmax",
    "ggml_get_rows",
    "ggml_nelements",
    "ggml_reshape_2d",
    "ggml_sgn",
    "ggml_sub",
    "ggml_view_1d",
)
"""Names and fields of the binding that `--backend-sampling` needs; it needs functions of ggml, too, in `GGML`."""


TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "i32": 26, "bf16": 30}
"""ggml's numbers of types: those of KV caches that llama-server offers, and those of tensors that are made here."""
CPU_DEVICE = 0
"""ggml's number of the kind of device."""
WEIGHTS = 1
"""ggml's number of what a buffer is used for."""
NUMA_STRATEGIES = {"distribute": 1, "isolate": 2, "numactl": 3}
ROPE_SCALING_TYPES = {"": -1, "none": 0, "linear": 1, "yarn": 2}
FLASH_ATTN_TYPES = {"auto": -1, "off": 0, "on": 1}


class InitParams(ctypes.Structure):
    """ggml_init_params, which is passed by value.

    Processes of their own use it (`amx.py`, `rearranging.py`). A server does so beside uad's kernels only, which
    `kernels/proof.py` has tried with it.
    """

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class TensorPlace(ctypes.Structure):
    """llama.cpp's pair of a pattern and a buffer; one without a pattern ends a list.

    `placing.py` tries it in a process of its own before a server hands any over (`placement.is_understood`).
    """

    _fields_ = (("pattern", c_char_p), ("buffer", c_void_p))


class NativeTensor(ctypes.Structure):
    """ggml_tensor, as far as it is read. Only a process of its own reads it, `rearranging.py`, which tries it first
    (`can_look`).
    """

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
    )


AbortCallback = CFUNCTYPE(None, c_char_p)
_P, _SIZES = c_void_p, POINTER(c_int64)
GGML: Mapping[str, tuple[Any, ...]] = {
    "_Z19llama_graph_reserveP13llama_contextjjj": (_P, _P, c_uint32, c_uint32, c_uint32),
    "ggml_arange": (_P, _P, c_float, c_float, c_float),
    "ggml_argmax": (_P, _P, _P),
    "ggml_backend_alloc_ctx_tensors": (_P, _P, _P),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_P, _P, _P),
    "ggml_backend_buffer_free": (None, _P),
    "ggml_backend_buffer_get_type": (_P, _P),
    "ggml_backend_buffer_get_usage": (c_int, _P),
    "ggml_backend_buffer_is_host": (c_bool, _P),
    "ggml_backend_buffer_set_usage": (None, _P, c_int),
    "ggml_backend_buft_alloc_buffer": (_P, _P, c_size_t),
    "ggml_backend_buft_get_alloc_size": (c_size_t, _P, _P),
    "ggml_backend_buft_name": (c_char_p, _P),
    "ggml_backend_cpu_buffer_from_ptr": (_P, _P, c_size_t),
    "ggml_backend_dev_backend_reg": (_P, _P),
    "ggml_backend_dev_buffer_type": (_P, _P),
    "ggml_backend_dev_by_type": (_P, c_int),
    "ggml_backend_dev_count": (c_size_t,),
    "ggml_backend_dev_description": (c_char_p, _P),
    "ggml_backend_dev_get": (_P, c_size_t),
    "ggml_backend_dev_init": (_P, _P, c_char_p),
    "ggml_backend_dev_memory": (None, _P, POINTER(c_size_t), POINTER(c_size_t)),
    "ggml_backend_dev_name": (c_char_p, _P),
    "ggml_backend_dev_supports_op": (c_bool, _P, _P),
    "ggml_backend_dev_type": (c_int, _P),
    "ggml_backend_free": (None, _P),
    "ggml_backend_graph_compute": (c_int, _P, _P),
    "ggml_backend_reg_by_name": (_P, c_char_p),
    "ggml_backend_reg_get_proc_address": (_P, _P, c_char_p),
    "ggml_backend_reg_name": (c_char_p, _P),
    "ggml_backend_register": (None, _P),
    "ggml_backend_tensor_get": (None, _P, _P, c_size_t, c_size_t),
    "ggml_backend_tensor_set": (None, _P, c_char_p, c_size_t, c_size_t),
    "ggml_blck_size": (c_int64, c_int),
    "ggml_build_forward_expand": (None, _P, _P),
    "ggml_flash_attn_ext": (_P, _P, _P, _P, _P, _P, c_float, c_float, c_float),
    "ggml_flash_attn_ext_add_sinks": (None, _P, _P),
    "ggml_free": (None, _P),
    "ggml_get_rows": (_P, _P, _P, _P),
    "ggml_graph_n_nodes": (c_int, _P),
    "ggml_graph_node": (_P, _P, c_int),
    "ggml_init": (_P, InitParams),
    "ggml_mul_mat": (_P, _P, _P, _P),
    "ggml_mul_mat_id": (_P, _P, _P, _P, _P),
    "ggml_nelements": (c_int64, _P),
    "ggml_new_graph": (_P, _P),
    "ggml_new_graph_custom": (_P, _P, c_size_t, c_bool),
    "ggml_new_tensor": (_P, _P, c_int, c_int, _SIZES),
    "ggml_new_tensor_2d": (_P, _P, c_int, c_int64, c_int64),
    "ggml_op_desc": (c_char_p, _P),
    "ggml_permute": (_P, _P, _P, c_int, c_int, c_int, c_int),
    "ggml_quantize_chunk": (c_size_t, c_int, _P, _P, c_int64, c_int64, c_int64, _P),
    "ggml_reshape_2d": (_P, _P, _P, c_int64, c_int64),
    "ggml_row_size": (c_size_t, c_int, c_int64),
    "ggml_set_abort_callback": (_P, AbortCallback),
    "ggml_set_name": (_P, _P, c_char_p),
    "ggml_sgn": (_P, _P, _P),
    "ggml_sub": (_P, _P, _P, _P),
    "ggml_type_name": (c_char_p, c_int),
    "ggml_type_size": (c_size_t, c_int),
    "ggml_view_1d": (_P, _P, _P, c_int64, c_size_t),
    "ggml_view_2d": (_P, _P, _P, c_int64, c_int64, c_size_t, c_size_t),
    "ggml_view_tensor": (_P, _P, _P),
    "llama_graph_reserve": (_P, _P, c_uint32, c_uint32, c_uint32),
}
"""Functions that the binding has no names for, looked up in its library (`ggml.py`): the result, then the arguments.
C has no way to ask for these, so they are those of llama.cpp 0.3.36.
"""
REGISTERED: Mapping[str, tuple[Any, ...]] = {
    "ggml_backend_dev_get_extra_bufts": (POINTER(c_void_p), _P),
    "ggml_backend_rpc_add_server": (_P, c_char_p),
    "ggml_backend_rpc_start_server": (None, c_char_p, c_char_p, c_size_t, c_size_t, _P),
    "ggml_backend_set_n_threads": (None, _P, c_int),
}
"""Functions that only the registry of a backend knows. Where a build lacks one, so does it lack what they are for."""
SET_LAYER = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
GET_LAYER = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"
LAYERS: Mapping[str, tuple[Any, ...]] = {SET_LAYER: (None, _P, c_uint32, c_bool), GET_LAYER: (_P, _P, c_uint32)}
"""Functions of C++ that trained heads need, by the names that compilers give them (`llama-ext.h`): whether a context
keeps what a layer is given, and these rows. Without them nothing else is missed.
"""
LAYER_NAMES = ("llama_encode", "llama_vocab_mask")
"""Names of the binding that trained heads need besides."""
UNSTABLE = ("_Z19llama_graph_reserveP13llama_contextjjj", "llama_graph_reserve")
"""Functions of `GGML` that are no part of an interface: what needs them does without."""


def missing_for_sampling(binding: object) -> Iterator[str]:
    """Names of these that the binding lacks."""
    yield from (name for name in SAMPLING_NAMES if not hasattr(binding, name))
    yield from _missing_fields(binding, SAMPLING_FIELDS)


def missing_for_images(module: object) -> Iterator[str]:
    """Names of these that the binding's module lacks."""
    yield from (name for name in IMAGE_NAMES if not hasattr(module, name))
    yield from _missing_fields(module, IMAGE_FIELDS)


def missing_for_heads(binding: object, extension: object) -> Iterator[str]:
    """Names of these that the binding lacks."""
    yield from (name for name in HEAD_NAMES if not hasattr(binding, name))
    yield from _missing_fields(binding, HEAD_FIELDS)
    yield from (name for name in HEAD_EXTENSION if not hasattr(extension, name))


def missing_for_layers(binding: object) -> Iterator[str]:
    """Names that trained heads need, beside those of all heads, and that the binding or its library lacks."""
    yield from (name for name in LAYER_NAMES if not hasattr(binding, name))
    yield from (name for name in LAYERS if not hasattr(getattr(binding, "_lib", None), name))


def missing(binding: object) -> Iterator[str]:
    """Names that the binding lacks; a field as structure.field."""
    yield from (name for name in (*SYMBOLS, *CONSTRUCTORS) if not hasattr(binding, name))
    yield from _missing_fields(binding, FIELDS)
    yield from _missing_of_ggml(getattr(binding, "_lib", None))


def _missing_of_ggml(library: object) -> Iterator[str]:
    """Functions of ggml that the library lacks. One that leads to none of them, as on Windows, is used without."""
    needed = [name for name in GGML if name not in (*SAMPLING_GGML, *UNSTABLE)]
    lacking = [name for name in needed if not hasattr(library, name)]
    yield from lacking if len(lacking) < len(needed) else ()


def _missing_fields(binding: object, by_structure: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for structure, fields in by_structure.items():
        kind = getattr(binding, structure, None)
        yield from (f"{structure}.{field}" for field in fields if not hasattr(kind, field))
