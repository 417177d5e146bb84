"""Flags of llama-server that uad does not have: those that may be ignored without harm, and those that are refused,
with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from uad.errors import ConfigError


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


IGNORED: tuple[Ignored, ...] = (
    Ignored("--jinja --no-jinja --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant"),
    Ignored("--cont-batching -cb --no-cont-batching -nocb"),
    Ignored("--kv-unified -kvu --no-kv-unified -no-kvu --no-context-shift --warmup --no-warmup"),
    Ignored("--cache-idle-slots --no-cache-idle-slots --perf --no-perf"),
    Ignored("--escape -e --no-escape"),
    Ignored("--backend-sampling -bs --spec-draft-backend-sampling --no-spec-draft-backend-sampling"),
    Ignored(
        "--log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl"
    ),
    Ignored(
        "--no-mmproj --no-mmproj-auto --mmproj-auto --mmproj-offload --no-mmproj-offload --models-autoload "
        "--no-models-autoload"
    ),
    Ignored("--log-colors", "?"),
    Ignored(
        "--verbosity -lv --log-verbosity --tags --keep --threads-http --slot-prompt-similarity -sps --defrag-thold -dt",
        1,
    ),
    Ignored("--cache-reuse --lazy-mode -lzm", 1),
    Ignored(
        "--fit-target -fitt --fit-ctx -fitc --prio --prio-batch --poll --poll-batch --cpu-mask -C --cpu-range -Cr",
        1,
    ),
    Ignored("--cpu-strict --cpu-mask-batch -Cb --cpu-range-batch -Crb --cpu-strict-batch", 1),
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

_LOCAL = "it fetches models from Hugging Face repositories only; name one with --hf-repo and --hf-repo-draft"
_VISION = "it serves text models only"
_EMBED = "it serves text generation only"
_VECTOR = "control vectors are not applied; --lora applies adapters"
_ONE_DEVICE = "layers are placed whole, with --device, --tensor-split and --n-gpu-layers"
_CHAT = "the chat template decides; --chat-template-kwargs '{\"enable_thinking\": false}' sets its variables"
_ROPE = "contexts are extended with --rope-scaling and --yarn-orig-ctx"
_NGRAM = "each n-gram type has its own, such as --spec-ngram-simple-size-n"
_AGENT = "it runs no tools"
_ROUTER = "it serves one target model"

REFUSED: tuple[Refused, ...] = (
    Refused("-mu --model-url -dr --docker-repo", _LOCAL),
    Refused("-cl --cache-list", "`hf cache ls` lists what was fetched"),
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
    Refused("--control-vector --control-vector-scaled --control-vector-layer-range", _VECTOR),
    Refused("--list-devices", "`uad rpc-worker --list-devices` prints this machine's; a wrong --device lists all"),
    Refused("-sm --split-mode", "layers are shared out as --device and --tensor-split say"),
    Refused("-mg --main-gpu", _ONE_DEVICE),
    Refused("--context-shift", "an answer ends where the context is full; give more of it with --ctx-size"),
    Refused("--sleep-idle-seconds", "the models stay loaded until the process ends"),
    Refused("-gan --grp-attn-n -gaw --grp-attn-w", _ROPE),
    Refused("--reasoning-preserve --no-reasoning-preserve", _CHAT),
    Refused("-sp --special", "special tokens are never part of the text"),
    Refused("-r --reverse-prompt", 'a request names its own "stop" texts'),
    Refused("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", _NGRAM),
    Refused("--spec-synth-len --spec-synth-rates", "`uad bench` measures with real drafts"),
    Refused("--kv-unified-per-slot", "--ctx-size is shared out evenly among the slots"),
    Refused("--path --ui-config --webui-config --ui-config-file --webui-config-file", "it serves no files"),
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


def check_refused(name: str, where: str) -> None:
    """Raises ConfigError, which says why, where uad refuses the flag of this name; where: as the user wrote it."""
    for refused in REFUSED:
        if name in refused.names.split():
            raise ConfigError(f"{where} is known to llama-server, not supported by uad: {refused.reason}")
