"""The prompt cache on a disk, in tests: a configuration, requests, and writes that fail."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.models import TARGET, Waiter, exact_config, finish
from uad.base.common import files as common_files
from uad.base.config import Config
from uad.base.events import CacheCounts
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.decode import prompt_cache
from uad.runtime.runtime import Runtime
from uad.runtime.slots import disk

OFF = SpeculativeParams(enabled=False)
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
WARM = SamplingParams(temperature=0.8, seed=7)
TALK = "the river and the stone, the river and the lantern. " * 4
OTHER = '{"name": "walnut", "price": 12}, {"name": "' * 4


def make_it_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading prompts is never too cheap: tiny models read as fast as they are copied."""
    monkeypatch.setattr(prompt_cache, "_GAIN", 0.0)
    monkeypatch.setattr(disk, "_LEAST_BYTES", 1)
    monkeypatch.setattr(disk, "_PRICE_S_PER_BYTE", 1e-15)
    monkeypatch.setattr(disk, "_NEWEST", 0.0)


def config(
    folder: Path,
    target: Path = TARGET,
    draft: Path | None = None,
    slots: int = 1,
    types: tuple[str, ...] = (),
    **fields: Any,
) -> Config:
    """With the cache in `folder`/cache, and slots saved in `folder`."""
    return replace(exact_config(target, draft, slots, types, folder, **fields), cache_disk=folder / "cache")


def say(
    runtime: Runtime,
    prompt: tuple[int, ...],
    speculative: SpeculativeParams = OFF,
    sampling: SamplingParams = WARM,
    **fields: Any,
) -> Waiter:
    """The answer to one prompt."""
    return finish(runtime, [Request(prompt, sampling, speculative, max_tokens=16, **fields)])[0]


def ids(runtime: Runtime, text: str = TALK) -> tuple[int, ...]:
    return tuple(runtime.text.tokenize(text))


def counts(runtime: Runtime) -> CacheCounts:
    return runtime.snapshot().totals.cache


def texts_in(folder: Path) -> list[Path]:
    """Whole files of the cache below a folder."""
    return sorted((folder / "cache").glob("*.uadtext"))


class Killed(Exception):
    """The process ends here."""


class FaultyDisk:
    """Stands for `os` where files are written. fault: "full" has no room when a file is made safe, "killed" ends before
    it is renamed, and what was written stays.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault = ""
        self.n_faults = 0
        monkeypatch.setattr(common_files, "os", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        if self.fault == "full":
            self.n_faults += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def replace(self, source: str, path: Path) -> None:
        if self.fault == "killed":
            self.n_faults += 1
            shutil.copy(source, f"{source}k")
            raise Killed
        os.replace(source, path)
