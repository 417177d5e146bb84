"""Flags of what is asked and answered: tokenizers, defaults of sampling, chat templates, the server."""

from __future__ import annotations

from uad.common.samplers import ORDER, SETTINGS
from uad.config import kinds
from uad.config.flag import Flag, setting_flag
from uad.config.kinds import SWITCH, choice, integer, number

TOKENIZER_FLAGS = (
    Flag(
        "--target-tokenizer",
        "target.tokenizer",
        kinds.FILE,
        "tokenizer.json (Hugging Face) that cuts the target's text, where the GGUF's own pre-tokenizer is wrong; its "
        "tokens must agree",
    ),
    Flag("--draft-tokenizer", "draft.tokenizer", kinds.FILE, "the same for the draft"),
)
SAMPLING_FLAGS = (
    *(setting_flag(f"sampling.{name}", setting) for name, setting in SETTINGS.items() if setting.flags),
    Flag(
        "--samplers",
        "sampling.samplers",
        kinds.SAMPLERS,
        "the samplers that run, in this order, separated by ; and any of them several times",
        "NAMES",
        default=";".join(ORDER),
    ),
    Flag(
        "--sampler-seq --sampling-seq",
        "sampling.samplers",
        kinds.SAMPLER_LETTERS,
        "the same as letters, such as edskypmxt",
        "LETTERS",
        default="",
    ),
    Flag(
        "--dry-sequence-breaker",
        "sampling.dry_sequence_breakers",
        kinds.BREAKER,
        "text behind which DRY lets a repetition begin anew, or none; repeatable",
        "TEXT",
        many=True,
        default="line end, colon, double quote, asterisk",
    ),
    Flag("-s --seed", "sampling.seed", kinds.SEED, "seed; one seed gives one text", default="-1, random"),
    Flag(
        "-l --logit-bias",
        "sampling.logit_bias",
        kinds.LOGIT_BIAS,
        "add BIAS to a token's logit; repeatable",
        "ID+BIAS",
        many=True,
    ),
    Flag(
        "--grammar",
        "constraint",
        kinds.GRAMMAR,
        "answers are texts of this grammar (GBNF) if a request names none",
        "TEXT",
    ),
    Flag("--grammar-file", "constraint", kinds.GRAMMAR_FILE, "the same from a file"),
    Flag(
        "-j --json-schema",
        "constraint",
        kinds.JSON_SCHEMA,
        "answers are JSON of this schema if a request names none",
        "JSON",
    ),
    Flag("-jf --json-schema-file", "constraint", kinds.JSON_SCHEMA_FILE, "the same from a file"),
    Flag("--ignore-eos", "sampling.ignore_eos", SWITCH, "go on past the end of the answer"),
)
TEMPLATE_FLAGS = (
    Flag("--chat-template", "templates.chat_template", kinds.TEMPLATE, "use this template", "JINJA", "CHAT_TEMPLATE"),
    Flag(
        "--chat-template-file",
        "templates.chat_template",
        kinds.TEMPLATE_FILE,
        "use the template in this file",
        env="CHAT_TEMPLATE_FILE",
    ),
    Flag(
        "--chat-template-kwargs",
        "templates.kwargs",
        kinds.OBJECT,
        "variables of the chat template",
        "JSON",
        "CHAT_TEMPLATE_KWARGS",
        "LLAMA_CHAT_TEMPLATE_KWARGS",
        default="",
    ),
    Flag(
        "-rea --reasoning",
        "templates.reasoning",
        kinds.ON_OFF_AUTO,
        "whether models think before they answer, where the template or the prompt's end can say so; auto is on",
        "on|off|auto",
        "REASONING",
    ),
    Flag(
        "--reasoning-effort",
        "templates.reasoning_effort",
        kinds.TEXT,
        "how much models think, for templates that know levels such as low, medium, high",
        "LEVEL",
        "REASONING_EFFORT",
        default="as the template has it",
    ),
    Flag(
        "--mappings",
        "templates.mappings",
        kinds.DIRECTORY,
        "folder of your mapping files; repeatable",
        "DIR",
        many=True,
    ),
    Flag(
        "--spec-replace",
        "templates.replace",
        kinds.PAIR,
        "what is TARGET in the target's prompt is DRAFT in the draft's; repeatable, wins over files",
        "TARGET DRAFT",
        many=True,
    ),
    Flag(
        "--target-family", "templates.target_family", kinds.ONE_NAME, "chat format of the target", default="recognised"
    ),
    Flag("--draft-family", "templates.draft_family", kinds.ONE_NAME, "chat format of the draft", default="recognised"),
)
SERVER_FLAGS = (
    Flag("--host", "server.host", kinds.HOSTS, "addresses to listen on, with commas between them", env="HOST"),
    Flag("--port", "server.port", integer(0, 65535), "port; 0 takes a free one and prints it", "PORT", "PORT"),
    Flag(
        "-a --alias",
        "server.alias",
        kinds.NAMES,
        "names of the model in the API, with commas between them",
        env="ALIAS",
        default="the file's name",
    ),
    Flag("--tags", "server.tags", kinds.NAMES, "words about the model for /v1/models, with commas between them"),
    Flag(
        "--cors-origins",
        "server.cors_origins",
        kinds.NAMES,
        "web pages that may use the server beside those of this machine, with commas; localhost: none, *: all",
        "ORIGINS",
        default="* with --api-key, else localhost",
    ),
    Flag("--api-prefix", "server.api_prefix", kinds.PREFIX, "path in front of every route", "/PATH", "API_PREFIX"),
    Flag(
        "--api-key",
        "server.api_keys",
        kinds.KEYS,
        "accepted keys, separated by commas",
        "KEYS",
        whole_env="LLAMA_API_KEY",
        many=True,
    ),
    Flag(
        "--api-key-file",
        "server.api_keys",
        kinds.KEY_FILE,
        "file with one key per line; lines that begin with # are comments",
        env="API_KEY_FILE",
        many=True,
    ),
    *(
        Flag(f"--ssl-{name}-file", f"server.ssl_{name}", kinds.FILE, text, env=f"SSL_{name.upper()}_FILE")
        for name, text in (
            ("key", "private key (PEM): the server speaks HTTPS"),
            ("cert", "its certificate (PEM), with the intermediate ones"),
        )
    ),
    Flag("--reuse-port", "server.reuse_port", SWITCH, "other processes may listen on the same port", env="REUSE_PORT"),
    Flag(
        "-to --timeout",
        "server.timeout",
        number(0.001),
        "seconds until a silent connection is closed",
        "SECONDS",
        "TIMEOUT",
    ),
    Flag(
        "--shutdown-timeout",
        "server.shutdown_timeout",
        number(0.0),
        "seconds that running answers may go on when the server is told to stop",
        "SECONDS",
        "SHUTDOWN_TIMEOUT",
    ),
    Flag(
        "--sse-ping-interval",
        "server.sse_ping_interval",
        kinds.PING,
        "seconds between pings in silent streams, 1 or more; 0 or -1 is none",
        "SECONDS",
        "SSE_PING_INTERVAL",
    ),
    Flag(
        "--cache-prompt",
        "server.cache_prompt",
        SWITCH,
        "a prompt goes on behind what its slot holds of it, for requests that do not say",
        env="CACHE_PROMPT",
        off="--no-cache-prompt",
    ),
    Flag("--slots", "server.slots", SWITCH, "GET /slots", env="ENDPOINT_SLOTS", off="--no-slots"),
    Flag(
        "--ui --webui",
        "server.ui",
        SWITCH,
        "the page at /: chat, race and live view, which show who wrote each token",
        env="UI",
        off="--no-ui --no-webui",
    ),
    Flag("--metrics", "server.metrics", SWITCH, "GET /metrics for Prometheus", env="ENDPOINT_METRICS"),
    Flag(
        "--spm-infill", "server.spm_infill", SWITCH, "put the suffix first in prompts of /infill, as some models prefer"
    ),
    Flag(
        "--max-queue",
        "server.max_queue",
        integer(0, 1 << 20),
        "answers that may wait, one for each choice and prompt; more are refused with 503",
    ),
    Flag(
        "--reasoning-format",
        "server.reasoning_format",
        choice("none", "auto", "deepseek"),
        "where thoughts go in chats: none leaves them in the text, the others put them into reasoning_content",
        "FORMAT",
        "THINK",
    ),
    Flag(
        "--reasoning-budget",
        "server.reasoning_budget",
        integer(-1),
        "most tokens of a thought in chats; -1: no bound, 0: it is closed at once",
        env="THINK_BUDGET",
    ),
    Flag(
        "--reasoning-budget-message",
        "server.reasoning_budget_message",
        kinds.TEXT,
        "what a thought says last that is closed at its bound",
        "MESSAGE",
        "THINK_BUDGET_MESSAGE",
    ),
)
