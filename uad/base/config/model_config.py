"""How models are loaded and their contexts made, with all that users may set of it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path

from uad.base.common.settings import flag, setting
from uad.base.config import kinds, sources
from uad.base.config.kinds import KV_TYPE, KV_TYPES, choice
from uad.base.config.sources import HubModel, KvOverride, LoraConfig, Place

_loading = partial(setting, group="models")
_of_file = partial(setting, default_text="the model file's")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """How one model is loaded and its context made. Flags of the target; those of the draft stand beside them."""

    path: Path = setting(
        MISSING,
        "GGUF file of the target model",
        "-m --model --target LLAMA_ARG_MODEL",
        group="models",
        also=(
            flag(
                "the target from a Hugging Face repository, fetched into its cache; QUANT is Q4_K_M unless given, else "
                "Q8_0, else that of the first file",
                "-hf -hfr --hf-repo LLAMA_ARG_HF_REPO",
                kind=sources.HUB_MODEL,
            ),
        ),
        draft=flag(
            "GGUF file of the draft model, with any tokenizer; repeatable: each round is drafted by the one that is "
            "worth most there; auto: of the smaller models in the target's folder the one that is expected to gain "
            "most, if any does (uad inspect --all FOLDER shows them)",
            "-md --model-draft --draft --spec-draft-model LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT",
            kind=kinds.DRAFT_FILES,
            after="--model",
            also=(
                flag(
                    "the same for the draft",
                    "-hfd -hfrd --hf-repo-draft --spec-draft-hf LLAMA_ARG_SPEC_DRAFT_HF_REPO",
                    kind=sources.HUB_MODELS,
                    after="--hf-repo",
                ),
            ),
        ),
    )
    """Where it has to be fetched from a hub first, the words that name it there."""
    loras: tuple[LoraConfig, ...] = _loading(
        (),
        "adapter (LoRA, GGUF) for the target, several with commas between them; repeatable",
        "--lora",
        kind=sources.LORAS,
        also=(flag("the same with how much of it is added; repeatable", "--lora-scaled", kind=sources.LORAS_SCALED),),
    )
    apply_loras: bool = _loading(
        True,
        "load adapters without adding them, until POST /lora-adapters does",
        no="--lora-init-without-apply",
        default_text="",
    )
    overrides: tuple[KvOverride, ...] = _loading(
        (),
        "replace a value of the target's metadata, several with commas between them; repeatable",
        "--override-kv",
        kind=sources.KV_OVERRIDES,
    )
    check_tensors: bool = _loading(
        False, "look for invalid numbers in the model files", "--check-tensors", inherited=True
    )
    mlock: bool = _loading(False, "keep the models in RAM", "--mlock LLAMA_ARG_MLOCK", no="--no-mlock", inherited=True)
    mmap: bool = _loading(
        True,
        "map the model files instead of reading them",
        "--mmap LLAMA_ARG_MMAP",
        no="--no-mmap",
        inherited=True,
        also=(
            flag(
                "what --mmap and --mlock say, in one word: auto, none, mmap, mlock, mmap+mlock",
                "-lm --load-mode LLAMA_ARG_LOAD_MODE",
                kind=kinds.LOAD_MODE,
                fields="mmap mlock",
                default_text="auto",
                after="--repack",
            ),
        ),
    )
    repack: bool = _loading(
        True,
        "rearrange weights for this processor's kernels (off: slower; --exact switches it off where it must, as with "
        "K-quants)",
        "--repack LLAMA_ARG_REPACK",
        no="--no-repack -nr",
        inherited=True,
    )
    kernels: bool | str = _loading(
        True,
        "kernels of uad for this processor, where they are installed and proven (--no-repack switches them off, too): "
        "on or off; fastest: for each type of weights uad's or llama.cpp's, whichever are faster here; texts may then "
        "differ with drafts",
        "--kernels LLAMA_ARG_KERNELS",
        kind=kinds.KERNELS,
        metavar="MODE",
        bare="on",
        no="--no-kernels",
        inherited=True,
    )
    n_ctx: int = setting(
        0,
        "context in tokens, shared out evenly among the slots of --parallel; 0 is the model's own, as far as memory "
        "goes",
        "-c --ctx-size LLAMA_ARG_CTX_SIZE",
        draft=flag(
            "the draft's context in tokens, for all slots; 0: the target's, as far as it was trained",
            "-cd --ctx-size-draft",
        ),
    )
    n_batch: int = setting(
        2048, "most tokens per decode call", "-b --batch-size LLAMA_ARG_BATCH", low=1, inherited=True
    )
    n_ubatch: int = setting(
        512,
        "most tokens computed at once; on CPUs at most 60 (128 with -fa off)",
        "-ub --ubatch-size LLAMA_ARG_UBATCH",
        low=1,
        inherited=True,
    )
    n_threads: int = setting(
        0,
        "threads for generation",
        "-t --threads LLAMA_ARG_THREADS",
        kind=kinds.THREADS,
        default_text="physical cores, within the CPU quota",
        inherited=True,
        draft=flag(
            "threads for drafting",
            "-td --threads-draft --spec-draft-threads",
            default_text="--threads if given, else one or all cores, what is faster",
        ),
    )
    """0: the usable cores."""
    n_threads_batch: int = setting(
        0,
        "threads for prompts",
        "-tb --threads-batch",
        kind=kinds.THREADS,
        default_text="as --threads",
        inherited=True,
        draft=flag(
            "threads for prompts in the draft model",
            "-tbd --threads-batch-draft --spec-draft-threads-batch",
            default_text="as -tb if given, else as -td, else all cores",
        ),
    )
    """0: as n_threads."""
    n_gpu_layers: int = setting(
        -1,
        "layers kept on the GPU: a number, auto or all",
        "-ngl --gpu-layers --n-gpu-layers LLAMA_ARG_N_GPU_LAYERS",
        kind=kinds.GPU_LAYERS,
        default_text="auto",
        inherited=True,
        draft=flag(
            "the draft's layers kept on the GPU",
            "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl LLAMA_ARG_N_GPU_LAYERS_DRAFT",
            default_text="the target's",
        ),
    )
    """Negative: all."""
    places: tuple[Place, ...] = setting(
        (),
        "keep experts beside the CPU",
        "-cmoe --cpu-moe LLAMA_ARG_CPU_MOE",
        kind=sources.ALL_EXPERTS,
        also=(
            flag(
                "keep the experts of the first N layers beside the CPU",
                "-ncmoe --n-cpu-moe LLAMA_ARG_N_CPU_MOE",
                kind=sources.FIRST_EXPERTS,
            ),
            flag(
                "the same for layers without experts",
                "-ncffn --n-cpu-ffn LLAMA_ARG_N_CPU_FFN",
                kind=sources.FIRST_DENSE,
            ),
            flag(
                "keep tensors whose names match in a buffer, such as exps=CPU",
                "-ot --override-tensor LLAMA_ARG_OVERRIDE_TENSOR",
                kind=sources.PLACES,
            ),
        ),
        draft=flag(
            "keep experts beside the CPU",
            "-cmoed --cpu-moe-draft --spec-draft-cpu-moe LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
            after="draft model",
            also=(
                flag(
                    "keep the experts of the first N layers beside the CPU",
                    "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe "
                    "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
                    kind=sources.FIRST_EXPERTS,
                ),
                flag(
                    "keep tensors whose names match in a buffer, such as exps=CPU",
                    "-otd --override-tensor-draft --spec-draft-override-tensor",
                    kind=sources.PLACES,  # without a variable, as in llama-server
                ),
            ),
        ),
    )
    kv_offload: bool = setting(
        True,
        "keep the KV cache on the GPU, beside the layers there",
        "-kvo --kv-offload LLAMA_ARG_KV_OFFLOAD",
        no="-nkvo --no-kv-offload",
        inherited=True,
    )
    op_offload: bool = setting(
        True,
        "large operations on the GPU, also with weights that are not there",
        "--op-offload",
        no="--no-op-offload",
        inherited=True,
    )
    backend_sampling: bool = setting(
        False,
        "find the likeliest tokens on the GPU, so that not all logits are copied from there",
        "-bs --backend-sampling LLAMA_ARG_BACKEND_SAMPLING",
    )
    no_host: bool = setting(
        False,
        "no buffers of the host's memory for the GPU, which lets others be used",
        "--no-host LLAMA_ARG_NO_HOST",
        inherited=True,
    )
    flash_attn: str = setting(
        "auto",
        "flash attention: on, off or auto",
        "-fa --flash-attn LLAMA_ARG_FLASH_ATTN",
        kind=kinds.ON_OFF_AUTO,
        metavar="MODE",
        bare="on",
        inherited=True,
    )
    swa_full: bool = setting(
        False,
        "the cache of a sliding window holds all positions, not only the window: more memory, any prefix can be used "
        "again",
        "--swa-full LLAMA_ARG_SWA_FULL",
        inherited=True,
    )
    n_checkpoints: int = setting(
        32,
        "copies of the state per slot from which later prompts go on, for models with a recurrent state or a sliding "
        "window",
        "-ctxcp --ctx-checkpoints --swa-checkpoints LLAMA_ARG_CTX_CHECKPOINTS",
    )
    checkpoint_step: int = setting(
        8192,
        "tokens between two of these copies at least",
        "-cms --checkpoint-min-step LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
    )
    type_k: str = setting(
        "f16",
        f"type of cached keys: {', '.join(KV_TYPES)}",
        "-ctk --cache-type-k LLAMA_ARG_CACHE_TYPE_K",
        kind=KV_TYPE,
        draft=flag(
            "type of the draft's cached keys",
            "-ctkd --cache-type-k-draft --spec-draft-type-k LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
        ),
    )
    type_v: str = setting(
        "f16",
        "type of cached values",
        "-ctv --cache-type-v LLAMA_ARG_CACHE_TYPE_V",
        kind=KV_TYPE,
        draft=flag(
            "type of the draft's cached values",
            "-ctvd --cache-type-v-draft --spec-draft-type-v LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
        ),
    )
    rope_scaling: str = _of_file(
        "",
        "how positions of the target are stretched beyond its trained context: none, linear or yarn",
        "--rope-scaling LLAMA_ARG_ROPE_SCALING_TYPE",
        kind=choice("none", "linear", "yarn"),
        metavar="TYPE",
    )
    """Empty: what the model file says. So do 0 and negative values of the numbers below."""
    rope_freq_scale: float = _of_file(
        0.0,
        "stretch them by a factor of N",
        "--rope-scale LLAMA_ARG_ROPE_SCALE",
        kind=kinds.ROPE_SCALE,
        also=(
            flag(
                "factor on frequencies: 1/N of --rope-scale",
                "--rope-freq-scale LLAMA_ARG_ROPE_FREQ_SCALE",
                kind=kinds.ROPE_FREQ_SCALE,
                default_text="the model file's",
                after="--rope-freq-base",
            ),
        ),
    )
    rope_freq_base: float = _of_file(
        0.0,
        "base frequency of positions, for NTK-aware stretching",
        "--rope-freq-base LLAMA_ARG_ROPE_FREQ_BASE",
        low=0,
        high=1e15,
    )
    yarn_orig_ctx: int = _of_file(
        0, "for YaRN: context in tokens that the model was trained on first", "--yarn-orig-ctx LLAMA_ARG_YARN_ORIG_CTX"
    )
    yarn_ext_factor: float = _of_file(
        -1.0,
        "for YaRN: mix of extrapolation; 0 is interpolation alone",
        "--yarn-ext-factor LLAMA_ARG_YARN_EXT_FACTOR",
        low=-1,
        high=1e4,
    )
    yarn_attn_factor: float = _of_file(
        -1.0,
        "for YaRN: factor on attention",
        "--yarn-attn-factor LLAMA_ARG_YARN_ATTN_FACTOR",
        low=-1,
        high=1e4,
    )
    yarn_beta_slow: float = _of_file(
        -1.0,
        "for YaRN: high correction dimension",
        "--yarn-beta-slow LLAMA_ARG_YARN_BETA_SLOW",
        low=-1,
        high=1e4,
    )
    yarn_beta_fast: float = _of_file(
        -1.0,
        "for YaRN: low correction dimension",
        "--yarn-beta-fast LLAMA_ARG_YARN_BETA_FAST",
        low=-1,
        high=1e4,
    )
    devices: tuple[str, ...] | None = setting(
        None,
        "devices that layers are put on, by name, with commas between them; none is the CPU alone",
        "-dev --device LLAMA_ARG_DEVICE",
        kind=kinds.DEVICES,
        default_text="all",
        inherited=True,
        draft=flag(
            "the draft's devices",
            "-devd --device-draft --spec-draft-device",
            default_text="as --device if given, else this machine's",
            after="draft model",
        ),
    )
    """None: all; a draft's: all of this machine, where there are workers. (): the CPU."""
    tensor_split: tuple[float, ...] = setting(
        (),
        "shares of the devices, such as 3,1",
        "-ts --tensor-split LLAMA_ARG_TENSOR_SPLIT",
        kind=kinds.SHARES,
        default_text="by free memory",
    )
    tokenizer: Path | None = setting(
        None,
        "tokenizer.json (Hugging Face) that cuts the target's text, where the GGUF's own pre-tokenizer is wrong; its "
        "tokens must agree",
        "--target-tokenizer",
        group="tokenizers",
        draft=flag("the same for the draft", "--draft-tokenizer"),
    )
    hub: HubModel | None = None
    """Where `path` has to be fetched from first, None once it is a file."""
    n_seq: int = 0
    """Sequences that its contexts have at most; 0 where that is not known."""
    n_snapshots: int = 0
    """Earlier values of a recurrent state that are kept, where the model has one."""
    embeds: bool = False
    """The model reads texts for their embeddings: llama.cpp cuts them as it stands in the file."""
    with_head: bool = False
    """The model's head for multi-token prediction is loaded too."""
