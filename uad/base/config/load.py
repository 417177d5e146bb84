"""All sources together: command line over environment, which is read here, over file over defaults; built into slices
and checked against each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from uad.base.common.files import is_file, is_folder, no_such_file
from uad.base.common.settings import settings_of
from uad.base.config.argv import Parser, add_flags, layer_of
from uad.base.config.drafter_types import BESIDE_A_MODEL, HEAD_TYPES, LOOKUP_TYPES, MODEL_TYPE, LookupConfig
from uad.base.config.flags import CONFIG_FILE, FLAGS, GROUPS, VARIABLE, Given, Layer, read
from uad.base.config.foreign import REFUSED, check_refused
from uad.base.config.kinds import AUTO, FALSE
from uad.base.config.model_config import ModelConfig
from uad.base.config.router_config import RouterConfig
from uad.base.config.slices import (
    Config,
    DraftingConfig,
    EmbeddingConfig,
    LogConfig,
    ServerConfig,
    TemplateConfig,
    VisionConfig,
)
from uad.base.config.sources import HubConfig, HubModel
from uad.base.config.yamlfile import from_yaml
from uad.base.errors import ConfigError
from uad.base.types import MODELS, SamplingParams, SpecPolicy, SpeculativeParams

_SHARED = ("--kv-unified", "-kvu", "LLAMA_ARG_KV_UNIFIED")
_INHERITED = [name for name, setting in settings_of(ModelConfig).items() if setting.inherited]


def load_config(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """The configuration of `uad serve` with these words. Reads only the files they name. Raises ConfigError."""
    return config_from(_parser().parse(argv), environ)


@cache
def _parser() -> Parser:
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    return parser


class NoTargetError(ConfigError):
    """No target is named. `how` says what its file is given with."""

    def __init__(self, how: str = "name its GGUF file with --model FILE") -> None:
        super().__init__(
            f"no target model; {how} (or LLAMA_ARG_MODEL, or `model:` in the file of --config), or a repository with "
            "--hf-repo USER/REPO"
        )


def config_from(args: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    """The configuration that parsed arguments, the environment and the file of --config give. Raises ConfigError."""
    layers = _layers(args, environ)
    values = merge(layers)
    config = replace(_build(values), notes=(*_notes(layers), *_draft_note(values)))
    _check(config, values)
    _check_shared(config, layers)
    return config


def _layers(args: argparse.Namespace, environ: Mapping[str, str]) -> list[Layer]:
    line = layer_of(args)
    files = [given.value for given in line.given if given.flag is CONFIG_FILE]
    return [*(from_yaml(path) for path in files[-1:]), from_environ(environ), line]


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """Configuration of `uad serve` without a target: its own slices, and the settings for every model alike, from the
    command line and elsewhere.
    """

    router: RouterConfig
    server: ServerConfig
    log: LogConfig
    verbose: bool
    line: Layer
    elsewhere: tuple[Layer, ...]
    notes: tuple[str, ...]


def folder_from(args: argparse.Namespace, environ: Mapping[str, str]) -> FolderConfig | None:
    """The configuration of a router; None without a folder of models. Raises ConfigError, also where a target is given
    beside it.
    """
    layers = _layers(args, environ)
    values = merge(layers)
    router = RouterConfig(**_section(values, "router"))
    if not router.is_on:
        return None
    if "target.path" in values:
        folder = values["router.models_dir" if router.models_dir is not None else "router.models_preset"].where
        raise ConfigError(f"{folder} serves several models, {values['target.path'].where} one; leave one of them out")
    server = ServerConfig(**_section(values, "server"))
    _check_tls(server, partial(_fail, values))
    return FolderConfig(
        router=router,
        server=server,
        log=LogConfig(**_section(values, "log")),
        verbose=bool(_section(values, "").get("verbose", False)),
        line=layers[-1],
        elsewhere=tuple(layers[:-1]),
        notes=tuple(_notes(layers)),
    )


def from_environ(environ: Mapping[str, str]) -> Layer:
    """Values from the environment, by llama-server's names; an empty variable counts as unset, LLAMA_ARG_NO_X says no
    to a switch.

    Raises ConfigError, also for what is refused on the command line.
    """
    known: set[str] = set()  # and with them those that say no, such as LLAMA_ARG_NO_MMAP
    given: list[Given] = []
    for flag in FLAGS:
        for name in flag.variables:
            known.add(name)
            if text := environ.get(name):
                given.append(read(flag, [text], name))
            if flag.off:
                known.add(no := name.replace(VARIABLE, VARIABLE + "NO_"))
                if (text := environ.get(no)) and read(flag, [text], no).value:
                    given.append(read(flag, ["off"], no))
    _refuse(environ, known)
    ignored = [name for name, text in environ.items() if name.startswith(VARIABLE) and text and name not in known]
    return Layer(tuple(given), tuple(sorted(ignored)))


def _refuse(environ: Mapping[str, str], known: Collection[str]) -> None:
    """llama-server names variables after flags; one that says no asks for nothing."""
    for flag in " ".join(REFUSED.values()).split():
        name = VARIABLE + flag.removeprefix("--").replace("-", "_").upper()
        if name not in known and (text := environ.get(name)) and text.lower() not in FALSE:
            check_refused(flag, name)


def merge(layers: Iterable[Layer]) -> dict[str, Given]:
    """Path to value; later layers win whole. Within a layer the last one wins, and flags that may be repeated add up:
    with `api-key: a` in YAML, `--api-key b --api-key c` gives (b, c).
    """
    values: dict[str, Given] = {}
    for layer in layers:
        own: dict[str, Given] = {}
        for given in (given for given in layer.given if given.flag.paths):
            several = given.value if len(given.flag.paths) > 1 else (given.value,)
            for path, value in zip(given.flag.paths, several, strict=True):
                before = own.get(path)
                total = before.value + value if before and given.flag.kind.many else value
                texts = (before.texts + given.texts) if before and given.flag.kind.many else given.texts
                own[path] = Given(given.flag, total, given.where, texts)
        values |= own
    return values


def _notes(layers: Iterable[Layer]) -> list[str]:
    names = [name for layer in layers for name in layer.ignored]
    ignored = [f"ignored, without effect in uad: {', '.join(names)}"] if names else []
    return [*ignored, *dict.fromkeys(note for layer in layers for note in _replaced(layer))]


def _replaced(layer: Layer) -> Iterator[str]:
    """Warnings about settings that one source gives more than once, with different values."""
    last: dict[str, Given] = {}
    for given in layer.given:
        before, last[given.flag.path] = last.get(given.flag.path), given
        if before is not None and not given.flag.kind.many and before.value != given.value:
            names = dict.fromkeys((before.where, given.where))
            what = f"{given.where} is given twice" if len(names) == 1 else f"{' and '.join(names)} set the same"
            yield f"{what}; the last one counts"


def _check_shared(config: Config, layers: Sequence[Layer]) -> None:
    """One context for all slots would be missed where there are several. Raises ConfigError."""
    for name in (name for layer in layers for name in layer.ignored if name in _SHARED):
        if config.n_parallel > 1:
            raise ConfigError(
                f"{name} is known to llama-server, not supported by uad: --ctx-size is shared out evenly among the "
                f"{config.n_parallel} slots; give {config.n_parallel} times as much"
            )


def _draft_note(values: Mapping[str, Given]) -> list[str]:
    given = values.get("drafting.types")
    if "draft.path" in values and given is not None and given.value and not _loads_a_model(given.value):
        return [f"{given.where} is without {MODEL_TYPE}: the draft model is not loaded"]
    return []


def _loads_a_model(types: Collection[str]) -> bool:
    return not {MODEL_TYPE, *HEAD_TYPES}.isdisjoint(types)


def _section(values: Mapping[str, Given], section: str) -> dict[str, Any]:
    start = f"{section}." if section else ""
    return {
        path[len(start) :]: given.value
        for path, given in values.items()
        if path.startswith(start) and "." not in path[len(start) :]
    }


def _build(values: Mapping[str, Given]) -> Config:
    hub = HubConfig(**_section(values, "hub"))
    target = _target(_section(values, "target"))
    if hub.file:  # --hf-file belongs to the target's repository
        if target.hub is None:
            raise ConfigError(
                f"--hf-file {hub.file} needs the repository that has it; name that with --hf-repo USER/REPO"
            )
        target = replace(target, hub=replace(target.hub, file=hub.file))
    drafting = _drafting(values)
    drafts = drafting.defaults.enabled and _loads_a_model(drafting.types)
    config = Config(
        target=target,
        sampling=SamplingParams(**_section(values, "sampling")),
        drafting=drafting,
        templates=TemplateConfig(**_section(values, "templates")),
        server=ServerConfig(**_section(values, "server")),
        vision=_vision(_section(values, "vision")),
        hub=hub,
        router=RouterConfig(**_section(values, "router")),
        embedding=EmbeddingConfig(**_section(values, "embedding")),
        log=LogConfig(**_section(values, "log")),
        **_section(values, ""),
    )
    has_drafts = "draft.path" in values and drafts
    return config.with_drafts(_drafts(target, _section(values, "draft"))) if has_drafts else config


def _drafting(values: Mapping[str, Given]) -> DraftingConfig:
    """Which drafters are used, and how. Without a type nothing drafts.

    Beside a draft model the text itself drafts too, and further draft models, for those requests whose policy weighs
    them.
    """
    given = _section(values, "drafting")
    defaults = SpeculativeParams(**_section(values, "drafting.defaults"))
    weighed: tuple[str, ...] = (BESIDE_A_MODEL,) if "draft.path" in values and "types" not in given else ()
    types: tuple[str, ...] = given.pop("types", (MODEL_TYPE, *weighed))
    if "draft.path" in values:
        weighed += tuple(map(str, MODELS[1 : len(values["draft.path"].value)]))
    if given.get("spec_default"):
        types = tuple(dict.fromkeys((*types, "ngram-mod")))
    if not types:
        defaults = replace(defaults, enabled=False)
    return DraftingConfig(defaults=defaults, types=types, weighed=weighed, lookup=_lookup(values), **given)


def _lookup(values: Mapping[str, Given]) -> LookupConfig:
    """Users with keys of their own share no memory unless --spec-share says so."""
    several_keys = len(_section(values, "server").get("api_keys", ())) > 1
    sections = {kind.section: kind.kind(**_section(values, f"drafting.lookup.{kind.section}")) for kind in LOOKUP_TYPES}
    share = {"share": "slot" if several_keys else "server"}
    return LookupConfig(**sections, **share | _section(values, "drafting.lookup"))


def _target(given: dict[str, Any]) -> ModelConfig:
    if "path" not in given:
        raise NoTargetError()
    if "n_batch" in given and "n_ubatch" not in given:
        # `-b 64` alone makes the micro-batch 64 too, as in llama-server; `-b 64 -ub 512` is left for the check.
        given = given | {"n_ubatch": min(ModelConfig(Path()).n_ubatch, given["n_batch"])}
    return ModelConfig(**_sourced(given))


def _vision(given: dict[str, Any]) -> VisionConfig:
    """Without --mmproj-auto, whose other name is --no-mmproj, there is no projector. Raises ConfigError."""
    vision = VisionConfig(**given)
    if 0 < vision.max_tokens < vision.min_tokens:
        raise ConfigError(
            f"--image-min-tokens: {vision.min_tokens} is more than --image-max-tokens {vision.max_tokens}"
        )
    return vision if vision.auto else replace(vision, path=None)


def _sourced(given: dict[str, Any]) -> dict[str, Any]:
    """A model of a hub has no path yet."""
    path = given["path"]
    return given | {"path": Path(path.label), "hub": path} if isinstance(path, HubModel) else given


def _drafts(target: ModelConfig, given: dict[str, Any]) -> list[ModelConfig]:
    """The drafts' own values, alike for all of them, then the target's: the machine is the same, the cache types and
    the context are not.
    """
    inherited = {name: getattr(target, name) for name in _INHERITED}
    if "n_threads" in given:
        inherited["n_threads_batch"] = 0
    return [ModelConfig(**inherited | _sourced(given | {"path": path})) for path in given["path"]]


def _fail(values: Mapping[str, Given], path: str, message: str) -> NoReturn:
    where = values[path].where if path in values else next(flag.name for flag in FLAGS if path in flag.paths)
    raise ConfigError(f"{where}: {message}")


def _check(config: Config, values: Mapping[str, Given]) -> None:
    """Check values against each other. Raises ConfigError naming the place of the value that has to change."""
    target, drafting, fail = config.target, config.drafting.defaults, partial(_fail, values)
    if target.n_ubatch > target.n_batch:
        fail("target.n_ubatch", f"{target.n_ubatch} is more than --batch-size {target.n_batch}")
    if target.n_batch < (least := max(config.n_parallel, 2)):
        fail(
            "target.n_batch",
            f"{target.n_batch} is too few for {config.n_parallel} slots, each of which writes a token; give {least} "
            "or more",
        )
    if drafting.n_min > drafting.longest:
        fail("drafting.defaults.n_min", f"{drafting.n_min} is more than --spec-draft-n-max {drafting.longest}")
    # a default is cut to what fits
    n_max = drafting.longest if drafting.n_max is not None or drafting.policy is SpecPolicy.FIXED else 0
    if config.draft is not None and n_max >= target.n_ubatch:
        fail("drafting.defaults.n_max", f"a draft of {n_max} and its next token need --ubatch-size {n_max + 1} or more")
    if 0 < target.n_ctx < config.n_parallel:
        fail("target.n_ctx", f"{target.n_ctx} tokens of context leave none for each of {config.n_parallel} slots")
    names = [model.hub or model.path for model in config.drafts]
    if len(names) > len(MODELS):
        fail("draft.path", f"{len(names)} draft models are named; {len(MODELS)} can be used beside each other")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        fail("draft.path", f"{getattr(twice[0], 'label', twice[0])} is named twice; each draft is loaded once")
    if AUTO in names and len(names) > 1:
        fail("draft.path", "auto chooses the drafts, and stands alone; leave it out to name them")
    _check_tls(config.server, fail)
    _check_lookup(config.drafting.lookup, fail)


def _check_tls(server: ServerConfig, fail: Callable[[str, str], NoReturn]) -> None:
    for given, other in (("ssl_key", "ssl_cert"), ("ssl_cert", "ssl_key")):
        if getattr(server, given) is not None and getattr(server, other) is None:
            fail(f"server.{given}", f"needs --{other.replace('_', '-')}-file too: a key and its certificate")


def _check_lookup(lookup: LookupConfig, fail: Callable[[str, str], NoReturn]) -> None:
    start = "drafting.lookup."
    if lookup.mod.n_min > lookup.mod.n_max:
        fail(start + "mod.n_min", f"{lookup.mod.n_min} is more than --spec-ngram-mod-n-max {lookup.mod.n_max}")
    if lookup.cache.static is not None and not is_file(lookup.cache.static):
        fail(start + "cache.static", f"{lookup.cache.static}: {no_such_file(lookup.cache.static)}")
    for place, path in (("cache.dynamic", lookup.cache.dynamic), ("suffix.store", lookup.suffix.store)):
        if path is not None and lookup.share != "server":
            fail(
                start + place,
                f"a file keeps texts of all requests together; it needs --spec-share server, which is {lookup.share}",
            )
        if path is not None and not is_folder(path.parent):
            fail(start + place, f"no such folder: {path.parent}")
