"""Which models there are: those of the folder, and those of the preset file, each with the flags of its process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uad.base.common.files import is_file
from uad.base.config.flags import Given, Layer, given
from uad.base.config.kinds import AUTO
from uad.base.config.load import FolderConfig, merge
from uad.base.config.sources import HubModel
from uad.base.errors import ConfigError
from uad.pairs.choose import choose, views
from uad.pairs.files import ModelFile, find_models
from uad.pairs.header import HeaderFacts, Stamp, facts, stamp
from uad.router.preset import ALL, STOP_SECONDS, Preset, loads_at_start, read_presets, stop_seconds

_log = logging.getLogger("uad")
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


@dataclass(frozen=True, slots=True)
class FolderModel:
    """One model: its names, and how its process is started. `path` is None for one of a hub."""

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
    draft: Path | None = None
    """What drafts for it, where that was chosen for it."""
    loads_at_start: bool = False
    stop_seconds: float = STOP_SECONDS
    files: Stamp = ()
    """All its files as they were when the folder was read."""
    facts: HeaderFacts = field(default_factory=HeaderFacts)

    @property
    def n_bytes(self) -> int:
        """Bytes of all its files, draft and projector included."""
        return sum(size for _, size, _, _ in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which requests may call it."""
        return (self.name, *self.aliases)


def read_folder(config: FolderConfig) -> dict[str, FolderModel]:
    """All models by name, in the order of their names. Takes a while for many files: for worker threads. Raises
    ConfigError.
    """
    presets = {} if config.router.models_preset is None else read_presets(config.router.models_preset)
    common = presets.pop(ALL, Preset(""))
    files = {} if config.router.models_dir is None else find_models(config.router.models_dir)
    for where in (common, *presets.values()):
        if where.ignored:
            _log.debug("%s: ignored, without effect in uad: %s", where.where, ", ".join(where.ignored))
    for name in files.keys() - presets.keys():
        presets[name] = Preset("")
    drafts = [file.path for file in files.values()]
    models = (_model(name, files.get(name), common, presets[name], config, drafts) for name in sorted(presets))
    kept = {model.name: model for model in models if model.facts.is_model or model.facts.problem}
    _check_names(kept.values())
    return kept


def _choose_draft(values: dict[str, Given], target: Path | None, candidates: Iterable[Path]) -> Path | None:
    """Put the draft's file in the place of `auto`, or nothing where none pays; it is returned then. A draft for all
    models is one of them, and does not draft for itself.
    """
    asked = values.get("draft.path")
    if asked is None or asked.value not in (AUTO, target):
        return None
    del values["draft.path"]
    chosen = choose(views(target, candidates)) if asked.value == AUTO and target is not None else None
    if chosen is None:
        return None
    values["draft.path"] = given("--model-draft", str(chosen.draft))
    return chosen.draft


def _model(
    name: str,
    file: ModelFile | None,
    common: Preset,
    own: Preset,
    config: FolderConfig,
    candidates: Sequence[Path],
) -> FolderModel:
    if file is None and own.value("target.path") is None:
        raise ConfigError(
            f"{own.where}: [{name}] is no model of the folder; name its file with `model = FILE`, or a repository with "
            "`hf-repo = USER/REPO`"
        )
    values = _values(file, common, own, config)
    target = values["target.path"].value
    path = None if isinstance(target, HubModel) else target
    own_files = () if path is None else stamp(path)
    draft = _choose_draft(values, path, candidates)
    paths = [
        entry.value for entry in values.values() if isinstance(entry.value, Path) and entry.flag.path != "target.path"
    ]
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
        draft=draft,
        loads_at_start=loads_at_start(own if "load-on-startup" in own.own else common),
        stop_seconds=stop_seconds(own if "stop-timeout" in own.own else common),
        files=own_files + tuple(part for other in sorted(set(paths)) for part in stamp(other) if is_file(other)),
        facts=HeaderFacts() if path is None else facts(path, own_files),
    )


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
            yield given("--mmproj", str(file.projector))


def _words(values: Iterable[Given]) -> Iterator[str]:
    """The words of a command line. A flag that sets several places, as --load-mode, stands before those that set one of
    them.
    """
    once = {(id(entry.flag), entry.texts): entry for entry in values}
    for entry in sorted(once.values(), key=lambda entry: -len(entry.flag.paths)):
        yield from entry.words


def _comma_list(entry: Given | None, but: str = "") -> tuple[str, ...]:
    return () if entry is None else tuple(name for name in str(entry.value).split(",") if name and name != but)


def _check_names(models: Iterable[FolderModel]) -> None:
    """Raises ConfigError where two models have a name in common."""
    owner: dict[str, str] = {}
    for model in models:
        for name in model.names:
            if (other := owner.setdefault(name, model.name)) != model.name:
                raise ConfigError(f"the models {other} and {model.name} are both called {name}; change an alias")


def spelled(models: Mapping[str, FolderModel]) -> list[str]:
    """All names for messages."""
    return [name for model in models.values() for name in model.names]
