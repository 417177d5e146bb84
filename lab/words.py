"""A configuration as words of the command line, for servers that are measured in a process of their own."""

from __future__ import annotations

from uad.config import KvOverride, LoraConfig, ModelConfig, Place
from uad.config.flags import FLAGS


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
    if isinstance(value, tuple):
        words = [one.word if isinstance(one, LoraConfig | KvOverride | Place) else str(one) for one in value]
        return ",".join(words) or "none"
    return str(value)
