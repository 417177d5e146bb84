"""Flags of contexts and speed; of the devices that models are on, and where tensors lie, for target and draft."""

from __future__ import annotations

from uad.config import kinds, sources
from uad.config.flag import Flag
from uad.config.kinds import KV_TYPE, KV_TYPES, SWITCH, choice, integer, number

_FILE = "the model file's"


def placed(role: str, end: str) -> tuple[Flag, ...]:
    """Flags of where tensors lie; end: what llama-server puts after the names of the draft's."""
    short = end[1:2]
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
    variables = {name: name for *_, name in whole}
    if end:  # llama-server has no variable for the draft's --override-tensor
        variables = {name: f"SPEC_DRAFT_{name}" for name in ("CPU_MOE", "N_CPU_MOE")}
    return tuple(
        Flag(names, f"{role}.places", kind, text, metavar, variables.get(name, ""), many=True)
        for names, kind, text, metavar, name in whole
    )


CONTEXT_FLAGS = (
    Flag(
        "-c --ctx-size",
        "target.n_ctx",
        integer(0),
        "context in tokens, shared out evenly among the slots of --parallel; 0 is the model's own, as far as memory "
        "goes",
        env="CTX_SIZE",
    ),
    Flag(
        "-n --predict --n-predict", "n_predict", integer(-1), "most tokens per answer; -1 is no limit", env="N_PREDICT"
    ),
    Flag("-b --batch-size", "target.n_batch", integer(1), "most tokens per decode call", env="BATCH"),
    Flag(
        "-ub --ubatch-size",
        "target.n_ubatch",
        integer(1),
        "most tokens computed at once; on CPUs at most 60 (128 with -fa off)",
        env="UBATCH",
    ),
    Flag(
        "-np --parallel",
        "n_parallel",
        kinds.PARALLEL,
        "slots: answers that run side by side; -1 is one",
        env="N_PARALLEL",
    ),
    Flag(
        "-t --threads",
        "target.n_threads",
        kinds.THREADS,
        "threads for generation",
        env="THREADS",
        default="physical cores",
    ),
    Flag("-tb --threads-batch", "target.n_threads_batch", kinds.THREADS, "threads for prompts", default="as --threads"),
    Flag(
        "-ngl --gpu-layers --n-gpu-layers",
        "target.n_gpu_layers",
        kinds.GPU_LAYERS,
        "layers kept on the GPU: a number, auto or all",
        env="N_GPU_LAYERS",
        default="auto",
    ),
    *placed("target", ""),
    Flag(
        "-kvo --kv-offload",
        "target.kv_offload",
        SWITCH,
        "keep the KV cache on the GPU, beside the layers there",
        env="KV_OFFLOAD",
        off="-nkvo --no-kv-offload",
    ),
    Flag(
        "--op-offload",
        "target.op_offload",
        SWITCH,
        "large operations on the GPU, also with weights that are not there",
        off="--no-op-offload",
    ),
    Flag(
        "-bs --backend-sampling",
        "target.backend_sampling",
        SWITCH,
        "find the likeliest tokens on the GPU, so that not all logits are copied from there",
        env="BACKEND_SAMPLING",
    ),
    Flag(
        "--no-host",
        "target.no_host",
        SWITCH,
        "no buffers of the host's memory for the GPU, which lets others be used",
        env="NO_HOST",
    ),
    Flag(
        "-fa --flash-attn",
        "target.flash_attn",
        kinds.ON_OFF_AUTO,
        "flash attention: on, off or auto",
        "MODE",
        "FLASH_ATTN",
        bare="on",
    ),
    Flag(
        "--swa-full",
        "target.swa_full",
        SWITCH,
        "the cache of a sliding window holds all positions, not only the window: more memory, any prefix can be used "
        "again",
        env="SWA_FULL",
    ),
    Flag(
        "-cram --cache-ram",
        "cache_ram",
        integer(-1),
        "memory in MiB for conversations that left their slot, until they come back; 0 is none, -1 no limit",
        "MIB",
        "CACHE_RAM",
    ),
    Flag(
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "target.n_checkpoints",
        integer(0),
        "copies of the state per slot from which later prompts go on, for models with a recurrent state or a sliding "
        "window",
        env="CTX_CHECKPOINTS",
    ),
    Flag(
        "-cms --checkpoint-min-step",
        "target.checkpoint_step",
        integer(0),
        "tokens between two of these copies at least",
        env="CHECKPOINT_MIN_SPACING_NT",
    ),
    Flag(
        "-ctk --cache-type-k",
        "target.type_k",
        KV_TYPE,
        f"type of cached keys: {', '.join(KV_TYPES)}",
        env="CACHE_TYPE_K",
    ),
    Flag("-ctv --cache-type-v", "target.type_v", KV_TYPE, "type of cached values", env="CACHE_TYPE_V"),
    Flag(
        "-fit --fit",
        "fit",
        kinds.ON_OFF,
        "compare contexts with the memory that there is: without -c the largest that fits is chosen, one that does "
        "not fit is refused",
        env="FIT",
        bare="on",
    ),
    Flag(
        "--rope-scaling",
        "target.rope_scaling",
        choice("none", "linear", "yarn"),
        "how positions of the target are stretched beyond its trained context: none, linear or yarn",
        "TYPE",
        "ROPE_SCALING_TYPE",
        default=_FILE,
    ),
    Flag(
        "--rope-scale",
        "target.rope_freq_scale",
        kinds.ROPE_SCALE,
        "stretch them by a factor of N",
        env="ROPE_SCALE",
        default=_FILE,
    ),
    *(
        Flag(
            f"--{name}",
            f"target.{name.replace('-', '_')}",
            kind,
            text,
            env=name.replace("-", "_").upper(),
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
    Flag(
        "--rpc",
        "rpc",
        kinds.ENDPOINTS,
        "use the devices of workers on other machines (uad rpc-worker), by addresses with commas between them; "
        "unencrypted",
        "HOST:PORT",
        "RPC",
    ),
    Flag(
        "-dev --device",
        "target.devices",
        kinds.DEVICES,
        "devices that layers are put on, by name, with commas between them; none is the CPU alone",
        env="DEVICE",
        default="all",
    ),
    Flag(
        "-ts --tensor-split",
        "target.tensor_split",
        kinds.SHARES,
        "shares of the devices, such as 3,1",
        "N,N",
        "TENSOR_SPLIT",
        default="by free memory",
    ),
)
