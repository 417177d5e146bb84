"""The table of flags. Command line, environment, configuration file and help text are all made from it; nothing is
written twice.

Names follow llama-server where it has the flag. A path is the place of a value in `Config`, such as "target.n_ctx".
"""

from __future__ import annotations

from uad.config import kinds
from uad.config.context_flags import CONTEXT_FLAGS
from uad.config.device_flags import DEVICE_FLAGS
from uad.config.drafting_flags import DRAFTING_FLAGS
from uad.config.flag import Flag
from uad.config.flags import ENV, GENERAL
from uad.config.kinds import SWITCH
from uad.config.model_flags import DRAFT_FLAGS, MODEL_FLAGS
from uad.config.server_flags import SAMPLING_FLAGS, SERVER_FLAGS, TEMPLATE_FLAGS, TOKENIZER_FLAGS

CONFIG_FILE = Flag("--config", "", kinds.FILE, GENERAL, "YAML file whose keys are long flag names", "FILE.yaml")
_GENERAL = (
    Flag("-v --verbose --log-verbose", "verbose", SWITCH, GENERAL, "show llama.cpp's log too"),
    Flag("--log-file", "log_file", kinds.FILE, GENERAL, "write the log into this file too", "FILE", ENV + "LOG_FILE"),
    CONFIG_FILE,
)

FLAGS: tuple[Flag, ...] = (
    *MODEL_FLAGS,
    *CONTEXT_FLAGS,
    *DEVICE_FLAGS,
    *DRAFT_FLAGS,
    *DRAFTING_FLAGS,
    *TOKENIZER_FLAGS,
    *SAMPLING_FLAGS,
    *TEMPLATE_FLAGS,
    *SERVER_FLAGS,
    *_GENERAL,
)
