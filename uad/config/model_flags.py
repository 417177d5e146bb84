"""Flags of the models' files, and of the draft model."""

from __future__ import annotations

from uad.config import kinds, sources
from uad.config.context_flags import placed
from uad.config.flag import Flag
from uad.config.kinds import KV_TYPE, SWITCH, choice, integer

_SAME = "the target's"

MODEL_FLAGS = (
    Flag("-m --model --target", "target.path", kinds.FILE, "GGUF file of the target model", env="MODEL"),
    Flag(
        "-md --model-draft --draft --spec-draft-model",
        "draft.path",
        kinds.DRAFT_FILE,
        "GGUF file of the draft model, with any tokenizer",
        env="SPEC_DRAFT_MODEL MODEL_DRAFT",
    ),
    Flag(
        "-hf -hfr --hf-repo",
        "target.path",
        sources.HUB_MODEL,
        "the target from a Hugging Face repository, fetched into its cache; QUANT is Q4_K_M unless given, else Q8_0, "
        "else that of the first file",
        env="HF_REPO",
    ),
    Flag("-hff --hf-file", "hub.file", sources.HUB_FILE, "the file of that repository to load", env="HF_FILE"),
    Flag(
        "-hfd -hfrd --hf-repo-draft --spec-draft-hf",
        "draft.path",
        sources.HUB_MODEL,
        "the same for the draft",
        env="SPEC_DRAFT_HF_REPO",
    ),
    Flag(
        "-hft --hf-token",
        "hub.token",
        sources.HUB_TOKEN,
        "token for repositories that are private or gated",
        "TOKEN",
        whole_env="HF_TOKEN",
        default="the one that `hf auth login` stored",
    ),
    Flag("--offline", "hub.offline", SWITCH, "models of hubs come from the cache only", env="OFFLINE"),
    Flag(
        "--lora",
        "target.loras",
        sources.LORAS,
        "adapter (LoRA, GGUF) for the target, several with commas between them; repeatable",
        many=True,
    ),
    Flag(
        "--lora-scaled",
        "target.loras",
        sources.LORAS_SCALED,
        "the same with how much of it is added; repeatable",
        "FILE:SCALE",
        many=True,
    ),
    Flag(
        "",
        "target.apply_loras",
        SWITCH,
        "load adapters without adding them, until POST /lora-adapters does",
        off="--lora-init-without-apply",
        default="",
    ),
    Flag(
        "--override-kv",
        "target.overrides",
        sources.KV_OVERRIDES,
        "replace a value of the target's metadata, several with commas between them; repeatable",
        "KEY=TYPE:VALUE",
        many=True,
    ),
    Flag("--check-tensors", "target.check_tensors", SWITCH, "look for invalid numbers in the model files"),
    Flag(
        "--numa",
        "numa",
        choice("distribute", "isolate", "numactl"),
        "on machines with several memory nodes: distribute, isolate or numactl",
        "TYPE",
        "NUMA",
    ),
    Flag("--mlock", "target.mlock", SWITCH, "keep the models in RAM", env="MLOCK", off="--no-mlock"),
    Flag("--mmap", "target.mmap", SWITCH, "map the model files instead of reading them", env="MMAP", off="--no-mmap"),
    Flag(
        "--repack",
        "target.repack",
        SWITCH,
        "rearrange weights for this processor's kernels (off: slower; --exact switches it off where it must, as with "
        "K-quants)",
        env="REPACK",
        off="--no-repack -nr",
    ),
    Flag(
        "-lm --load-mode",
        "target.mmap target.mlock",
        kinds.LOAD_MODE,
        "what --mmap and --mlock say, in one word: auto, none, mmap, mlock, mmap+mlock",
        "MODE",
        "LOAD_MODE",
        default="auto",
    ),
)
DRAFT_FLAGS = (
    Flag(
        "-devd --device-draft --spec-draft-device",
        "draft.devices",
        kinds.DEVICES,
        "the draft's devices",
        default="as --device if given, else this machine's",
    ),
    *placed("draft", "-draft"),
    Flag(
        "-cd --ctx-size-draft",
        "draft.n_ctx",
        integer(0),
        "the draft's context in tokens, for all slots; 0: the target's, as far as it was trained",
    ),
    Flag(
        "-td --threads-draft --spec-draft-threads",
        "draft.n_threads",
        kinds.THREADS,
        "threads for drafting",
        default="--threads if given, else one or all cores, what is faster",
    ),
    Flag(
        "-tbd --threads-batch-draft --spec-draft-threads-batch",
        "draft.n_threads_batch",
        kinds.THREADS,
        "threads for prompts in the draft model",
        default="as -tb if given, else as -td, else all cores",
    ),
    Flag(
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
        "draft.n_gpu_layers",
        kinds.GPU_LAYERS,
        "the draft's layers kept on the GPU",
        env="N_GPU_LAYERS_DRAFT",
        default=_SAME,
    ),
    Flag(
        "-ctkd --cache-type-k-draft --spec-draft-type-k",
        "draft.type_k",
        KV_TYPE,
        "type of the draft's cached keys",
        env="SPEC_DRAFT_CACHE_TYPE_K",
    ),
    Flag(
        "-ctvd --cache-type-v-draft --spec-draft-type-v",
        "draft.type_v",
        KV_TYPE,
        "type of the draft's cached values",
        env="SPEC_DRAFT_CACHE_TYPE_V",
    ),
)
