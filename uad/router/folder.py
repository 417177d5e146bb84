"""Which models there are: those of the folder, and those of the preset file, each with the flags of its process."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from uad.base.common.files import is_file, is_folder
from uad.base.config.flags import Given, Layer, given
from uad.base.config.kinds import AUTO
from uad.base.config.load import FolderConfig, merge
from uad.base.config.sources import HubModel
from uad.base.errors import ConfigError
from uad.pairs.files import ModelFile, Tell, find_models
from uad.pairs.header import HeaderFacts, Stamp, facts, n_bytes, stamp
from uad.router.preset import ALL, STOP_SECONDS, Preset, loads_at_start, read_presets, stop_seconds

_log = logging.getLogger("uad")
_DEPTH = 2
"""Folders within the folder that may hold models."""
_GONE = (-1, 0, 0)
_OF_THE_ROUTER = ("server.host", "server.port", "server.alias", "server.tags", "server.cors_origins")
_NOT_FOR_ONE = frozenset(
    (
        *_OF_THE_ROUTER,
        *("server.api_prefix", "server.api_keys", "server.ssl_key", "server.ssl_cert", "server.reuse_port"),
        *("server.ui", "server.metrics", "log.file"),
    )
)
"""Places in `Config` that a model's process has from the router, whoever gives them."""
_NOT_FOR_ALL = ("target.path", "vision.path", "hub.file", "log.file")
"""Places that only a section of the preset file can give a model. The router's log file has the lines of all."""
_STRETCHED = ("target.rope_", "target.yarn_", "target.overrides")
"""Places that say how far positions reach."""


@dataclass(frozen=True, slots=True)
class FolderModel:
    """One model: its names, and how its process is started. `path` is None for a model of a hub."""

    name: str
    path: Path | None
    words: tuple[str, ...]
    """Flags of its process, without those of the router."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Variables of its process in place of flags that nobody should see."""
    source: str = "models_dir"
    """models_dir or preset, as llama-server calls them."""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sees: bool = False
    """Whether a projector lies beside it."""
    drafts: tuple[Path, ...] = field(default=(), compare=False)
    """Files among which its draft is chosen when it is loaded, with `--draft auto`."""
    head: Path | None = None
    """A head that lies beside it, where no draft is named: it is tried before the choices."""
    n_choices: int = 0
    """How often it was to have another draft than the one that was loaded."""
    loads_at_start: bool = False
    stop_seconds: float = STOP_SECONDS
    files: Stamp = ()
    """All its files as they were when the folder was read."""
    facts: HeaderFacts = field(default_factory=HeaderFacts, compare=False)
    """Empty until the header was read: `files` say whether it is another one."""

    @property
    def n_bytes(self) -> int:
        """Bytes of all its files, its projector's and those of a draft that was named."""
        return n_bytes(self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which requests may call it."""
        return (self.name, *self.aliases)


def read_folder(
    config: FolderConfig, patience_s: float = math.inf, tell: Tell = _log.warning, is_start: bool = True
) -> dict[str, FolderModel]:
    """All models by name, in the order of their names. Where all files are as they were, the same as the last time:
    stamps are compared first. Headers that are not read within `patience_s` are left empty. Takes a while for many
    files: for worker threads.

    `tell` gets a line about each file that is left out, and, except at the start, about each section whose file is
    gone. Raises ConfigError for a wrong preset file.
    """
    if not (_kept and _kept[-1].config is config and _kept[-1].stamps == _seen(config, _kept[-1].models)):
        _kept[:] = [_read(config, patience_s, is_start)]
    look = _kept[-1]
    for line in look.lines:
        tell(line)
    if any(model.facts is _UNREAD for model in look.models.values()):
        del _kept[:]
    return look.models


def _read(config: FolderConfig, patience_s: float, is_start: bool) -> _Look:
    lines: list[str] = []
    before = _seen(config, {})
    presets = {} if config.router.models_preset is None else read_presets(config.router.models_preset)
    common = presets.pop(ALL, Preset(""))
    files = {} if config.router.models_dir is None else find_models(config.router.models_dir.absolute(), lines.append)
    for where in (common, *presets.values()):
        if where.ignored:
            _log.debug("%s: ignored, without effect in uad: %s", where.where, ", ".join(where.ignored))
    for name in files.keys() - presets.keys():
        presets[name] = Preset("")
    drafts = tuple(file.path for file in files.values())
    until = monotonic() + patience_s
    kept: dict[str, FolderModel] = {}
    bounded: list[str] = []
    for name in sorted(presets):
        if name not in files and presets[name].value("target.path") is None:
            nothing = (
                f"{presets[name].where}: [{name}] is no model of the folder; name its file with `model = FILE`, or a "
                "repository with `hf-repo = USER/REPO`"
            )
            if is_start:
                raise ConfigError(nothing)
            lines.append(nothing)
            continue
        try:
            model = _model(name, files.get(name), common, presets[name], config, drafts, until, bounded)
        except ConfigError:
            raise
        except Exception as error:  # one bad file costs one line
            lines.append(f"{name} is left out: it cannot be read ({error!r})")
            continue
        if model.facts.is_model or model.facts.problem:
            kept[name] = model
    if bounded:
        lines.append(
            "the context that all models were given is more than some were trained for, and those get that: "
            f"{', '.join(bounded)} (ctx-size in a model's own section of --models-preset is not bounded)"
        )
    for name in list(_left_out(kept, presets, lines.append)):
        del kept[name]
    others = {name: stamp for name, stamp in _seen(config, kept).items() if name not in before}
    return _Look(config, before | others, kept, tuple(lines))


@dataclass(frozen=True, slots=True)
class _Look:
    """The models of a folder, the stamps of the files they were made of, and lines about what was left out."""

    config: FolderConfig
    stamps: dict[str, tuple[int, int, int]]
    models: dict[str, FolderModel]
    lines: tuple[str, ...]


_kept: list[_Look] = []
"""The last look, if every header was read."""
_UNREAD = HeaderFacts()


def _seen(config: FolderConfig, models: Mapping[str, FolderModel]) -> dict[str, tuple[int, int, int]]:
    """Stamps of the folder's files, of the preset file, and of what these models are made of elsewhere."""
    stamps: dict[str, tuple[int, int, int]] = {}
    if config.router.models_dir is not None:
        stamps.update(_stamps(str(config.router.models_dir), _DEPTH))
    preset = () if config.router.models_preset is None else (str(config.router.models_preset),)
    for path in (*preset, *(name for model in models.values() for name, _, _, _ in model.files)):
        if path not in stamps:
            stamps[path] = _stamp(path)
    return stamps


def _stamps(folder: str, depth: int) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Stamps of a folder's files; a folder that cannot be read is as one that is gone."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if depth and is_folder(Path(entry.path)):
                    yield from _stamps(entry.path, depth - 1)
                elif entry.name.lower().endswith(".gguf"):
                    yield entry.path, _stamp(entry.path)
    except OSError:
        yield folder, _GONE


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return _GONE
    return status.st_size, status.st_mtime_ns, status.st_ino if os.access(path, os.R_OK) else 0


def _takes_auto(values: dict[str, Given], target: Path | None) -> bool:
    """Whether its draft is to be chosen, of which nothing is left among the values then. Drafts for all models are
    models of the folder, and none of them drafts for itself.
    """
    asked = values.pop("draft.path", None)
    if asked is None:
        return False
    kept = [(name, text) for name, text in zip(asked.value, asked.texts, strict=True) if name not in (AUTO, target)]
    if kept:
        values["draft.path"] = replace(
            asked, value=tuple(name for name, _ in kept), texts=tuple(text for _, text in kept)
        )
    return AUTO in asked.value and not kept and target is not None and "draft_from" not in values


def _model(
    name: str,
    file: ModelFile | None,
    common: Preset,
    own: Preset,
    config: FolderConfig,
    candidates: tuple[Path, ...],
    until: float,
    bounded: list[str],
) -> FolderModel:
    """The model of one section, or of one file without a section. `bounded` gets its name where its context is not as
    long as was asked for. Raises ConfigError.
    """
    values = _values(file, common, own, config)
    target = values["target.path"].value
    path = None if isinstance(target, HubModel) else target
    own_files = () if path is None else stamp(path)
    takes_auto = _takes_auto(values, path)
    head = None if file is None or not values.keys().isdisjoint(("draft.path", "draft_from")) else file.head
    own_facts = HeaderFacts() if path is None else _facts(path, own_files, until)
    if n_ctx := _bound_context(values, own, own_facts.n_ctx_train):
        bounded.append(f"{name} {n_ctx}")
    paths = [
        path
        for entry in values.values()
        for path in (entry.value if isinstance(entry.value, tuple) else (entry.value,))
        if isinstance(path, Path) and entry.flag.path != "target.path"
    ]
    if file is not None:
        paths += [beside for beside in (file.projector, head) if beside is not None]
    return FolderModel(
        name=name,
        path=path,
        words=tuple(_words(entry for entry in values.values() if not entry.flag.setting.secret)),
        secrets=tuple(
            (entry.flag.variables[0], entry.texts[0]) for entry in values.values() if entry.flag.setting.secret
        ),
        source="preset" if file is None else "models_dir",
        aliases=_comma_list(own.value("server.alias"), name),
        tags=_comma_list(own.value("server.tags")),
        sees="vision.path" in values,
        drafts=candidates if takes_auto and not own_facts.purpose else (),
        head=head,
        loads_at_start=loads_at_start(own if "load-on-startup" in own.own else common),
        stop_seconds=stop_seconds(own if "stop-timeout" in own.own else common),
        files=own_files + tuple(part for other in sorted(set(paths)) for part in stamp(other) if is_file(other)),
        facts=own_facts,
    )


def _facts(path: Path, of: Stamp, until: float) -> HeaderFacts:
    if (known := facts.kept(path, of)) is not None:
        return known[1]
    return facts(path, of) if monotonic() < until else _UNREAD


def _bound_context(values: dict[str, Given], own: Preset, n_ctx_train: int) -> int:
    """A context that was given for all models is not longer than this one was trained for, in each slot, unless it is
    stretched on purpose. Returns the new length; 0 where nothing was changed.
    """
    asked, slots = values.get("target.n_ctx"), values.get("n_parallel")
    most = n_ctx_train * (1 if slots is None else slots.value)
    is_own = asked is not None and asked.where in [entry.where for entry in own.given]
    if asked is None or is_own or not 0 < most < asked.value or any(path.startswith(_STRETCHED) for path in values):
        return 0
    values["target.n_ctx"] = given("--ctx-size", str(most))
    return most


def _values(file: ModelFile | None, common: Preset, own: Preset, config: FolderConfig) -> dict[str, Given]:
    """Everything that is given for one model, by its place in `Config`: what the command line says wins, then the
    model's section, then that of all, then variables and the file of --config.
    """
    for_all = [_without(layer, _NOT_FOR_ALL) for layer in (*config.elsewhere, common.layer)]
    beside = Layer(tuple(_files_of(file)))
    values = merge([*for_all, beside, own.layer, _without(config.line, _NOT_FOR_ALL)])
    return {
        path: entry for path, entry in values.items() if path not in _NOT_FOR_ONE and not path.startswith("router.")
    }


def _without(layer: Layer, places: Iterable[str]) -> Layer:
    return Layer(tuple(entry for entry in layer.given if entry.flag.path not in places))


def _files_of(file: ModelFile | None) -> Iterator[Given]:
    """The flags that name the files of a model of the folder."""
    if file is not None:
        yield given("--model", str(file.path))
        if file.projector is not None:
            yield given("--mmproj", str(AUTO))  # found, not named: without it texts are answered all the same


def _words(values: Iterable[Given]) -> Iterator[str]:
    """The words of a command line. A flag that sets several places, as --load-mode, stands before those that set one of
    them.
    """
    once = {(id(entry.flag), entry.texts): entry for entry in values}
    for entry in sorted(once.values(), key=lambda entry: -len(entry.flag.paths)):
        yield from entry.words


def _comma_list(entry: Given | None, but: str = "") -> tuple[str, ...]:
    return () if entry is None else tuple(name for name in str(entry.value).split(",") if name and name != but)


def _left_out(models: Mapping[str, FolderModel], presets: Mapping[str, Preset], tell: Tell) -> Iterator[str]:
    """The names of files whose name is the alias of a model with a section. Raises ConfigError where two sections have
    a name in common.
    """
    owner: dict[str, str] = {}
    for model in sorted(models.values(), key=lambda model: not presets[model.name].where):
        for name in model.names:
            if (other := owner.setdefault(name, model.name)) == model.name:
                continue
            both = f"the models {other} and {model.name} are both called {name}; change an alias"
            if presets[model.name].where:
                raise ConfigError(both)
            tell(f"{model.path} is left out: {both}")
            yield model.name


def spelled(models: Mapping[str, FolderModel]) -> list[str]:
    """All names for messages."""
    return [name for model in models.values() for name in model.names]
