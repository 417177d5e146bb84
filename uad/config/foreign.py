"""Flags of llama-server that uad does not have: those that may be ignored without harm, and those that are refused,
with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ignored:
    """Flags that change nothing here. `nargs` as in argparse: 0, 1 or "?"."""

    names: str
    nargs: int | str = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """Flags whose effect the user would miss. `reason` completes "not supported by uad: …"."""

    names: str
    reason: str

    def told(self, where: str) -> str:
        """The complaint about such a flag, named as it was given."""
        return f"{where} is known to llama-server, not supported by uad: {self.reason}"


IGNORED: tuple[Ignored, ...] = (
    Ignored("--jinja --no-jinja --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant"),
    Ignored("--cont-batching -cb --no-cont-batching -nocb"),
    Ignored("--kv-unified -kvu --no-kv-unified -no-kvu --context-shift --no-context-shift --warmup --no-warmup"),
    Ignored("--cache-prompt --no-cache-prompt --cache-idle-slots --no-cache-idle-slots --perf --no-perf --offline"),
    Ignored("--escape -e --no-escape --no-host --op-offload --no-op-offload --check-tensors --reuse-port"),
    Ignored(
        "--kv-offload -kvo --no-kv-offload -nkvo --backend-sampling -bs --spec-draft-backend-sampling "
        "--no-spec-draft-backend-sampling"
    ),
    Ignored(
        "--log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl"
    ),
    Ignored(
        "--no-mmproj --no-mmproj-auto --mmproj-auto --mmproj-offload --no-mmproj-offload --models-autoload "
        "--no-models-autoload"
    ),
    Ignored("--log-colors", "?"),
    Ignored(
        "--log-file --verbosity -lv --log-verbosity --tags --keep --threads-http --slot-prompt-similarity -sps "
        "--defrag-thold -dt",
        1,
    ),
    Ignored("--cache-reuse --cache-ram -cram --lazy-mode -lzm", 1),
    Ignored(
        "--fit-target -fitt --fit-ctx -fitc --numa --prio --prio-batch --poll --poll-batch --cpu-mask -C --cpu-range "
        "-Cr",
        1,
    ),
    Ignored("--cpu-strict --cpu-mask-batch -Cb --cpu-range-batch -Crb --cpu-strict-batch --sleep-idle-seconds", 1),
    Ignored(
        "--cpu-mask-draft -Cd --spec-draft-cpu-mask --cpu-range-draft -Crd --spec-draft-cpu-range --cpu-strict-draft", 1
    ),
    Ignored(
        "--spec-draft-cpu-strict --prio-draft --spec-draft-prio --poll-draft --spec-draft-poll "
        "--cpu-mask-batch-draft -Cbd",
        1,
    ),
    Ignored("--spec-draft-cpu-mask-batch --cpu-strict-batch-draft --spec-draft-cpu-strict-batch --prio-batch-draft", 1),
    Ignored(
        "--spec-draft-prio-batch --poll-batch-draft --spec-draft-poll-batch --spec-draft-p-split --draft-p-split", 1
    ),
)

_LOCAL = "it does not download models; give a GGUF file with --model and --model-draft"
_VISION = "it serves text models only"
_EMBED = "it serves text generation only"
_ADAPTER = "adapters are not applied; merge them into the model file first"
_ONE_DEVICE = "placement on several devices is left to llama.cpp; --n-gpu-layers sets how much goes to the GPU"
_SAMPLER = "it has the samplers that `uad serve --help` lists, in llama.cpp's order"
_CHAT = "the chat template decides; --chat-template-kwargs '{\"enable_thinking\": false}' sets its variables"
_ROPE = "contexts are extended with --rope-scaling and --yarn-orig-ctx"
_NGRAM = "each n-gram type has its own, such as --spec-ngram-simple-size-n"
_AGENT = "it runs no tools"
_ROUTER = "it serves one target model"

REFUSED: tuple[Refused, ...] = (
    Refused("-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo", _LOCAL),
    Refused("-hfd -hfrd --hf-repo-draft --spec-draft-hf -cl --cache-list", _LOCAL),
    Refused(
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec",
        _LOCAL,
    ),
    Refused("--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default", _LOCAL),
    Refused("--vision-gemma-4b-default --vision-gemma-12b-default", _LOCAL),
    Refused(
        "-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --media-path --image-min-tokens --image-max-tokens",
        _VISION,
    ),
    Refused("--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir", _VISION),
    Refused("--embedding --embeddings --rerank --reranking --pooling --embd-normalize", _EMBED),
    Refused("--lora --lora-scaled --lora-init-without-apply", _ADAPTER),
    Refused("--control-vector --control-vector-scaled --control-vector-layer-range", _ADAPTER),
    Refused("--rpc", "models run on this machine"),
    Refused(
        "-dev --device --list-devices -devd --device-draft --spec-draft-device -sm --split-mode -ts --tensor-split",
        _ONE_DEVICE,
    ),
    Refused(
        "-mg --main-gpu -ot --override-tensor -otd --override-tensor-draft --spec-draft-override-tensor", _ONE_DEVICE
    ),
    Refused(
        "-cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -cmoed --cpu-moe-draft --spec-draft-cpu-moe", _ONE_DEVICE
    ),
    Refused("-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe", _ONE_DEVICE),
    Refused("--override-kv", "the model file's own metadata is used"),
    Refused("-gan --grp-attn-n -gaw --grp-attn-w", _ROPE),
    Refused("--samplers --sampler-seq --sampling-seq", _SAMPLER),
    Refused("--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker", _SAMPLER),
    Refused(
        "--adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent",
        _SAMPLER,
    ),
    Refused("-rea --reasoning --reasoning-effort --reasoning-budget --reasoning-budget-message", _CHAT),
    Refused("--reasoning-preserve --no-reasoning-preserve", _CHAT),
    Refused("-sp --special", "special tokens are never part of the text"),
    Refused("-r --reverse-prompt", 'a request names its own "stop" texts'),
    Refused("--spm-infill", "it has no infill endpoint"),
    Refused("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", _NGRAM),
    Refused("--spec-synth-len --spec-synth-rates", "`uad bench` measures with real drafts"),
    Refused("--kv-unified-per-slot", "--ctx-size is shared out evenly among the slots"),
    Refused("--path --ui-config --webui-config --ui-config-file --webui-config-file", "it serves no files"),
    Refused("--ssl-key-file --ssl-cert-file", "it speaks plain HTTP; put a TLS proxy in front"),
    Refused(
        "--cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials",
        "its CORS headers are fixed",
    ),
    Refused("--props", "settings are changed by a restart, not by POST /props"),
    Refused("--slot-save-path", "slots are not saved"),
    Refused("--log-prompts-dir", "prompts are not logged"),
    Refused("--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy --tools --tools-runtime", _AGENT),
    Refused("--mcp-servers-config --mcp-servers-json -ag --agent -no-ag --no-agent", _AGENT),
    Refused("--models-dir --models-preset --models-max", _ROUTER),
    Refused("--completion-bash --usage", "see `uad serve --help`"),
)
