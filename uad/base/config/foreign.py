"""Flags that uad does not have: those of llama-server that may be ignored without harm, those that are refused with a
reason, and those that an earlier release had.
"""

from __future__ import annotations

from uad.base.errors import ConfigError

IGNORED: dict[int, str] = {
    0: (
        "--jinja --no-jinja --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant "
        "--cont-batching -cb --no-cont-batching -nocb --kv-unified -kvu --no-kv-unified -no-kvu --no-context-shift "
        "--warmup --no-warmup --perf --no-perf --escape -e --no-escape "
        "--spec-draft-backend-sampling --no-spec-draft-backend-sampling "
        "--log-jsonl --no-log-jsonl"
    ),
    1: (
        "--keep --threads-http --slot-prompt-similarity -sps --defrag-thold -dt "
        "--cache-reuse --lazy-mode -lzm --fit-target -fitt --fit-ctx -fitc "
        "--prio --prio-batch --poll --poll-batch --cpu-mask -C --cpu-range -Cr "
        "--cpu-strict --cpu-mask-batch -Cb --cpu-range-batch -Crb --cpu-strict-batch "
        "--cpu-mask-draft -Cd --spec-draft-cpu-mask --cpu-range-draft -Crd --spec-draft-cpu-range --cpu-strict-draft "
        "--spec-draft-cpu-strict --prio-draft --spec-draft-prio --poll-draft --spec-draft-poll "
        "--cpu-mask-batch-draft -Cbd --spec-draft-cpu-mask-batch --cpu-strict-batch-draft "
        "--spec-draft-cpu-strict-batch --prio-batch-draft --spec-draft-prio-batch --poll-batch-draft "
        "--spec-draft-poll-batch --spec-draft-p-split --draft-p-split"
    ),
}
"""Names of flags that change nothing here, by how many values they take, as argparse says it: 0 or 1."""

REFUSED: dict[str, str] = {
    "it fetches models from Hugging Face repositories only; name one with --hf-repo and --hf-repo-draft": (
        "-mu --model-url -dr --docker-repo --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default "
        "--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default "
        "--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default"
    ),
    "`hf cache ls` lists what was fetched": "-cl --cache-list",
    "a projector is a file, or in the repository of --hf-repo; fetch it and name it with --mmproj": (
        "-mmu --mmproj-url"
    ),
    "a projector is on the first of the target's devices (--device), or beside the CPU (--no-mmproj-offload)": (
        "-mmdev --mmproj-device"
    ),
    "images are encoded one by one": "--mtmd-batch-max-tokens",
    "it sees images, and no videos": "--video-fps --video-timestamp-interval --video-ffmpeg-dir",
    "control vectors are not applied; --lora applies adapters": (
        "--control-vector --control-vector-scaled --control-vector-layer-range"
    ),
    "`uad rpc-worker --list-devices` prints this machine's; a wrong --device lists all": "--list-devices",
    "layers are shared out as --device and --tensor-split say": "-sm --split-mode",
    "layers are placed whole, with --device, --tensor-split and --n-gpu-layers": "-mg --main-gpu",
    "an answer ends where the context is full; give more of it with --ctx-size": "--context-shift",
    "contexts are extended with --rope-scaling and --yarn-orig-ctx": "-gan --grp-attn-n -gaw --grp-attn-w",
    "the chat template decides; --chat-template-kwargs '{\"enable_thinking\": false}' sets its variables": (
        "--reasoning-preserve --no-reasoning-preserve"
    ),
    "special tokens are never part of the text": "-sp --special",
    'a request names its own "stop" texts': "-r --reverse-prompt",
    "each n-gram type has its own, such as --spec-ngram-simple-size-n": (
        "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits"
    ),
    "`uad inspect --measure` measures with real drafts": "--spec-synth-len --spec-synth-rates",
    "--ctx-size is shared out evenly among the slots": "--kv-unified-per-slot",
    "it serves no files": "--path --ui-config --webui-config --ui-config-file --webui-config-file",
    "its other CORS headers are fixed": "--cors-methods --cors-headers --cors-credentials --no-cors-credentials",
    "settings are changed by a restart, not by POST /props": "--props",
    "prompts are not logged": "--log-prompts-dir",
    "it runs no tools": (
        "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy --tools --tools-runtime "
        "--mcp-servers-config --mcp-servers-json -ag --agent -no-ag --no-agent"
    ),
    "see `uad serve --help`": "--completion-bash --usage",
}
"""Names of flags whose effect the user would miss, by the reason, which completes "not supported by uad: …"."""

GONE: dict[str, str] = {
    "the draft is always healed, and what is left of it always reused; leave the flag out": (
        "--heal --no-heal --salvage --no-salvage"
    ),
}
"""Names of flags that an earlier release had, by the reason, which completes "is gone: …"."""


def check_refused(name: str, where: str) -> None:
    """Raises ConfigError, which says why, where uad refuses the flag of this name; where: as the user wrote it."""
    for reason, names in GONE.items():
        if name in names.split():
            raise ConfigError(f"{where} is gone: {reason}")
    for reason, names in REFUSED.items():
        if name in names.split():
            raise ConfigError(f"{where} is known to llama-server, not supported by uad: {reason}")
