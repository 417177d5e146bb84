"""Flags of contexts and speed; and of where tensors lie, for target and draft."""

from __future__ import annotations

from typing import Final

from uad.config import kinds, sources
from uad.config.flag import Flag
from uad.config.flags import (
    CONTEXT,
    DRAFT,
    ENV,
)
from uad.config.kinds import SWITCH, choice, integer, number
from uad.config.slices import KV_TYPES

_FILE = "the model file's"


def placed(role: str, end: str, env: str = "") -> tuple[Flag, ...]:
    """Flags of where tensors lie; end: what llama-server puts behind the names of the draft's."""
    short, group = end[1:2], DRAFT if end else CONTEXT
    spec = "--spec-draft" if end else ""
    others = (f" {spec}-override-tensor", f" {spec}-cpu-moe", f" {spec}-n-cpu-moe {spec}-ncmoe") if end else ("",) * 3
    whole = [
        (f"-cmoe{short} --cpu-moe{end}{others[1]}", sources.ALL_EXPERTS, "keep experts beside the CPU", "", "CPU_MOE"),
        (
            f"-ncmoe{short} --n-cpu-moe{end}{others[2]}",
            sources.FIRST_EXPERTS,
            "keep the experts of the first N layers beside the CPU",
            "N",
            "N_CPU_MOE",
        ),
        (
            f"-ot{short} --override-tensor{end}{others[0]}",
            sources.PLACES,
            "keep tensors whose names match in a buffer, such as exps=CPU",
            "PATTERN=BUFFER",
            "OVERRIDE_TENSOR",
        ),
    ]
    if not end:
        dense = "the same for layers without experts"
        whole.insert(2, ("-ncffn --n-cpu-ffn", sources.FIRST_DENSE, dense, "N", "N_CPU_FFN"))
    return tuple(
        Flag(names, f"{role}.places", kind, group, text, metavar, env + name if env else "", many=True)
        for names, kind, text, metavar, name in whole
    )


CONTEXT_FLAGS: Final = (
    Flag(
        "-c --ctx-size",
        "target.n_ctx",
        integer(0),
        CONTEXT,
        "context in tokens, shared out evenly among the slots of --parallel; 0 is the model's own, as far as memory "
        "goes",
        "N",
        ENV + "CTX_SIZE",
    ),
    Flag(
        "-n --predict --n-predict",
        "n_predict",
        integer(-1),
        CONTEXT,
        "most tokens per answer; -1 is no limit",
        "N",
        ENV + "N_PREDICT",
    ),
    Flag("-b --batch-size", "target.n_batch", integer(1), CONTEXT, "most tokens per decode call", "N", ENV + "BATCH"),
    Flag(
        "-ub --ubatch-size",
        "target.n_ubatch",
        integer(1),
        CONTEXT,
        "most tokens computed at once; on CPUs at most 60 (128 with -fa off)",
        "N",
        ENV + "UBATCH",
    ),
    Flag(
        "-np --parallel",
        "n_parallel",
        kinds.PARALLEL,
        CONTEXT,
        "slots: answers that run side by side; -1 is one",
        "N",
        ENV + "N_PARALLEL",
    ),
    Flag(
        "-t --threads",
        "target.n_threads",
        kinds.THREADS,
        CONTEXT,
        "threads for generation",
        "N",
        ENV + "THREADS",
        default="physical cores",
    ),
    Flag(
        "-tb --threads-batch",
        "target.n_threads_batch",
        kinds.THREADS,
        CONTEXT,
        "threads for prompts",
        "N",
        default="as --threads",
    ),
    Flag(
        "-ngl --gpu-layers --n-gpu-layers",
        "target.n_gpu_layers",
        kinds.GPU_LAYERS,
        CONTEXT,
        "layers kept on the GPU: a number, auto or all",
        "N",
        ENV + "N_GPU_LAYERS",
        default="auto",
    ),
    *placed("target", "", ENV),
    Flag(
        "-kvo --kv-offload",
        "target.kv_offload",
        SWITCH,
        CONTEXT,
        "keep the KV cache on the GPU, beside the layers there",
        env=ENV + "KV_OFFLOAD",
        off="-nkvo --no-kv-offload",
    ),
    Flag(
        "--op-offload",
        "target.op_offload",
        SWITCH,
        CONTEXT,
        "large operations on the GPU, also with weights that are not there",
        off="--no-op-offload",
    ),
    Flag(
        "--no-host",
        "target.no_host",
        SWITCH,
        CONTEXT,
        "no buffers of the host's memory for the GPU, which lets others be used",
        env=ENV + "NO_HOST",
    ),
    Flag(
        "-fa --flash-attn",
        "target.flash_attn",
        kinds.FLASH_ATTENTION,
        CONTEXT,
        "flash attention: on, off or auto",
        "MODE",
        ENV + "FLASH_ATTN",
        bare="on",
    ),
    Flag(
        "--swa-full",
        "target.swa_full",
        SWITCH,
        CONTEXT,
        "the cache of a sliding window holds all positions, not only the window: more memory, any prefix can be used "
        "again",
        env=ENV + "SWA_FULL",
    ),
    Flag(
        "-cram --cache-ram",
        "cache_ram",
        integer(-1),
        CONTEXT,
        "memory in MiB for conversations that left their slot, until they come back; 0 is none, -1 no limit",
        "MIB",
        ENV + "CACHE_RAM",
    ),
    Flag(
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "target.n_checkpoints",
        integer(0),
        CONTEXT,
        "copies of the state per slot from which later prompts go on, for models with a recurrent state or a sliding "
        "window",
        "N",
        ENV + "CTX_CHECKPOINTS",
    ),
    Flag(
        "-cms --checkpoint-min-step",
        "target.checkpoint_step",
        integer(0),
        CONTEXT,
        "tokens between two of these copies at least",
        "N",
        ENV + "CHECKPOINT_MIN_SPACING_NT",
    ),
    Flag(
        "-ctk --cache-type-k",
        "target.type_k",
        choice(*KV_TYPES),
        CONTEXT,
        f"type of cached keys: {', '.join(KV_TYPES)}",
        "TYPE",
        ENV + "CACHE_TYPE_K",
    ),
    Flag(
        "-ctv --cache-type-v",
        "target.type_v",
        choice(*KV_TYPES),
        CONTEXT,
        "type of cached values",
        "TYPE",
        ENV + "CACHE_TYPE_V",
    ),
    Flag(
        "-fit --fit",
        "fit",
        kinds.ON_OFF,
        CONTEXT,
        "compare contexts with the memory that there is: without -c the largest that fits is chosen, one that does "
        "not fit is refused",
        "MODE",
        ENV + "FIT",
        bare="on",
    ),
    Flag(
        "--rope-scaling",
        "target.rope_scaling",
        choice("none", "linear", "yarn"),
        CONTEXT,
        "how positions of the target are stretched beyond its trained context: none, linear or yarn",
        "TYPE",
        ENV + "ROPE_SCALING_TYPE",
        default=_FILE,
    ),
    Flag(
        "--rope-scale",
        "target.rope_freq_scale",
        kinds.ROPE_SCALE,
        CONTEXT,
        "stretch them by a factor of N",
        "N",
        ENV + "ROPE_SCALE",
        default=_FILE,
    ),
    *(
        Flag(
            f"--{name}",
            f"target.{name.replace('-', '_')}",
            kind,
            CONTEXT,
            text,
            "N",
            ENV + name.replace("-", "_").upper(),
            default=_FILE,
        )
        for name, kind, text in (
            ("rope-freq-base", number(0), "base frequency of positions, for NTK-aware stretching"),
            ("rope-freq-scale", number(0), "factor on frequencies: 1/N of --rope-scale"),
            ("yarn-orig-ctx", integer(0), "for YaRN: context in tokens that the model was trained on first"),
            ("yarn-ext-factor", number(-1), "for YaRN: mix of extrapolation; 0 is interpolation alone"),
            ("yarn-attn-factor", number(-1), "for YaRN: factor on attention"),
            ("yarn-beta-slow", number(-1), "for YaRN: high correction dimension"),
            ("yarn-beta-fast", number(-1), "for YaRN: low correction dimension"),
        )
    ),
)
