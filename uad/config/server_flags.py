"""Flags of what is asked and answered: tokenizers, defaults of sampling, chat templates, the server."""

from __future__ import annotations

from typing import Final

from uad.common.samplers import SETTINGS
from uad.config import kinds
from uad.config.flag import Flag
from uad.config.flag_groups import (
    ENV,
    SAMPLING,
    SERVER,
    TEMPLATES,
    TOKENIZERS,
    setting_flag,
)
from uad.config.kinds import SWITCH, choice, integer, number

_KWARGS = f"{ENV}CHAT_TEMPLATE_KWARGS LLAMA_CHAT_TEMPLATE_KWARGS"

TOKENIZER_FLAGS: Final = (
    Flag(
        "--target-tokenizer",
        "target.tokenizer",
        kinds.FILE,
        TOKENIZERS,
        "tokenizer.json (Hugging Face) that cuts the target's text, where the GGUF's own pre-tokenizer is wrong; its "
        "tokens must agree",
        "FILE",
    ),
    Flag("--draft-tokenizer", "draft.tokenizer", kinds.FILE, TOKENIZERS, "the same for the draft", "FILE"),
)
SAMPLING_FLAGS: Final = (
    *(setting_flag(f"sampling.{name}", setting, SAMPLING) for name, setting in SETTINGS.items()),
    Flag(
        "-s --seed", "sampling.seed", kinds.SEED, SAMPLING, "seed; one seed gives one text", "N", default="-1, random"
    ),
    Flag(
        "-l --logit-bias",
        "sampling.logit_bias",
        kinds.LOGIT_BIAS,
        SAMPLING,
        "add BIAS to a token's logit; repeatable",
        "ID+BIAS",
        many=True,
    ),
    Flag(
        "--grammar",
        "constraint",
        kinds.GRAMMAR,
        SAMPLING,
        "answers are texts of this grammar (GBNF) if a request names none",
        "TEXT",
    ),
    Flag("--grammar-file", "constraint", kinds.GRAMMAR_FILE, SAMPLING, "the same from a file", "FILE"),
    Flag(
        "-j --json-schema",
        "constraint",
        kinds.JSON_SCHEMA,
        SAMPLING,
        "answers are JSON of this schema if a request names none",
        "JSON",
    ),
    Flag("-jf --json-schema-file", "constraint", kinds.JSON_SCHEMA_FILE, SAMPLING, "the same from a file", "FILE"),
    Flag("--ignore-eos", "sampling.ignore_eos", SWITCH, SAMPLING, "go on past the end of the answer"),
)
TEMPLATE_FLAGS: Final = (
    Flag(
        "--chat-template",
        "templates.chat_template",
        kinds.TEMPLATE,
        TEMPLATES,
        "use this template",
        "JINJA",
        ENV + "CHAT_TEMPLATE",
    ),
    Flag(
        "--chat-template-file",
        "templates.chat_template",
        kinds.TEMPLATE_FILE,
        TEMPLATES,
        "use the template in this file",
        "FILE",
        ENV + "CHAT_TEMPLATE_FILE",
    ),
    Flag(
        "--chat-template-kwargs",
        "templates.kwargs",
        kinds.OBJECT,
        TEMPLATES,
        "its variables",
        "JSON",
        _KWARGS,
        default="",
    ),
    Flag(
        "--mappings",
        "templates.mappings",
        kinds.DIRECTORY,
        TEMPLATES,
        "more mapping rules; repeatable",
        "DIR",
        many=True,
    ),
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
        "--target-family",
        "templates.target_family",
        kinds.ONE_NAME,
        TEMPLATES,
        "chat format of the target",
        "NAME",
        default="recognised",
    ),
    Flag(
        "--draft-family",
        "templates.draft_family",
        kinds.ONE_NAME,
        TEMPLATES,
        "chat format of the draft",
        "NAME",
        default="recognised",
    ),
)
SERVER_FLAGS: Final = (
    Flag("--host", "server.host", kinds.ONE_NAME, SERVER, "address to listen on", "HOST", ENV + "HOST"),
    Flag(
        "--port",
        "server.port",
        integer(0, 65535),
        SERVER,
        "port; 0 takes a free one and prints it",
        "PORT",
        ENV + "PORT",
    ),
    Flag(
        "-a --alias",
        "server.alias",
        kinds.ONE_NAME,
        SERVER,
        "name of the model in the API",
        "NAME",
        ENV + "ALIAS",
        default="the file's name",
    ),
    Flag(
        "--api-prefix",
        "server.api_prefix",
        kinds.PREFIX,
        SERVER,
        "path in front of every route",
        "/PATH",
        ENV + "API_PREFIX",
    ),
    Flag(
        "--api-key",
        "server.api_keys",
        kinds.KEYS,
        SERVER,
        "accepted keys, separated by commas",
        "KEYS",
        "LLAMA_API_KEY",
        many=True,
    ),
    Flag(
        "--api-key-file",
        "server.api_keys",
        kinds.KEY_FILE,
        SERVER,
        "file with one key per line; lines that begin with # are comments",
        "FILE",
        ENV + "API_KEY_FILE",
        many=True,
    ),
    Flag(
        "-to --timeout",
        "server.timeout",
        number(0.001),
        SERVER,
        "seconds until a silent connection is closed",
        "SECONDS",
        ENV + "TIMEOUT",
    ),
    Flag(
        "--sse-ping-interval",
        "server.sse_ping_interval",
        kinds.PING,
        SERVER,
        "seconds between pings in silent streams, 1 or more; 0 or -1 is none",
        "SECONDS",
        ENV + "SSE_PING_INTERVAL",
    ),
    Flag("--slots", "server.slots", SWITCH, SERVER, "GET /slots", env=ENV + "ENDPOINT_SLOTS", off="--no-slots"),
    Flag(
        "--ui --webui",
        "server.ui",
        SWITCH,
        SERVER,
        "the page at /: chat, race and live view, which show who wrote each token",
        env=ENV + "UI",
        off="--no-ui --no-webui",
    ),
    Flag("--metrics", "server.metrics", SWITCH, SERVER, "GET /metrics for Prometheus", env=ENV + "ENDPOINT_METRICS"),
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
        ENV + "THINK",
    ),
)
