"""The bench's prompts: TOML files, one per workload, read with strict checks. Knows nothing of models or of
measuring.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.files import path_of, read_text
from uad.base.common.names import nearest
from uad.base.errors import ConfigError

PROMPT_DIR = Path(__file__).with_name("prompts")
"""Holds the bundled workloads, `NAME.toml`."""
CATEGORY_DIR = PROMPT_DIR / "categories"
"""Holds what people ask real models: one workload for each of twelve categories."""

_WORKLOAD_KEYS = ("about", "prompt")
_PROMPT_KEYS = ("name", "chat", "raw")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class WorkloadPrompt:
    """One prompt: a user's turn (`chat`), or text that is continued as it stands."""

    name: str
    text: str
    chat: bool

    @property
    def n_bytes(self) -> int:
        """Length in bytes, an upper bound of its token count."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True)
class Workload:
    """Distinct prompts of one kind, in the order in which `--prompts N` takes them."""

    name: str
    about: str
    prompts: tuple[WorkloadPrompt, ...]

    def head(self, n: int) -> Workload:
        """The first n prompts (all if there are fewer)."""
        return Workload(self.name, self.about, self.prompts[:n])

    def named(self, names: Collection[str]) -> Workload:
        """The prompts of these names, in their order here; there may be none."""
        return Workload(self.name, self.about, tuple(prompt for prompt in self.prompts if prompt.name in names))


def bundled() -> tuple[str, ...]:
    """Names of the workloads that come with the package, sorted."""
    return tuple(sorted(path.stem for path in PROMPT_DIR.glob("*.toml")))


def category_names() -> tuple[str, ...]:
    """Names of the twelve categories, sorted."""
    return tuple(sorted(path.stem for path in CATEGORY_DIR.glob("*.toml")))


def load(name: str) -> Workload:
    """A bundled workload or category by name, or a workload of the user's by the path of its TOML file. Raises
    ConfigError.
    """
    if name.endswith(".toml"):
        return read(path_of(name))
    categories, rest = category_names(), bundled()
    if name not in (*rest, *categories):
        known = f"{', '.join(rest)}, all (these), {', '.join(categories)}, categories (these)"
        near = _nearest(name, (*rest, *categories, *_groups()))
        raise ConfigError(f"unknown workload {name!r}{near}; there are {known}, or give the path of a .toml file")
    return read((CATEGORY_DIR if name in categories else PROMPT_DIR) / f"{name}.toml")


def load_all(lists: Sequence[str]) -> list[Workload]:
    """The workloads of comma lists; `all` and `categories` stand for their members. Raises ConfigError."""
    words = [word.strip() for given in lists for word in given.split(",")]
    names = [name for word in words for name in _groups().get(word, (word,))]
    if len(set(names)) < len(names):
        raise ConfigError(f"--workload: name each of {', '.join(names)} once")
    return [load(name) for name in names]


def _groups() -> dict[str, tuple[str, ...]]:
    return {"all": bundled(), "categories": category_names()}


def read(path: Path) -> Workload:
    """Read and check one workload file. Raises ConfigError that names the file and the entry."""
    try:
        data = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"workload {path} is not valid TOML: {error}") from error
    _check_keys(data, _WORKLOAD_KEYS, str(path))
    entries = data.get("prompt")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"workload {path} has no [[prompt]] entry")
    prompts = tuple(_prompt(entry, f"{path}, prompt {i}") for i, entry in enumerate(entries, 1))
    _check_distinct(prompts, path)
    return Workload(path.stem, _text(data, "about", str(path)), prompts)


def _prompt(entry: object, where: str) -> WorkloadPrompt:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected a [[prompt]] table")
    _check_keys(entry, _PROMPT_KEYS, where)
    if ("chat" in entry) == ("raw" in entry):
        raise ConfigError(f"{where}: give either `chat` or `raw`")
    name = _text(entry, "name", where)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: name {name!r} must be lower-case words joined by '-'")
    kind = "chat" if "chat" in entry else "raw"
    text = _text(entry, kind, where)
    return WorkloadPrompt(name, text, kind == "chat")


def _text(data: Mapping[str, object], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: `{key}` must be text that is not empty")
    return value


def _check_keys(data: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, known)}; known keys are {', '.join(known)}")


def _check_distinct(prompts: tuple[WorkloadPrompt, ...], path: Path) -> None:
    seen: dict[str, str] = {}
    for prompt in prompts:
        if prompt.name in seen.values():
            raise ConfigError(f"workload {path}: two prompts are named {prompt.name!r}")
        if prompt.text in seen:
            raise ConfigError(f"workload {path}: prompts {seen[prompt.text]!r} and {prompt.name!r} are the same text")
        seen[prompt.text] = prompt.name


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known, at_least=0.75)
    return f" (did you mean {near!r}?)" if near else ""
