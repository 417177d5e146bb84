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
        Flag("--log-file", "log.file", kinds.FILE, "write the log into this file too", env="LOG_FILE"),
        Flag(
            "-lv --verbosity --log-verbosity",
            "log.verbosity",
            kinds.integer(0, 5),
            "what is logged: 1 errors, 2 warnings too, 3 what happens too, 4 or 5 everything",
            "N",
            env="LOG_VERBOSITY",
        ),
        Flag(
            "--log-timestamps",
            "log.timestamps",
            SWITCH,
            "lines of the log begin with date and time",
            env="LOG_TIMESTAMPS",
            off="--no-log-timestamps",
        ),
        Flag(
            "--log-prefix",
            "log.prefix",
            SWITCH,
            "lines of the log have their level",
            env="LOG_PREFIX",
            off="--no-log-prefix",
        ),
        Flag(
            "--log-colors",
            "log.colors",
            kinds.ON_OFF_AUTO,
            "colours in the log; auto: on a terminal, unless NO_COLOR is set",
            env="LOG_COLORS",
            bare="on",
        ),
        Flag("--log-disable", "log.is_off", SWITCH, "no log on stderr"),
        CONFIG_FILE,
    ),
}
FLAGS = tuple(flag for flags in GROUPS.values() for flag in flags)
