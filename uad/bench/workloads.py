"""The bench's prompts: TOML files, one per workload, read with strict checks. Knows nothing of models or of measuring."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from uad.common.files import path_of, read_text
from uad.common.names import nearest
from uad.errors import ConfigError

PROMPT_DIR = Path(__file__).with_name("prompts")
"""Holds the bundled workloads, `NAME.toml`."""
CATEGORY_DIR = PROMPT_DIR / "categories"
"""Holds what people ask real models: one workload for each of twelve categories."""

_WORKLOAD_KEYS = ("about", "prompt")
_PROMPT_KEYS = ("name", "chat", "raw", "rename", "answer")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a user's turn (`chat`), or text that is continued as it stands. `answer` is what is written, whatever the target thinks:
    a task that the bundled models are too small for can be timed all the same."""

    name: str
    text: str
    chat: bool
    answer: str = ""

    @property
    def n_bytes(self) -> int:
        """Length in bytes, an upper bound of its token count."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True)
class Workload:
    """Distinct prompts of one kind, in the order in which `--prompts N` takes them."""

    name: str
    about: str
    prompts: tuple[Prompt, ...]

    def head(self, n: int) -> Workload:
        """The first n prompts (all if there are fewer)."""
        return Workload(self.name, self.about, self.prompts[:n])

    def named(self, names: Collection[str]) -> Workload:
        """Those of these names, in their order here; there may be none."""
        return Workload(self.name, self.about, tuple(prompt for prompt in self.prompts if prompt.name in names))


def bundled() -> tuple[str, ...]:
    """Names of the workloads that come with the package, sorted."""
    return tuple(sorted(path.stem for path in PROMPT_DIR.glob("*.toml")))


def category_names() -> tuple[str, ...]:
    """Names of the twelve categories, sorted."""
    return tuple(sorted(path.stem for path in CATEGORY_DIR.glob("*.toml")))


def load(name: str) -> Workload:
    """A bundled workload or category by name, or a workload of the user's by the path of its TOML file. Raises ConfigError."""
    if name.endswith(".toml"):
        return read(path_of(name))
    folder = CATEGORY_DIR if name in category_names() else PROMPT_DIR
    known = (*bundled(), *category_names())
    if name not in known:
        raise ConfigError(
            f"unknown workload {name!r}{_nearest(name, known)}; there are {', '.join(known)}, or give the path of a .toml file"
        )
    return read(folder / f"{name}.toml")


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


def _prompt(entry: object, where: str) -> Prompt:
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
    return Prompt(name, text, kind == "chat", _answer(entry, text, where))


def _answer(entry: Mapping[str, object], text: str, where: str) -> str:
    """What is written whatever the target thinks, if anything is."""
    if "answer" in entry and "rename" in entry:
        raise ConfigError(f"{where}: give either `answer` or `rename`")
    if "rename" in entry:
        return _renamed(text, entry["rename"], where)
    return _text(entry, "answer", where) if "answer" in entry else ""


def _renamed(text: str, names: object, where: str) -> str:
    """The fenced part of a prompt with one name instead of another."""
    if not (isinstance(names, list) and len(names) == 2 and all(map(_is_filled, names))):
        raise ConfigError(f"{where}: `rename` must be two names, [old, new]")
    _, fence, code = text.partition("```")
    if not fence or names[0] not in code:
        raise ConfigError(f"{where}: `rename` needs a part fenced by ``` in which {names[0]!r} occurs")
    return fence + code.replace(*names)


def _text(data: Mapping[str, object], key: str, where: str) -> str:
    value = data.get(key)
    if not _is_filled(value):
        raise ConfigError(f"{where}: `{key}` must be text that is not empty")
    return value


def _is_filled(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _check_keys(data: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, known)}; known keys are {', '.join(known)}")


def _check_distinct(prompts: tuple[Prompt, ...], path: Path) -> None:
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
