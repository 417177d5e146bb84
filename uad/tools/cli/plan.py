"""`uad plan`: what `uad serve` would open with the same words, and why, without opening it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from uad.base.common.available import Limit, available
from uad.base.common.files import size_text
from uad.base.config import Config
from uad.base.config.argv import Parser
from uad.base.config.flags import GROUPS
from uad.base.console import console_on
from uad.base.errors import ConfigError
from uad.tools.cli.models import embeds, parse

if TYPE_CHECKING:
    from uad.pairs.choose import PairView
    from uad.runtime.costs.fit import Total
    from uad.runtime.plan import Plan

_DESCRIPTION = """Say in seconds what `uad serve` would open with these words: files, drafts, kernels, context,
slots, and the memory of each part beside what is free. Nothing is loaded.

Exit code 0: it fits. 2: it does not, or wrong usage; what could be changed is listed."""
_EPILOG = """examples: uad plan TARGET.gguf DRAFT.gguf -c 32768 -np 4
          uad plan TARGET.gguf --draft auto --json"""
_FITS, _TOO_LARGE = 0, 2
_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("-ctk q8_0 -ctv q8_0", {"type_k": "q8_0", "type_v": "q8_0"}),
    ("-ctk q4_0 -ctv q4_0", {"type_k": "q4_0", "type_v": "q4_0"}),
)
"""Settings of the cache that take less memory, smallest loss first."""


@dataclass(frozen=True, slots=True)
class Shown:
    """All that is printed. plan: None where it does not fit, with the reason; pairs: what is expected of each draft
    model; ways_out: changes with which it fits.
    """

    config: Config
    plan: Plan | None
    memory: Total | None
    limits: Sequence[Limit]
    reason: str = ""
    pairs: Mapping[Path, PairView] = field(default_factory=dict)
    formats: Sequence[tuple[str, Path, str]] = ()
    """Role, file and chat format of each model."""
    ways_out: Sequence[str] = ()

    def as_json(self) -> dict[str, object]:
        """For programs; sizes in bytes."""
        plan = self.plan
        parts = self.memory.parts if self.memory is not None else ()
        draft = self.config.draft
        pair = None if draft is None else self.pairs.get(draft.path)
        return {
            "target": str(self.config.target.path),
            "draft": None if draft is None else str(draft.path),
            "drafts": [str(draft.path) for draft in self.config.drafts],
            "head": plan is not None and plan.head is not None,
            "fits": plan is not None,
            "reason": self.reason,
            "n_ctx_slot": None if plan is None else plan.n_ctx,
            "n_slots": self.config.n_parallel,
            "memory": [
                {"part": part.name, "host": part.host, "mapped": part.mapped, "device": part.device} for part in parts
            ],
            "host_bytes": sum(part.host for part in parts),
            "mapped_bytes": sum(part.mapped for part in parts),
            "device_bytes": sum(part.device for part in parts),
            "limits": [{"name": limit.name, "bytes": limit.n_bytes} for limit in self.limits],
            "chat_formats": {role: name for role, _, name in self.formats},
            "expected_gain": None if pair is None else round(pair.prediction.gain, 3),
            "measured_gain": None if pair is None or pair.record.gain is None else round(pair.record.gain, 3),
            "ways_out": list(self.ways_out),
            "notes": list(plan.notes) if plan is not None else [],
        }


def main(argv: Sequence[str]) -> int:
    """Print the plan, and say by the exit code whether it fits. Raises UadError."""
    parser = Parser("uad plan", _DESCRIPTION, _EPILOG, "[TARGET [DRAFT]]")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    args, config = parse(parser, argv, tuple(GROUPS), ("target", "draft"), logging.WARNING)
    for model in (config.target, *config.drafts):
        if model.hub is not None:
            raise ConfigError("uad plan reads files that are here; `uad serve` fetches those of --hf-repo first")
    if embeds(config):
        raise ConfigError(
            f"{config.target.path} embeds or ranks texts: `uad serve` opens it alone, without a draft; uad plan is for "
            "models that write"
        )
    shown = look(config)
    if args.json:
        print(json.dumps(shown.as_json()))
    else:
        show(shown)
    return _FITS if shown.plan is not None else _TOO_LARGE


def look(config: Config) -> Shown:
    """Everything about a start of this configuration. Raises ConfigError or ModelLoadError."""
    from uad.llama.backend import native
    from uad.llama.model import check_vocabulary, has_vocabulary
    from uad.runtime.costs.fit import NoRoomError
    from uad.runtime.plan import plan

    native.start()  # before any thread loads: llama.cpp would write its log to stderr
    limits = available()
    models = [(config.target, "target"), *((draft, "draft") for draft in config.drafts)]
    with ThreadPoolExecutor(2) as others:  # llama.cpp reads headers meanwhile, without Python's lock
        whole = others.submit(lambda: [has_vocabulary(model) for model, _ in models])
        looked = others.submit(lambda: (tuple(_formats(config)), _pairs(config)))
        try:
            planned = plan(config, limits)
        except NoRoomError as error:
            out = tuple(_ways_out(config, limits))
            formats, pairs = looked.result()
            return Shown(config, None, error.wanted, limits, str(error), pairs, formats, out)
        formats, pairs = looked.result()
    if not all(whole.result()):
        for model, role in models:
            check_vocabulary(model, role)
    return Shown(planned.config, planned, planned.memory, limits, "", pairs, formats)


def _ways_out(config: Config, limits: Sequence[Limit]) -> Iterator[str]:
    """Changes of the command line with which it fits, each tried."""
    from uad.runtime.costs.fit import NoRoomError
    from uad.runtime.plan import plan

    usual = replace(config, target=replace(config.target, n_ctx=0))
    tries = [("without -c", usual)] if config.target.n_ctx else []
    for words, changes in _CHANGES:
        less = replace(config.target, **changes)  # type: ignore[arg-type]
        tries.append((words, replace(config, target=less)))
    if config.more_drafts:
        tries.append(("the first draft alone", config.with_drafts(config.drafts[:1])))
    if config.draft is not None:
        tries.append(("--no-draft", replace(config, draft=None)))
    for words, changed in tries:
        try:
            n_ctx = plan(changed, limits).n_ctx
        except NoRoomError:
            continue
        slots = f" in each of {config.n_parallel} slots" if config.n_parallel > 1 else ""
        yield f"{words}: a context of {n_ctx:,} tokens{slots} fits"


def _pairs(config: Config) -> dict[Path, PairView]:
    """The target and each draft model as a pair, with the expected gain, by the draft's file."""
    if config.draft is None:
        return {}
    from uad.pairs.choose import views

    return {view.draft: view for view in views(config.target.path, [draft.path for draft in config.drafts])}


def _formats(config: Config) -> Iterator[tuple[str, Path, str]]:
    """Role, file and chat format of each model."""
    from uad.pairs.formats import chat_format
    from uad.pairs.header import stamp
    from uad.runtime.costs.fit import numbered

    models: list[tuple[str, Path]] = [("target", config.target.path)]
    models += [(numbered("draft", i), draft.path) for i, draft in enumerate(config.drafts, 1)]
    for role, path in models:
        own = chat_format(path, stamp(path)).recognised
        yield role, path, own.family.name if own.family is not None else f"none ({own.reason})"


# --- for people


def show(shown: Shown) -> None:
    """A table of memory, what is opened, and what to change where it does not fit; on stdout."""
    console, config, plan = console_on(), shown.config, shown.plan
    for role, value in _rows(shown):
        console.print(Text.assemble((f"{role:<12}", "bold"), value), soft_wrap=True)
    if shown.memory is not None:
        console.print(_table(shown.memory, shown.limits))
    else:
        console.print("memory: not computed (--fit off, or llama.cpp does not say)")
    if plan is None:
        console.print(Text(f"does not fit: {shown.reason}", "bold red"), soft_wrap=True)
        for line in shown.ways_out or ("no change of the context is enough: a smaller model, or fewer bits a weight",):
            console.print(f"  {line}", soft_wrap=True)
        return
    if config.draft is None and plan.head is None:
        console.print(
            "no draft model; --draft auto takes one beside the target that is expected to pay",
            style="dim",
            soft_wrap=True,
        )
    for line in plan.notes:
        console.print(Text(line, "dim"), soft_wrap=True)


def _rows(shown: Shown) -> Iterator[tuple[str, str]]:
    from uad.runtime.costs.fit import numbered

    config, plan, formats = shown.config, shown.plan, {path: name for _, path, name in shown.formats}
    yield "target", f"{config.target.path}, chat format {formats[config.target.path]}"
    for i, draft in enumerate(config.drafts, 1):
        pair = shown.pairs.get(draft.path)
        gain = "" if pair is None else f", expected {pair.prediction.gain:.2f} times as fast as the target alone"
        if pair is not None and pair.record.gain is not None:
            gain = f", measured {pair.record.gain:.2f} times as fast as the target alone"
        yield numbered("draft", i), f"{draft.path}, chat format {formats.get(draft.path, 'not looked at')}{gain}"
    if plan is not None:
        if plan.head is not None:
            yield "head", str(plan.head_file.path if plan.head_file is not None else "in the target's file")
        slots = f" in each of {config.n_parallel} slots" if config.n_parallel > 1 else ""
        yield "context", f"{plan.n_ctx:,} tokens{slots}"


def _table(memory: Total, limits: Sequence[Limit]) -> Table:
    """Bytes by part: in memory whatever happens, mapped from files, and on devices."""
    has_devices = memory.device > 0
    table = Table("part", "memory", "mapped file", *(["devices"] if has_devices else []), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for part in memory.parts:
        cells = [part.host, part.mapped, *([part.device] if has_devices else [])]
        table.add_row(Text(part.name), *(size_text(n) if n else "" for n in cells))
    sums = [memory.host, memory.mapped, *([memory.device] if has_devices else [])]
    table.add_row(Text("sum", "bold"), *(Text(size_text(n), "bold") for n in sums))
    for limit in limits:
        table.add_row(Text(limit.name, "dim"), Text(size_text(limit.n_bytes), "dim"))
    if memory.device_room:
        table.add_row(Text("free on devices", "dim"), "", "", Text(size_text(memory.device_room), "dim"))
    return table
