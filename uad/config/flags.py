"""The table of flags. Command line, environment, configuration file and help text are all made from it; nothing is written twice.

Names follow llama-server where it has the flag. A path is the place of a value in `Config`, such as "target.n_ctx".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uad.common.samplers import SETTINGS
from uad.common.settings import INT32_MAX, Setting
from uad.config import kinds
from uad.config.drafter_types import BESIDE_A_MODEL, LOOKUP_TYPES, MODEL_TYPE, SHARES, SPEC_TYPES, DrafterType
from uad.config.flag import Flag
from uad.config.kinds import SWITCH, choice, integer, number
from uad.config.slices import KV_TYPES
from uad.types import N_MAX_AUTO, N_MAX_FIXED

MODEL, CONTEXT, DRAFT, DRAFTING = "models", "context and speed", "draft model", "drafting"
LOOKUP = "drafting without a model"
TOKENIZERS = "tokenizers"
SAMPLING, TEMPLATES, SERVER, GENERAL = "sampling defaults", "chat templates", "server", "general"
GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, LOOKUP, TOKENIZERS, SAMPLING, TEMPLATES, SERVER, GENERAL)

_ENV = "LLAMA_ARG_"
_KWARGS = f"{_ENV}CHAT_TEMPLATE_KWARGS LLAMA_CHAT_TEMPLATE_KWARGS"
_SAME = "the target's"
_FILE = "the model file's"

CONFIG_FILE = Flag("--config", "", kinds.FILE, GENERAL, "YAML file whose keys are long flag names", "FILE.yaml")


def _flag(path: str, setting: Setting, group: str) -> Flag:
    """The flag of a field of settings that says all about it itself."""
    kind = kinds.FILE if setting.default is None else _number(setting)
    env = _ENV + setting.env if setting.env else ""
    return Flag(setting.flags, path, kind, group, setting.help, setting.metavar, env, default=setting.default_text)


def _number(setting: Setting) -> kinds.Kind:
    return integer(int(setting.low), int(min(setting.high, INT32_MAX))) if setting.is_whole else number(setting.low, setting.high)


_MODELS = (
    Flag("-m --model --target", "target.path", kinds.FILE, MODEL, "GGUF file of the target model", "FILE", _ENV + "MODEL"),
    Flag(
        "-md --model-draft --draft --spec-draft-model",
        "draft.path",
        kinds.DRAFT_FILE,
        MODEL,
        "GGUF file of the draft model, with any tokenizer",
        "FILE",
        f"{_ENV}SPEC_DRAFT_MODEL {_ENV}MODEL_DRAFT",
    ),
    Flag("--mlock", "target.mlock", SWITCH, MODEL, "keep the models in RAM", env=_ENV + "MLOCK", off="--no-mlock"),
    Flag("--mmap", "target.mmap", SWITCH, MODEL, "map the model files instead of reading them", env=_ENV + "MMAP", off="--no-mmap"),
    Flag(
        "--repack",
        "target.repack",
        SWITCH,
        MODEL,
        "rearrange weights for this processor's kernels (off: slower; --exact switches it off where it must, as with K-quants)",
        env=_ENV + "REPACK",
        off="--no-repack -nr",
    ),
    Flag(
        "-lm --load-mode",
        "target.mmap target.mlock",
        kinds.LOAD_MODE,
        MODEL,
        "both in one word: auto, none, mmap, mlock, mmap+mlock",
        "MODE",
        _ENV + "LOAD_MODE",
        default="auto",
    ),
)
_CONTEXT = (
    Flag(
        "-c --ctx-size",
        "target.n_ctx",
        integer(0),
        CONTEXT,
        "context in tokens, shared out evenly among the slots of --parallel; 0 is the model's own, as far as memory goes",
        "N",
        _ENV + "CTX_SIZE",
    ),
    Flag("-n --predict --n-predict", "n_predict", integer(-1), CONTEXT, "most tokens per answer; -1 is no limit", "N", _ENV + "N_PREDICT"),
    Flag("-b --batch-size", "target.n_batch", integer(1), CONTEXT, "most tokens per decode call", "N", _ENV + "BATCH"),
    Flag(
        "-ub --ubatch-size",
        "target.n_ubatch",
        integer(1),
        CONTEXT,
        "most tokens computed at once; on CPUs at most 60 (128 with -fa off)",
        "N",
        _ENV + "UBATCH",
    ),
    Flag(
        "-np --parallel", "n_parallel", kinds.PARALLEL, CONTEXT, "slots: answers that run side by side; -1 is one", "N", _ENV + "N_PARALLEL"
    ),
    Flag(
        "-t --threads",
        "target.n_threads",
        kinds.THREADS,
        CONTEXT,
        "threads for generation",
        "N",
        _ENV + "THREADS",
        default="physical cores",
    ),
    Flag("-tb --threads-batch", "target.n_threads_batch", kinds.THREADS, CONTEXT, "threads for prompts", "N", default="as --threads"),
    Flag(
        "-ngl --gpu-layers --n-gpu-layers",
        "target.n_gpu_layers",
        kinds.GPU_LAYERS,
        CONTEXT,
        "layers kept on the GPU: a number, auto or all",
        "N",
        _ENV + "N_GPU_LAYERS",
        default="auto",
    ),
    Flag(
        "-fa --flash-attn",
        "target.flash_attn",
        kinds.FLASH_ATTENTION,
        CONTEXT,
        "flash attention: on, off or auto",
        "MODE",
        _ENV + "FLASH_ATTN",
        bare="on",
    ),
    Flag(
        "--swa-full",
        "target.swa_full",
        SWITCH,
        CONTEXT,
        "the cache of a sliding window holds all positions, not only the window: more memory, any prefix can be used again",
        env=_ENV + "SWA_FULL",
    ),
    Flag(
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "target.n_checkpoints",
        integer(0),
        CONTEXT,
        "copies of the state per slot from which later prompts go on, for models with a recurrent state or a sliding window",
        "N",
        _ENV + "CTX_CHECKPOINTS",
    ),
    Flag(
        "-cms --checkpoint-min-step",
        "target.checkpoint_step",
        integer(0),
        CONTEXT,
        "tokens between two of these copies at least",
        "N",
        _ENV + "CHECKPOINT_MIN_SPACING_NT",
    ),
    Flag(
        "-ctk --cache-type-k",
        "target.type_k",
        choice(*KV_TYPES),
        CONTEXT,
        f"type of cached keys: {', '.join(KV_TYPES)}",
        "TYPE",
        _ENV + "CACHE_TYPE_K",
    ),
    Flag("-ctv --cache-type-v", "target.type_v", choice(*KV_TYPES), CONTEXT, "type of cached values", "TYPE", _ENV + "CACHE_TYPE_V"),
    Flag(
        "-fit --fit",
        "fit",
        kinds.ON_OFF,
        CONTEXT,
        "compare contexts with the memory that there is: without -c the largest that fits is chosen, one that does not fit is refused",
        "MODE",
        _ENV + "FIT",
        bare="on",
    ),
    Flag(
        "--rope-scaling",
        "target.rope_scaling",
        choice("none", "linear", "yarn"),
        CONTEXT,
        "how positions of the target are stretched beyond its trained context: none, linear or yarn",
        "TYPE",
        _ENV + "ROPE_SCALING_TYPE",
        default=_FILE,
    ),
    Flag(
        "--rope-scale",
        "target.rope_freq_scale",
        kinds.ROPE_SCALE,
        CONTEXT,
        "stretch them by a factor of N",
        "N",
        _ENV + "ROPE_SCALE",
        default=_FILE,
    ),
    *(
        Flag(
            f"--{name}", f"target.{name.replace('-', '_')}", kind, CONTEXT, text, "N", _ENV + name.replace("-", "_").upper(), default=_FILE
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
_DRAFT = (
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
        _ENV + "N_GPU_LAYERS_DRAFT",
        default=_SAME,
    ),
    Flag(
        "-ctkd --cache-type-k-draft --spec-draft-type-k",
        "draft.type_k",
        choice(*KV_TYPES),
        DRAFT,
        "type of the draft's cached keys",
        "TYPE",
        _ENV + "SPEC_DRAFT_CACHE_TYPE_K",
    ),
    Flag(
        "-ctvd --cache-type-v-draft --spec-draft-type-v",
        "draft.type_v",
        choice(*KV_TYPES),
        DRAFT,
        "type of the draft's cached values",
        "TYPE",
        _ENV + "SPEC_DRAFT_CACHE_TYPE_V",
    ),
)


def _lookup_flags(one: DrafterType) -> Iterator[Flag]:
    """The flags of a drafter without a model; a setting without names of its own is named after its field."""
    for name, own in one.settings.items():
        flags = own.flags or f"--spec-{one.origin}-{name.replace('_', '-')}"
        yield _flag(f"drafting.lookup.{one.section}.{name}", replace(own, flags=flags, help=f"{one.origin}: {own.help}"), LOOKUP)


_N_MAX = "--spec-draft-n-max --draft-max --draft-n"
_N_MIN = "--spec-draft-n-min --draft-min --draft-n-min"
_DRAFTING = (
    Flag(
        "--spec-policy",
        "drafting.defaults.policy",
        kinds.SPEC_POLICY,
        DRAFTING,
        "who decides how far to draft: auto (what pays on this machine, at most --spec-draft-n-max) or fixed (n-max, n-min, p-min)",
        "POLICY",
        _ENV + "SPEC_POLICY",
    ),
    Flag(
        _N_MAX,
        "drafting.defaults.n_max",
        integer(0),
        DRAFTING,
        "most tokens per draft of the draft model; 0: nothing drafts",
        "N",
        f"{_ENV}SPEC_DRAFT_N_MAX {_ENV}DRAFT_MAX",
        default=f"{N_MAX_FIXED} where they are fixed, {N_MAX_AUTO} where the policy chooses",
    ),
    Flag(
        _N_MIN,
        "drafting.defaults.n_min",
        integer(0),
        DRAFTING,
        "shorter drafts are not tried",
        "N",
        f"{_ENV}SPEC_DRAFT_N_MIN {_ENV}DRAFT_MIN",
    ),
    Flag(
        "--spec-draft-p-min --draft-p-min",
        "drafting.defaults.p_min",
        number(0, 1),
        DRAFTING,
        "a draft ends before a token less likely than this",
        "P",
        f"{_ENV}SPEC_DRAFT_P_MIN {_ENV}DRAFT_P_MIN",
    ),
    Flag(
        "--spec-type",
        "drafting.types",
        kinds.SPEC_TYPE,
        DRAFTING,
        f"drafters, separated by commas: {', '.join(SPEC_TYPES)}; or none",
        "TYPES",
        _ENV + "SPEC_TYPE",
        default=f"{MODEL_TYPE}, with {BESIDE_A_MODEL} beside it where the policy is automatic",
    ),
    Flag("--spec-default", "drafting.spec_default", SWITCH, DRAFTING, "ngram-mod as well, as in llama-server"),
    Flag(
        "--spec-share",
        "drafting.lookup.share",
        choice(*SHARES),
        LOOKUP,
        "whose earlier texts serve a request's drafts: its own only (off), those of its slot, or all of the server",
        "SCOPE",
        default="server; slot with several API keys",
    ),
    *(flag for one in LOOKUP_TYPES for flag in _lookup_flags(one)),
    Flag("", "drafting.defaults.enabled", SWITCH, DRAFTING, "do not load the draft model; plain decoding", off="--no-draft", default=""),
    Flag(
        "--exact",
        "drafting.exact",
        SWITCH,
        DRAFTING,
        "measure at start which batch sizes give the same bits, and pad smaller ones (for BF16, F16 and K-quants, and with -fa off)",
    ),
    Flag(
        "--spec-draft-window",
        "drafting.window",
        integer(0),
        DRAFTING,
        "most tokens that the draft model reads to catch up with a text; of more it reads the last ones (0: all)",
        "N",
    ),
    Flag(
        "--spec-grammar",
        "drafting.grammar",
        kinds.ON_OFF,
        DRAFTING,
        "draft what a request's grammar or schema forces; needs no draft model and no --spec-type",
        "MODE",
        bare="on",
    ),
    Flag("--heal", "drafting.heal", SWITCH, DRAFTING, "re-choose draft bytes where words are cut at the edge", off="--no-heal"),
    Flag("--salvage", "drafting.salvage", SWITCH, DRAFTING, "reuse what is left of a draft after other cut points", off="--no-salvage"),
)
_TOKENIZERS = (
    Flag(
        "--target-tokenizer",
        "target.tokenizer",
        kinds.FILE,
        TOKENIZERS,
        "tokenizer.json (Hugging Face) that cuts the target's text, where the GGUF's own pre-tokenizer is wrong; its tokens must agree",
        "FILE",
    ),
    Flag("--draft-tokenizer", "draft.tokenizer", kinds.FILE, TOKENIZERS, "the same for the draft", "FILE"),
)
_SAMPLING = (
    *(_flag(f"sampling.{name}", setting, SAMPLING) for name, setting in SETTINGS.items()),
    Flag("-s --seed", "sampling.seed", kinds.SEED, SAMPLING, "seed; one seed gives one text", "N", default="-1, random"),
    Flag(
        "-l --logit-bias",
        "sampling.logit_bias",
        kinds.LOGIT_BIAS,
        SAMPLING,
        "add BIAS to a token's logit; repeatable",
        "ID+BIAS",
        many=True,
    ),
    Flag("--grammar", "constraint", kinds.GRAMMAR, SAMPLING, "answers are texts of this grammar (GBNF) if a request names none", "TEXT"),
    Flag("--grammar-file", "constraint", kinds.GRAMMAR_FILE, SAMPLING, "the same from a file", "FILE"),
    Flag("-j --json-schema", "constraint", kinds.JSON_SCHEMA, SAMPLING, "answers are JSON of this schema if a request names none", "JSON"),
    Flag("-jf --json-schema-file", "constraint", kinds.JSON_SCHEMA_FILE, SAMPLING, "the same from a file", "FILE"),
    Flag("--ignore-eos", "sampling.ignore_eos", SWITCH, SAMPLING, "go on past the end of the answer"),
)
_TEMPLATES = (
    Flag("--chat-template", "templates.chat_template", kinds.TEMPLATE, TEMPLATES, "use this template", "JINJA", _ENV + "CHAT_TEMPLATE"),
    Flag(
        "--chat-template-file",
        "templates.chat_template",
        kinds.TEMPLATE_FILE,
        TEMPLATES,
        "use the template in this file",
        "FILE",
        _ENV + "CHAT_TEMPLATE_FILE",
    ),
    Flag("--chat-template-kwargs", "templates.kwargs", kinds.OBJECT, TEMPLATES, "its variables", "JSON", _KWARGS, default=""),
    Flag("--mappings", "templates.mappings", kinds.DIRECTORY, TEMPLATES, "more mapping rules; repeatable", "DIR", many=True),
    Flag(
        "--spec-replace",
        "templates.replace",
        kinds.PAIR,
        TEMPLATES,
        "what is TARGET in the target's prompt is DRAFT in the draft's; repeatable, wins over files",
        "TARGET DRAFT",
        many=True,
    ),
    Flag(
        "--target-family", "templates.target_family", kinds.ONE_NAME, TEMPLATES, "chat format of the target", "NAME", default="recognised"
    ),
    Flag("--draft-family", "templates.draft_family", kinds.ONE_NAME, TEMPLATES, "chat format of the draft", "NAME", default="recognised"),
)
_SERVER = (
    Flag("--host", "server.host", kinds.ONE_NAME, SERVER, "address to listen on", "HOST", _ENV + "HOST"),
    Flag("--port", "server.port", integer(0, 65535), SERVER, "port; 0 takes a free one and prints it", "PORT", _ENV + "PORT"),
    Flag(
        "-a --alias",
        "server.alias",
        kinds.ONE_NAME,
        SERVER,
        "name of the model in the API",
        "NAME",
        _ENV + "ALIAS",
        default="the file's name",
    ),
    Flag("--api-prefix", "server.api_prefix", kinds.PREFIX, SERVER, "path in front of every route", "/PATH", _ENV + "API_PREFIX"),
    Flag("--api-key", "server.api_keys", kinds.KEYS, SERVER, "accepted keys, separated by commas", "KEYS", "LLAMA_API_KEY", many=True),
    Flag(
        "--api-key-file",
        "server.api_keys",
        kinds.KEY_FILE,
        SERVER,
        "file with one key per line; lines that begin with # are comments",
        "FILE",
        _ENV + "API_KEY_FILE",
        many=True,
    ),
    Flag(
        "-to --timeout", "server.timeout", number(0.001), SERVER, "seconds until a silent connection is closed", "SECONDS", _ENV + "TIMEOUT"
    ),
    Flag(
        "--sse-ping-interval",
        "server.sse_ping_interval",
        kinds.PING,
        SERVER,
        "seconds between pings in silent streams, 1 or more; 0 or -1 is none",
        "SECONDS",
        _ENV + "SSE_PING_INTERVAL",
    ),
    Flag("--slots", "server.slots", SWITCH, SERVER, "GET /slots", env=_ENV + "ENDPOINT_SLOTS", off="--no-slots"),
    Flag("--metrics", "server.metrics", SWITCH, SERVER, "GET /metrics for Prometheus", env=_ENV + "ENDPOINT_METRICS"),
    Flag(
        "--max-queue",
        "server.max_queue",
        integer(0, 1 << 20),
        SERVER,
        "answers that may wait, one for each choice and prompt; more are refused with 503",
        "N",
    ),
    Flag(
        "--reasoning-format",
        "server.reasoning_format",
        choice("none", "auto", "deepseek"),
        SERVER,
        "where thoughts go in chats: none leaves them in the text, the others put them into reasoning_content",
        "FORMAT",
        _ENV + "THINK",
    ),
)
_GENERAL = (Flag("-v --verbose --log-verbose", "verbose", SWITCH, GENERAL, "show llama.cpp's log too"), CONFIG_FILE)

FLAGS: tuple[Flag, ...] = (*_MODELS, *_CONTEXT, *_DRAFT, *_DRAFTING, *_TOKENIZERS, *_SAMPLING, *_TEMPLATES, *_SERVER, *_GENERAL)
