"""A configuration as words of the command line, for servers that are measured in a process of their own."""

from __future__ import annotations

from uad.base.config import KvOverride, LoraConfig, ModelConfig, Place
from uad.base.config.flags import FLAGS


def words_of(target: ModelConfig) -> list[str]:
    """The flags of `uad serve` that have a target loaded and run so; defaults are left out."""
    default, words = ModelConfig(target.path), ["--model", str(target.path)]
    for flag in {flag.path: flag for flag in FLAGS}.values():  # the last one of a place takes the value as it is kept
        part, _, name = flag.path.partition(".")
        if (
            part != "target"
            or name == "path"
            or len(flag.paths) > 1
            or (value := getattr(target, name)) == getattr(default, name)
        ):
            continue
        words += [flag.name if value else flag.off.split()[0]] if isinstance(value, bool) else [flag.name, _word(value)]
    return words


def _word(value: object) -> str:
    """A value as its flag takes it; a list without entries is one of devices."""
    match value:
        case tuple():
            return ",".join(_word(one) for one in value) or "none"
        case LoraConfig():
            return f"{value.path}:{value.scale}"
        case KvOverride(key, bool() as on):
            return f"{key}=bool:{str(on).lower()}"
        case KvOverride(key, other):
            return f"{key}={type(other).__name__}:{other}"
        case Place():
            return value.word
        case _:
            return str(value)
