"""Users' settings of drafting inside vLLM: those of `uad serve`, by variables and a file. Loads nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from uad.base.config import Config, load_config
from uad.base.config.drafter_types import HEAD_TYPES
from uad.base.config.load import from_environ
from uad.base.config.yamlfile import from_yaml
from uad.base.errors import ConfigError

FILE = "UAD_VLLM_CONFIG"
DRAFT = "UAD_DRAFT"
AHEAD = "UAD_VLLM_AHEAD"
UNTRIED = "UAD_VLLM_UNTRIED"
USUAL_SLOTS = 8
_YES, _NO = ("1", "on", "true", "yes"), ("0", "off", "false", "no")


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """config: that of `uad serve`, of which the target's part says nothing here. ahead: whether the draft model writes
    on while the engine works; None: where the engine leaves the processor free. allow_untried: any version of vLLM.
    """

    config: Config
    ahead: bool | None = None
    allow_untried: bool = False


def read_settings(target: str, environ: Mapping[str, str] = os.environ) -> VllmSettings:
    """From the environment, and the file that it names. target: the model that vLLM serves, for messages. Raises
    ConfigError.
    """
    argv = ["--model", target]
    layers = [from_environ(environ)]
    if path := environ.get(FILE):
        argv += ["--config", path]
        layers.append(from_yaml(Path(path)))
    if draft := environ.get(DRAFT):
        argv += ["--draft", draft]
    if not any("n_parallel" in given.flag.paths for layer in layers for given in layer.given):
        argv += ["--parallel", str(USUAL_SLOTS)]
    config = load_config(argv, environ)
    if heads := [name for name in config.drafting.types if name in HEAD_TYPES]:
        raise ConfigError(f"{heads[0]} needs a head of the target, which vLLM drafts with itself (mtp, eagle3, dflash)")
    if config.more_drafts:
        raise ConfigError(f"{DRAFT}: inside vLLM one draft model drafts; {len(config.drafts)} are named")
    if config.draft is not None:
        if config.draft.hub is not None:
            raise ConfigError(f"{DRAFT}: the draft must be a file on each machine that runs a drafting worker")
        config = replace(config, draft=replace(config.draft, n_seq=config.n_parallel))
    return VllmSettings(config, _switch(environ, AHEAD), bool(_switch(environ, UNTRIED)))


def _switch(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").lower()
    if text and text not in (*_YES, *_NO):
        raise ConfigError(f"{name}: expected on or off, got {environ[name]!r}")
    return text in _YES if text else None
