"""The groups of flags, as help texts show them; and the flag of a setting that says all about it itself."""

from __future__ import annotations

from uad.common.settings import INT32_MAX, Setting
from uad.config import kinds
from uad.config.flag import Flag
from uad.config.kinds import integer, number

MODEL, CONTEXT, DRAFT, DRAFTING = "models", "context and speed", "draft model", "drafting"
LOOKUP = "drafting without a model"
TOKENIZERS = "tokenizers"
SAMPLING, TEMPLATES, SERVER, GENERAL = "sampling defaults", "chat templates", "server", "general"
GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, LOOKUP, TOKENIZERS, SAMPLING, TEMPLATES, SERVER, GENERAL)

ENV = "LLAMA_ARG_"


def setting_flag(path: str, setting: Setting, group: str) -> Flag:
    """The flag of a field of settings that says all about it itself."""
    kind = kinds.FILE if setting.default is None else _number(setting)
    env = ENV + setting.env if setting.env else ""
    return Flag(setting.flags, path, kind, group, setting.help, setting.metavar, env, default=setting.default_text)


def _number(setting: Setting) -> kinds.Kind:
    return (
        integer(int(setting.low), int(min(setting.high, INT32_MAX)))
        if setting.is_whole
        else number(setting.low, setting.high)
    )
