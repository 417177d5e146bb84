"""Flags of the models' files, and of the draft model."""

from __future__ import annotations

from typing import Final

from uad.config import kinds, sources
from uad.config.context_flags import placed
from uad.config.flag import Flag
from uad.config.flags import (
    DRAFT,
    ENV,
    MODEL,
)
from uad.config.kinds import SWITCH, choice, integer
from uad.config.slices import KV_TYPES

_SAME = "the target's"

MODEL_FLAGS: Final = (
    Flag(
        "-m --model --target", "target.path", kinds.FILE, MODEL, "GGUF file of the target model", "FILE", ENV + "MODEL"
    ),
    Flag(
        "-md --model-draft --draft --spec-draft-model",
        "draft.path",
        kinds.DRAFT_FILE,
        MODEL,
        "GGUF file of the draft model, with any tokenizer",
        "FILE",
        f"{ENV}SPEC_DRAFT_MODEL {ENV}MODEL_DRAFT",
    ),
    Flag(
        "-hf -hfr --hf-repo",
        "target.path",
        sources.HUB_MODEL,
        MODEL,
        "the target from a Hugging Face repository, fetched into its cache; QUANT is Q4_K_M unless given, else Q8_0, "
        "else that of the first file",
        "USER/REPO[:QUANT]",
        ENV + "HF_REPO",
        default="",
    ),
    Flag(
        "-hff --hf-file",
        "hub.file",
        sources.HUB_FILE,
        MODEL,
        "the file of that repository to load",
        "FILE",
        ENV + "HF_FILE",
        default="",
    ),
    Flag(
        "-hfd -hfrd --hf-repo-draft --spec-draft-hf",
        "draft.path",
        sources.HUB_MODEL,
        MODEL,
        "the same for the draft",
        "USER/REPO[:QUANT]",
        ENV + "SPEC_DRAFT_HF_REPO",
        default="",
    ),
    Flag(
        "-hft --hf-token",
        "hub.token",
        sources.HUB_TOKEN,
        MODEL,
        "token for repositories that are private or gated",
        "TOKEN",
        "HF_TOKEN",
        default="the one that `hf auth login` stored",
    ),
    Flag("--offline", "hub.offline", SWITCH, MODEL, "models of hubs come from the cache only", env=ENV + "OFFLINE"),
    Flag(
        "--lora",
        "target.loras",
        sources.LORAS,
        MODEL,
        "adapter (LoRA, GGUF) for the target, several with commas between them; repeatable",
        "FILE",
        many=True,
    ),
    Flag(
        "--lora-scaled",
        "target.loras",
        sources.LORAS_SCALED,
        MODEL,
        "the same with how much of it is added; repeatable",
        "FILE:SCALE",
        many=True,
    ),
    Flag(
        "",
        "target.apply_loras",
        SWITCH,
        MODEL,
        "load adapters without adding them, until POST /lora-adapters does",
        off="--lora-init-without-apply",
        default="",
    ),
    Flag(
        "--override-kv",
        "target.overrides",
        sources.KV_OVERRIDES,
        MODEL,
        "replace a value of the target's metadata, several with commas between them; repeatable",
        "KEY=TYPE:VALUE",
        many=True,
    ),
    Flag("--check-tensors", "target.check_tensors", SWITCH, MODEL, "look for invalid numbers in the model files"),
    Flag(
        "--numa",
        "numa",
        choice("distribute", "isolate", "numactl"),
        MODEL,
        "on machines with several memory nodes: distribute, isolate or numactl",
        "TYPE",
        ENV + "NUMA",
    ),
    Flag("--mlock", "target.mlock", SWITCH, MODEL, "keep the models in RAM", env=ENV + "MLOCK", off="--no-mlock"),
    Flag(
        "--mmap",
        "target.mmap",
        SWITCH,
        MODEL,
        "map the model files instead of reading them",
        env=ENV + "MMAP",
        off="--no-mmap",
    ),
    Flag(
        "--repack",
        "target.repack",
        SWITCH,
        MODEL,
        "rearrange weights for this processor's kernels (off: slower; --exact switches it off where it must, as with "
        "K-quants)",
        env=ENV + "REPACK",
        off="--no-repack -nr",
    ),
    Flag(
        "-lm --load-mode",
        "target.mmap target.mlock",
        kinds.LOAD_MODE,
        MODEL,
        "both in one word: auto, none, mmap, mlock, mmap+mlock",
        "MODE",
        ENV + "LOAD_MODE",
        default="auto",
    ),
)
DRAFT_FLAGS: Final = (
    *placed("draft", "-draft"),
    Flag(
        "-cd --ctx-size-draft",
        "draft.n_ctx",
        integer(0),
        DRAFT,
        "the draft's context in tokens, for all slots; 0: the target's, as far as it was trained",
        "N",
    ),
    Flag(
        "-td --threads-draft --spec-draft-threads",
        "draft.n_threads",
        kinds.THREADS,
        DRAFT,
        "threads for drafting",
        "N",
        default="--threads if given, else one or all cores, what is faster",
    ),
    Flag(
        "-tbd --threads-batch-draft --spec-draft-threads-batch",
        "draft.n_threads_batch",
        kinds.THREADS,
        DRAFT,
        "threads for prompts in the draft model",
        "N",
        default="as -tb if given, else as -td, else all cores",
    ),
    Flag(
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
        "draft.n_gpu_layers",
        kinds.GPU_LAYERS,
        DRAFT,
        "the draft's layers kept on the GPU",
        "N",
        ENV + "N_GPU_LAYERS_DRAFT",
        default=_SAME,
    ),
    Flag(
        "-ctkd --cache-type-k-draft --spec-draft-type-k",
        "draft.type_k",
        choice(*KV_TYPES),
        DRAFT,
        "type of the draft's cached keys",
        "TYPE",
        ENV + "SPEC_DRAFT_CACHE_TYPE_K",
    ),
    Flag(
        "-ctvd --cache-type-v-draft --spec-draft-type-v",
        "draft.type_v",
        choice(*KV_TYPES),
        DRAFT,
        "type of the draft's cached values",
        "TYPE",
        ENV + "SPEC_DRAFT_CACHE_TYPE_V",
    ),
)
