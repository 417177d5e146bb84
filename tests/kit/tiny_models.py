"""Writes tiny random models, for each kind of memory that llama.cpp has: the same bytes for the same name and seed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter
from numpy.typing import NDArray

from kit.vocab_makers import CONTROL, NORMAL, byte_to_unicode

Tensors = dict[str, tuple[int, ...]]
"""Names of tensors, and their sizes as llama.cpp counts them: the first is the one that lies together in memory."""

WIDTH, HEADS, HEAD, FF = 64, 2, 32, 128
INNER, STATE, KERNEL, RANK, GROUPS = 2 * WIDTH, 16, 4, 4, 2
"""Mamba: channels, numbers of state per channel, ids in a convolution, rank of the step (or heads), groups of heads."""
LATENT = 32
"""deepseek2: what its keys and values are made of."""
EXPERTS = 4
WINDOW = 32
"""gemma3: positions that two of three layers look back."""
N_CTX = 4096

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = """about after again along answer apple basket because before bottle bread bridge candle carpet chair children
city class cloud coffee corner count def else evening every father field flower forest friend garden glass green
hammer harbour history house import island journey kettle kitchen ladder lantern letter little market meadow mirror
morning mountain music naïve never number orange paper pencil people picture plain pocket question quick rabbit return
river school self silver small spoon station stone story street summer table thing through token travel until value
village walnut water weather where while window winter yellow café 東京"""
N_WORDS = 60
_LETTERS = byte_to_unicode()
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


class Kind(Enum):
    """What a model's memory is made of. Single positions of a state cannot be taken back without snapshots."""

    PLAIN = "keys and values"
    SWA = "keys and values, in some layers of the last positions only"
    MOE = "keys and values; experts"
    MLA = "latents that keys and values are made of"
    SNAPSHOTS = "keys and values, and a state of which llama.cpp keeps snapshots (n_rs_seq)"
    HYBRID = "keys and values, and a state without snapshots"
    RECURRENT = "a state without snapshots"

    @property
    def has_attention(self) -> bool:
        return self is not Kind.RECURRENT

    @property
    def has_state(self) -> bool:
        return self in (Kind.SNAPSHOTS, Kind.HYBRID, Kind.RECURRENT)


@dataclass(frozen=True)
class _Plan:
    """An architecture: metadata below its name, and the tensors of each layer."""

    kind: Kind
    keys: dict[str, Any]
    layers: tuple[Tensors, ...]


def make(name: str, folder: Path, seed: int = 0) -> Path:
    """The model of this name, written into the folder unless it is there. ValueError for a name that is not in NAMES.

    Weights and vocabulary are drawn from the name and the seed. Greedy text is printable and never has a special.
    """
    if name not in _PLANS:
        raise ValueError(f"no tiny model {name!r}; there are {', '.join(NAMES)}")
    out = folder / f"{name}-{seed}.gguf"
    if not out.exists():
        _write(out, name, seed)
    return out


def _write(out: Path, name: str, seed: int) -> None:
    plan = _PLANS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tokens, merges = _vocabulary(random.Random(f"{name} {seed}"))
    part = out.with_suffix(".part")
    with closing(GGUFWriter(part, name)) as writer:
        writer.add_name(out.stem)
        writer.add_context_length(N_CTX)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(len(plan.layers))
        writer.add_layer_norm_rms_eps(1e-5)
        for key, value in plan.keys.items():
            add = writer.add_array if isinstance(value, list) else writer.add_uint32
            add(f"{name}.{key}", value)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types([CONTROL if token in SPECIALS else NORMAL for token in tokens])
        writer.add_token_merges(merges)
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(TEMPLATE)
        for tensor, sizes in _tensors(plan, name, len(tokens)).items():
            values = _values(rng, tensor, sizes)
            if tensor == "output.weight":
                values[[not _is_written(token) for token in tokens]] = 0
            writer.add_tensor(tensor, values.astype(np.float16 if _is_half(tensor, sizes) else np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    part.replace(out)


# --- vocabulary


def _vocabulary(rng: random.Random) -> tuple[list[str], list[str]]:
    """Tokens and merges of byte-level BPE: all bytes, some of the words and what they begin with, specials."""
    tokens, merges = [_LETTERS[byte] for byte in range(256)], []
    for word in rng.sample(WORDS.split(), N_WORDS):
        spelled = "".join(_LETTERS[byte] for byte in f"{rng.choice(('', ' ', ' '))}{word}".encode())
        for n in range(2, len(spelled) + 1):
            if spelled[:n] not in tokens:
                tokens.append(spelled[:n])
                merges.append(f"{spelled[: n - 1]} {spelled[n - 1]}")
    return [*tokens, *SPECIALS], merges


def _is_written(token: str) -> bool:
    """Whether a model may choose a token: printable text by itself."""
    if token in SPECIALS:
        return False
    try:
        return bytes(_BYTES[letter] for letter in token).decode().isprintable()
    except UnicodeDecodeError:
        return False


# --- weights


def _tensors(plan: _Plan, name: str, n_vocab: int) -> Tensors:
    ends: Tensors = {
        "token_embd.weight": (WIDTH, n_vocab),
        "token_embd_norm.weight" if name == "lfm2" else "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, n_vocab),
    }
    return ends | {f"blk.{i}.{tensor}": sizes for i, layer in enumerate(plan.layers) for tensor, sizes in layer.items()}


def _is_half(tensor: str, sizes: Sequence[int]) -> bool:
    """F16 is for matrices; llama.cpp wants convolutions and the choice of experts in F32."""
    others = ("norm", "conv1d", "conv.", "gate_inp")
    return len(sizes) > 1 and tensor.endswith(".weight") and not any(other in tensor for other in others)


def _values(rng: np.random.Generator, tensor: str, sizes: Sequence[int]) -> NDArray[np.float32]:
    """Random weights [..., n_in]: activations stay near 1, attention and logits are peaked enough for varied text."""
    name = tensor.split(".", 2)[-1] if tensor.startswith("blk.") else tensor
    shape = tuple(reversed(sizes))
    noise = rng.standard_normal(shape, np.float32)
    if name == "ssm_a":  # with the steps below a state fades within 2 to 100 ids
        return rng.uniform(-2, -0.2, shape).astype(np.float32)
    if name == "ssm_dt.bias":  # steps of 0.05 to 0.3
        return rng.uniform(-3, -1, shape).astype(np.float32)
    if name == "ssm_d":
        return 0.3 * noise
    peaked = np.float32(3 if name == "output.weight" else 1.5 if name.startswith(("attn_q", "attn_k")) else 1)
    if "norm" in name:
        return peaked * (1 + np.float32(0.1) * noise)
    return peaked * noise / np.float32(sizes[0] ** 0.5)


# --- layers


def _attention(*norms: str) -> Tensors:
    """Two heads that share a key and a value; norms: others than that of the input, of a head for queries and keys."""
    return {
        "attn_norm.weight": (WIDTH,),
        "attn_q.weight": (WIDTH, HEADS * HEAD),
        "attn_k.weight": (WIDTH, HEAD),
        "attn_v.weight": (WIDTH, HEAD),
        "attn_output.weight": (HEADS * HEAD, WIDTH),
        **{f"{norm}.weight": (HEAD if norm in _QK_NORMS else WIDTH,) for norm in norms},
    }


def _latent_attention() -> Tensors:
    """deepseek2: a head's key has HEAD numbers from the latent and HEAD with a position."""
    return {
        "attn_norm.weight": (WIDTH,),
        "attn_q_a.weight": (WIDTH, LATENT),
        "attn_q_a_norm.weight": (LATENT,),
        "attn_q_b.weight": (LATENT, HEADS * 2 * HEAD),
        "attn_kv_a_mqa.weight": (WIDTH, LATENT + HEAD),
        "attn_kv_a_norm.weight": (LATENT,),
        "attn_k_b.weight": (HEAD, LATENT, HEADS),
        "attn_v_b.weight": (LATENT, HEAD, HEADS),
        "attn_output.weight": (HEADS * HEAD, WIDTH),
    }


def _short_convolution() -> Tensors:
    return {
        "attn_norm.weight": (WIDTH,),
        "shortconv.conv.weight": (KERNEL, WIDTH),
        "shortconv.in_proj.weight": (WIDTH, 3 * WIDTH),
        "shortconv.out_proj.weight": (WIDTH, WIDTH),
    }


def _delta_net() -> Tensors:
    """qwen35: as many heads of the state as of attention, and as large."""
    inner = HEADS * HEAD
    return {
        "attn_norm.weight": (WIDTH,),
        "attn_qkv.weight": (WIDTH, 3 * inner),
        "attn_gate.weight": (WIDTH, inner),
        "ssm_conv1d.weight": (KERNEL, 3 * inner),
        "ssm_dt.bias": (HEADS,),
        "ssm_a": (HEADS,),
        "ssm_beta.weight": (WIDTH, HEADS),
        "ssm_alpha.weight": (WIDTH, HEADS),
        "ssm_norm.weight": (HEAD,),
        "ssm_out.weight": (inner, WIDTH),
    }


def _mamba() -> Tensors:
    return {
        "attn_norm.weight": (WIDTH,),
        "ssm_in.weight": (WIDTH, 2 * INNER),
        "ssm_conv1d.weight": (KERNEL, INNER),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (INNER, RANK + 2 * STATE),
        "ssm_dt.weight": (RANK, INNER),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (STATE, INNER),
        "ssm_d": (INNER,),
        "ssm_out.weight": (INNER, WIDTH),
    }


def _mamba2() -> Tensors:
    convolved = INNER + 2 * GROUPS * STATE
    return {
        "attn_norm.weight": (WIDTH,),
        "ssm_in.weight": (WIDTH, INNER + convolved + RANK),
        "ssm_conv1d.weight": (KERNEL, convolved),
        "ssm_conv1d.bias": (convolved,),
        "ssm_dt.bias": (RANK,),
        "ssm_a": (1, RANK),
        "ssm_d": (1, RANK),
        "ssm_norm.weight": (INNER // GROUPS, GROUPS),
        "ssm_out.weight": (INNER, WIDTH),
    }


def _feed_forward(norm: str = "ffn_norm.weight") -> Tensors:
    return {norm: (WIDTH,), **_gated("", FF)}


def _experts(shared: bool = False) -> Tensors:
    stacked = {tensor: (*sizes, EXPERTS) for tensor, sizes in _gated("_exps", FF // 2).items()}
    others = _gated("_shexp", FF // 2) if shared else {}
    return {"ffn_norm.weight": (WIDTH,), "ffn_gate_inp.weight": (WIDTH, EXPERTS), **stacked, **others}


def _gated(suffix: str, inner: int) -> Tensors:
    into = {f"ffn_{way}{suffix}.weight": (WIDTH, inner) for way in ("gate", "up")}
    return {**into, f"ffn_down{suffix}.weight": (inner, WIDTH)}


# --- architectures

_QK_NORMS = ("attn_q_norm", "attn_k_norm")
_GATED_QUERIES: Tensors = {"attn_q.weight": (WIDTH, 2 * HEADS * HEAD)}
_POST_NORM = "post_attention_norm.weight"
_JAMBA_NORMS: Tensors = {"ssm_dt_norm.weight": (RANK,), "ssm_b_norm.weight": (STATE,), "ssm_c_norm.weight": (STATE,)}
_HEADS = {"attention.head_count": HEADS, "attention.head_count_kv": 1, "feed_forward_length": FF}
_HEAD_SIZES = {"attention.key_length": HEAD, "attention.value_length": HEAD, "rope.dimension_count": HEAD}
_EXPERTS = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": FF // 2}
_SSM = {"ssm.conv_kernel": KERNEL, "ssm.inner_size": INNER, "ssm.state_size": STATE, "ssm.time_step_rank": RANK}
_PLANS = {
    "llama": _Plan(Kind.PLAIN, _HEADS, (_attention() | _feed_forward(),) * 2),
    "gemma3": _Plan(
        Kind.SWA,
        _HEADS | _HEAD_SIZES | {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 3},
        (_attention(*_QK_NORMS, "post_attention_norm", "post_ffw_norm") | _feed_forward(),) * 3,
    ),
    "qwen2vl": _Plan(
        Kind.PLAIN,
        _HEADS | {"rope.dimension_sections": [4, 6, 6, 0]},
        (_attention() | _feed_forward(),) * 2,
    ),
    "qwen3moe": _Plan(Kind.MOE, _HEADS | _EXPERTS, (_attention(*_QK_NORMS) | _experts(),) * 2),
    "deepseek2": _Plan(
        Kind.MLA,
        _HEADS
        | _EXPERTS
        | {
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "rope.dimension_count": HEAD,
            "attention.q_lora_rank": LATENT,
            "attention.kv_lora_rank": LATENT,
            "attention.key_length": LATENT + HEAD,
            "attention.value_length": LATENT,
            "attention.key_length_mla": 2 * HEAD,
            "attention.value_length_mla": HEAD,
        },
        (_latent_attention() | _feed_forward(), _latent_attention() | _experts(shared=True)),
    ),
    "lfm2": _Plan(
        Kind.SNAPSHOTS,
        _HEADS | {"attention.head_count_kv": [0, 1, 0, 1], "shortconv.l_cache": KERNEL},
        (_short_convolution() | _feed_forward(), _attention(*_QK_NORMS) | _feed_forward()) * 2,
    ),
    "qwen35": _Plan(
        Kind.SNAPSHOTS,
        _HEADS
        | _HEAD_SIZES
        | {
            "rope.dimension_sections": [6, 5, 5, 0],
            "full_attention_interval": 2,
            "ssm.conv_kernel": KERNEL,
            "ssm.inner_size": HEADS * HEAD,
            "ssm.state_size": HEAD,
            "ssm.time_step_rank": HEADS,
            "ssm.group_count": HEADS,
        },
        (
            _delta_net() | _feed_forward(_POST_NORM),
            _attention(*_QK_NORMS) | _GATED_QUERIES | _feed_forward(_POST_NORM),
        )
        * 2,
    ),
    "falcon-h1": _Plan(
        Kind.HYBRID,
        _HEADS | _SSM | {"ssm.group_count": GROUPS},
        (_attention() | _mamba2() | _feed_forward("ffn_norm"),) * 2,
    ),
    "jamba": _Plan(
        Kind.HYBRID,
        _HEADS | _SSM | {"attention.head_count_kv": [0, 1, 0]},
        tuple(mixer | _feed_forward() for mixer in (_mamba() | _JAMBA_NORMS, _attention(), _mamba() | _JAMBA_NORMS)),
    ),
    "mamba2": _Plan(Kind.RECURRENT, _SSM | {"ssm.group_count": GROUPS}, (_mamba2(),) * 3),
    "mamba": _Plan(Kind.RECURRENT, _SSM, (_mamba(),) * 3),
}
NAMES: dict[str, Kind] = {name: plan.kind for name, plan in _PLANS.items()}
"""What `make` can write: llama.cpp's names of architectures."""


# --- adapters


def make_adapter(model: Path, out: Path, seed: int = 0, size: float = 0.5, arch: str = "llama") -> Path:
    """A LoRA adapter of rank 4 for the queries and the output of each layer's attention of a tiny llama."""
    rng = np.random.default_rng([seed, zlib.crc32(model.stem.encode())])
    with closing(GGUFWriter(out, arch)) as writer:
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", 4.0)
        writer.add_string("adapter.lora.task_name", "tiny")
        for layer in range(len(_PLANS[arch].layers)):
            for tensor, n_in, n_out in (("attn_q", WIDTH, HEADS * HEAD), ("attn_output", HEADS * HEAD, WIDTH)):
                name = f"blk.{layer}.{tensor}.weight"
                for end, shape in (("lora_a", (4, n_in)), ("lora_b", (n_out, 4))):
                    writer.add_tensor(f"{name}.{end}", size * rng.standard_normal(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return out


def split(model: Path, folder: Path, n: int = 2) -> list[Path]:
    """The same model in n files, as llama.cpp's gguf-split writes them: the metadata lie in the first."""
    reader = GGUFReader(model)
    arch = reader.fields["general.architecture"].contents()
    paths = [folder / f"{model.stem}-{i + 1:05d}-of-{n:05d}.gguf" for i in range(n)]
    for i, path in enumerate(paths):
        with closing(GGUFWriter(path, arch)) as writer:
            for field in reader.fields.values() if i == 0 else ():
                if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                    of_list = field.types[1] if len(field.types) > 1 else None
                    writer.add_key_value(field.name, field.contents(), field.types[0], of_list)
            writer.add_uint16("split.no", i)
            writer.add_uint16("split.count", n)
            writer.add_int32("split.tensors.count", len(reader.tensors))
            for tensor in reader.tensors[i::n]:
                writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
    return paths
