"""The table of flags, by the groups that help texts show, made from what the slices declare. Command line, environment,
configuration file and help text are all made from it; nothing is written twice.

Names follow llama-server where it has the flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from uad.base.common.files import check_text
from uad.base.common.samplers import SETTINGS
from uad.base.common.settings import INT32_MAX, Setting, settings_of
from uad.base.config.drafter_types import LOOKUP_TYPES, DrafterType, LookupConfig
from uad.base.config.kinds import FILE, SWITCH, Kind, integer, number
from uad.base.config.model_config import ModelConfig
from uad.base.config.router_config import RouterConfig
from uad.base.config.slices import (
    SAMPLING_FLAGS,
    SPECULATIVE_FLAGS,
    Config,
    DraftingConfig,
    EmbeddingConfig,
    LogConfig,
    ServerConfig,
    TemplateConfig,
    VisionConfig,
)
from uad.base.config.sources import HubConfig
from uad.base.errors import ConfigError
from uad.base.types import SamplingParams, SpeculativeParams

VARIABLE = "LLAMA_ARG_"
MODEL, CONTEXT, DRAFT, DRAFTING = "models", "context and speed", "draft model", "drafting"
LOOKUP, TOKENIZERS = "drafting without a model", "tokenizers"
SAMPLING, TEMPLATES, SERVER, GENERAL = "sampling defaults", "chat templates", "server", "general"
EMBEDDING = "embeddings"


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting at its place in `Config`, such as "target.n_ctx"; several places have blanks between them, and the kind
    parses to as many values.
    """

    setting: Setting
    path: str
    kind: Kind
    default: Any

    @property
    def names(self) -> str:
        """The flag's names that say yes, separated by blanks."""
        return self.setting.flags

    @property
    def off(self) -> str:
        """The flag's names that say no."""
        return self.setting.no

    @property
    def help(self) -> str:
        """The effect of the flag, for its help."""
        return self.setting.help

    @property
    def name(self) -> str:
        """The name to use in messages: the first long one."""
        return next(name for name in self.all_names if name.startswith("--"))

    @property
    def all_names(self) -> tuple[str, ...]:
        """The flag's names on the command line, those that say no last."""
        return (*self.names.split(), *self.off.split())

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it."""
        return self.setting.variables

    @property
    def paths(self) -> tuple[str, ...]:
        """Places in `Config`."""
        return tuple(self.path.split())

    def help_text(self) -> str:
        """Describe the flag, its default and its variable: the only source of help."""
        own = self.setting.default_text
        default = f"default: {shown}" if (shown := default_text(self.default) if own is None else own) else ""
        facts = [part for part in (default, f"env: {self.variables[0]}" if self.variables else "") if part]
        return f"{self.help} ({'; '.join(facts)})" if facts else self.help


def default_text(value: object) -> str:
    """A default as people write it; "" where there is nothing to say."""
    if value is None or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind(setting: Setting, default: object) -> Kind:
    """The kind that a setting declares, else that of its default; a setting without a default is a file."""
    if setting.kind is not None:
        kind: Kind = setting.kind
        return kind
    if default is None:
        return FILE
    if isinstance(default, bool):
        return SWITCH
    if isinstance(default, int):
        return integer(int(setting.low), int(min(setting.high, INT32_MAX)))
    return number(setting.low, setting.high)


def _flags_of(setting: Setting, start: str, name: str, default: object) -> Iterator[Flag]:
    """The flags of one field, the first of its setting first; `start` is the place of its slice, with a dot."""
    path = " ".join(start + field for field in (setting.fields or name).split())
    yield Flag(setting, path, _kind(setting, default), default)
    for further in setting.also:
        yield from _flags_of(further, start, name, default)


def _draft_settings() -> dict[str, Setting]:
    """Settings of `ModelConfig` that a draft has flags for; values they leave open are the target's."""
    return {
        name: replace(
            setting.draft,
            **{key: getattr(setting.draft, key) or getattr(setting, key) for key in ("kind", "group")},
            **{key: getattr(setting, key) for key in ("default", "low", "high")},
        )
        for name, setting in settings_of(ModelConfig).items()
        if setting.draft is not None
    }


def _lookup_settings(kind: DrafterType) -> dict[str, Setting]:
    """Settings of a drafter without a model; one without flags of its own is named after its field."""
    return {
        name: replace(
            own, names=own.names or f"--spec-{kind.origin}-{name.replace('_', '-')}", help=f"{kind.origin}: {own.help}"
        )
        for name, own in kind.settings.items()
    }


def _with_defaults(kind: Any, flags: Mapping[str, Setting]) -> dict[str, Setting]:
    """These flags of fields of a request, with the defaults of its dataclass."""
    values = kind()
    return {name: replace(flag, default=getattr(values, name)) for name, flag in flags.items()}


def _slices() -> Iterator[tuple[str, str, Mapping[str, Setting]]]:
    """Each slice: its place in `Config`, the group of its flags, and the settings of its fields."""
    yield "target.", CONTEXT, settings_of(ModelConfig)
    yield "draft.", DRAFT, _draft_settings()
    yield "hub.", MODEL, settings_of(HubConfig)
    yield "vision.", MODEL, settings_of(VisionConfig)
    yield "drafting.defaults.", DRAFTING, _with_defaults(SpeculativeParams, SPECULATIVE_FLAGS)
    yield "drafting.", DRAFTING, settings_of(DraftingConfig)
    yield "drafting.lookup.", LOOKUP, settings_of(LookupConfig)
    for kind in LOOKUP_TYPES:
        yield f"drafting.lookup.{kind.section}.", LOOKUP, _lookup_settings(kind)
    yield "sampling.", SAMPLING, {name: setting for name, setting in SETTINGS.items() if setting.flags}
    yield "sampling.", SAMPLING, _with_defaults(SamplingParams, SAMPLING_FLAGS)
    yield "templates.", TEMPLATES, settings_of(TemplateConfig)
    yield "router.", SERVER, settings_of(RouterConfig)
    yield "server.", SERVER, settings_of(ServerConfig)
    yield "", CONTEXT, settings_of(Config)
    yield "embedding.", EMBEDDING, settings_of(EmbeddingConfig)
    yield "log.", GENERAL, settings_of(LogConfig)


def _table() -> dict[str, tuple[Flag, ...]]:
    """All flags by group, in the order of their declaration, but for those that say what they stand after.

    `--predict` is a field of `Config`, `--ctx-size` and `--batch-size` are fields of `ModelConfig`, and all are in one
    group: declared "after --ctx-size", it stands between them.
    """
    titles = (MODEL, CONTEXT, DRAFT, DRAFTING, LOOKUP, TOKENIZERS, SAMPLING, TEMPLATES, EMBEDDING, SERVER, GENERAL)
    table: dict[str, list[Flag]] = {title: [] for title in titles}
    moved: list[tuple[list[Flag], list[Flag]]] = []
    for start, usual, settings in _slices():
        for name, setting in settings.items():
            group = table[setting.group or usual]
            for flag in _flags_of(setting, start, name, setting.default):
                if flag.setting.after:
                    moved.append((group, [flag]))
                elif flag.setting is not setting and setting.after:
                    moved[-1][1].append(flag)
                else:
                    group.append(flag)
    for group, flags in moved:
        # Now that all names of the group are there. Further flags of a field stay after its first one.
        names = [flag.name for flag in group]
        after = flags[0].setting.after
        at = 0 if after in table else names.index(after) + 1
        group[at:at] = flags
    return {title: tuple(flags) for title, flags in table.items()}


CONFIG_FILE = Flag(
    Setting(None, "YAML file whose keys are long flag names", "--config", metavar="FILE.yaml"), "", FILE, None
)
GROUPS = _table()
GROUPS[GENERAL] += (CONFIG_FILE,)
FLAGS = tuple(flag for flags in GROUPS.values() for flag in flags)


@dataclass(frozen=True, slots=True)
class Given:
    """One value of one flag. `where` is how the user wrote it: "--port", "LLAMA_ARG_PORT" or "uad.yaml:3: port";
    `texts` are what it was read from.
    """

    flag: Flag
    value: Any
    where: str
    texts: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The same for a command line."""
        if (n := self.flag.kind.arity) == 1:
            return [f"{self.flag.name}={text}" for text in self.texts]
        if n > 1:
            at_once = zip(*(self.texts[i::n] for i in range(n)), strict=True)
            return [word for texts in at_once for word in (self.flag.name, *texts)]
        names = (self.flag.names if self.value else self.flag.off).split()
        return [name for name in names if name.startswith("--")][:1]


@dataclass(frozen=True, slots=True)
class Layer:
    """Everything from one source, in the order given; `ignored` are names that were accepted without effect."""

    given: tuple[Given, ...] = ()
    ignored: tuple[str, ...] = ()


def read(flag: Flag, texts: Sequence[str], where: str, negated: bool = False) -> Given:
    """The checked value of a flag. Raises ConfigError naming the place and what was expected."""
    if not flag.kind.is_path:
        for text in texts:
            check_text(text, where)
    try:
        value = checked(flag.kind, texts)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return Given(flag, not value if negated else value, where, tuple(texts))


def given(name: str, *texts: str) -> Given:
    """A flag as the program itself gives it. Raises ConfigError."""
    return read(next(flag for flag in FLAGS if name in flag.all_names), texts, name)


def checked(kind: Kind, texts: Sequence[str]) -> object:
    """The value that these texts are. Raises ConfigError, which says what was expected."""
    try:
        return kind.parse(*texts)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        shown = " ".join(repr(text if len(text) <= 60 else text[:60] + "…") for text in texts)
        raise ConfigError(f"expected {kind.expects}, got {shown}") from error
