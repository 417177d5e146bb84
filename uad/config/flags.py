"""The table of flags, by the groups that help texts show. Command line, environment, configuration file and help text
are all made from it; nothing is written twice.

Names follow llama-server where it has the flag.
"""

from __future__ import annotations

from uad.config import kinds
from uad.config.context_flags import CONTEXT_FLAGS
from uad.config.drafting_flags import DRAFTING_FLAGS, LOOKUP_FLAGS
from uad.config.flag import Flag
from uad.config.kinds import SWITCH
from uad.config.model_flags import DRAFT_FLAGS, MODEL_FLAGS
from uad.config.server_flags import SAMPLING_FLAGS, SERVER_FLAGS, TEMPLATE_FLAGS, TOKENIZER_FLAGS

MODEL, CONTEXT, DRAFT, DRAFTING = "models", "context and speed", "draft model", "drafting"
LOOKUP, TOKENIZERS = "drafting without a model", "tokenizers"
SAMPLING, TEMPLATES, SERVER, GENERAL = "sampling defaults", "chat templates", "server", "general"

CONFIG_FILE = Flag("--config", "", kinds.FILE, "YAML file whose keys are long flag names", "FILE.yaml")
GROUPS: dict[str, tuple[Flag, ...]] = {
    MODEL: MODEL_FLAGS,
    CONTEXT: CONTEXT_FLAGS,
    DRAFT: DRAFT_FLAGS,
    DRAFTING: DRAFTING_FLAGS,
    LOOKUP: LOOKUP_FLAGS,
    TOKENIZERS: TOKENIZER_FLAGS,
    SAMPLING: SAMPLING_FLAGS,
    TEMPLATES: TEMPLATE_FLAGS,
    SERVER: SERVER_FLAGS,
    GENERAL: (
        Flag("-v --verbose --log-verbose", "verbose", SWITCH, "show llama.cpp's log too"),
        Flag("--log-file", "log_file", kinds.FILE, "write the log into this file too", env="LOG_FILE"),
        CONFIG_FILE,
    ),
}
FLAGS = tuple(flag for flags in GROUPS.values() for flag in flags)
