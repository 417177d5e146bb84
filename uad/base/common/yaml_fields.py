"""Reading small YAML files strictly: every error names file, line and column. Must not know what the files are
about.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from uad.base.common import files
from uad.base.common.names import meant_or_known
from uad.base.errors import MappingError, UadError

MAX_BYTES = 1_000_000
MAX_DEPTH = 12
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
T = TypeVar("T")
_HALF = re.compile("[\ud800-\udfff]")
_STR = "tag:yaml.org,2002:str"
_BOOL = "tag:yaml.org,2002:bool"
_KINDS = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a plain value"}


class Fields:
    """One mapping of a file, read key by key. Unknown and repeated keys are refused at once."""

    def __init__(self, path: Path, node: yaml.Node, allowed: Collection[str]) -> None:
        self.path = path
        self._node = node
        self._values: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            raise self.error(
                node, f"expected a mapping with the keys {', '.join(sorted(allowed))}, found {_kind(node)}"
            )
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.error(key, f"expected a key, found {_kind(key)}")
            name = str(key.value)
            if name not in allowed:
                raise self.error(key, f"unknown key '{name}'; {meant_or_known(name, allowed)}")
            if name in self._values:
                raise self.error(key, f"the key '{name}' is given twice")
            self._values[name] = value
        self.given = tuple(self._values)
        """The keys that are given, in their order."""

    def error(self, node: yaml.Node | None, message: str) -> MappingError:
        """An error that points at the node, or at the whole mapping without one. Returned, not raised."""
        return MappingError(f"{place(self.path, (node or self._node).start_mark)}: {message}")

    def fail(self, key: str, message: str) -> MappingError:
        """An error that points at the value of key, or at the whole mapping if it is missing."""
        return self.error(self._values.get(key), message)

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self._values

    def where(self, key: str) -> str:
        """path:line:column of the key's value, or of the whole mapping if it is missing."""
        return place(self.path, self._values.get(key, self._node).start_mark)

    def text(self, key: str, default: str | None = None) -> str:
        """The text of a key. Raises MappingError where it is no text, or missing without a default."""
        node = self._values.get(key)
        if node is None:
            if default is None:
                raise self.error(None, f"the key '{key}' is missing")
            return default
        return self._text(node, f"'{key}'")

    def name(self, key: str, what: str) -> str:
        """The text of a key, which is the file's name, too. Raises MappingError where it is not."""
        name = self.text(key)
        if name != self.path.stem:
            raise self.fail(key, f"the {what} is called '{name}' but the file '{self.path.name}'; they must agree")
        return name

    def choice(self, key: str, options: Collection[str], default: str) -> str:
        """The same, but one of the options. Raises MappingError for any other."""
        value = self.text(key, default)
        if value not in options:
            raise self.fail(key, f"'{key}' is '{value}'; expected one of {', '.join(options)}")
        return value

    def flag(self, key: str) -> bool:
        """Whether a key is true; false if it is missing. Raises MappingError for what is no truth value."""
        node = self._values.get(key)
        if node is None:
            return False
        if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOL:
            raise self.error(node, f"'{key}': expected true or false, found {_kind(node)}")
        return str(node.value).lower() in ("true", "yes", "on")

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of texts of a key; empty if it is missing. Raises MappingError where it is no such list, or one of
        them is empty.
        """
        items = self._items(key)
        texts = tuple(self._text(item, f"an entry of '{key}'") for item in items)
        if "" in texts:
            raise self.error(items[texts.index("")], f"an entry of '{key}' is empty; leave it out")
        return texts

    def record(self, kind: type[T], **given: Any) -> T:
        """A dataclass from the keys that its fields are called: texts, lists of texts, truth values. The other fields
        are given. Raises MappingError for a text that is missing and has no default.
        """
        read: dict[str, Callable[[str], Any]] = {"tuple[str, ...]": self.texts, "bool": self.flag}
        values = {
            field.name: read.get(str(field.type), self.text)(field.name)
            for field in dataclasses.fields(kind)  # type: ignore[arg-type]
            if field.name not in given and (self.has(field.name) or field.default is dataclasses.MISSING)
        }
        return kind(**values, **given)

    def child(self, key: str, allowed: Collection[str]) -> Fields:
        """The mapping of a key, with these keys allowed. Raises MappingError where it is missing or no such mapping."""
        node = self._values.get(key)
        if node is None:
            raise self.error(None, f"the key '{key}' is missing")
        return Fields(self.path, node, allowed)

    def children(self, key: str, allowed: Collection[str]) -> tuple[Fields, ...]:
        """The list of mappings of a key; empty if it is missing. Raises MappingError where it is no such list."""
        return tuple(Fields(self.path, item, allowed) for item in self._items(key))

    def _items(self, key: str) -> list[yaml.Node]:
        node = self._values.get(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"'{key}': expected a list, found {_kind(node)}")
        return list(node.value)

    def _text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
            raise self.error(node, f"{what}: expected text (in quotes), found {_kind(node)}")
        text = str(node.value)
        if _HALF.search(text):
            raise self.error(node, f"{what} holds half of a surrogate pair; write the character itself")
        return text


def read_yaml(path: Path) -> yaml.Node:
    """The root node of a file. Refuses what a rules file never needs: anchors, aliases, tags, deep nesting, more than a
    megabyte; and a name by which it would not be found.
    """
    if path.suffix != ".yaml":
        raise MappingError(f"{path}: files of rules end in .yaml; rename it")
    text = read_text(path)
    return explained(path, MappingError, lambda loader: _compose(path, text, loader), fast=True)


def _compose(path: Path, text: str, loader: Any) -> yaml.Node:
    _check_events(path, text, loader)
    root = yaml.compose(text, Loader=loader)
    if root is None:
        raise MappingError(f"{path}:1:1: the file is empty; expected a mapping")
    return root


def place(path: Path, mark: Any) -> str:
    """path:line:column, counted from one; PyYAML has two classes of marks with the same attributes."""
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def explained(path: Path, error: type[UadError], work: Callable[[Any], T], fast: bool = False) -> T:
    """The result of `work`, called with a loader. Raises `error`, which says where the YAML is wrong.

    fast: the loader written in C; where it fails `work` is done again with the one in Python, whose errors say more.
    """
    if fast:
        try:
            return work(FAST)
        except yaml.YAMLError:
            pass
    try:
        return work(yaml.SafeLoader)
    except yaml.MarkedYAMLError as failure:
        context = f" ({failure.context})" if failure.context and failure.problem else ""
        where = place(path, failure.problem_mark or failure.context_mark)
        raise error(f"{where}: not valid YAML: {failure.problem or failure.context}{context}") from failure
    except (yaml.YAMLError, RecursionError) as failure:
        raise error(f"{path}: not valid YAML: {' '.join(str(failure).split())}") from failure


def field_names(kind: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(kind))


def files_of(directories: Iterable[Path], kind: str) -> Iterator[Path]:
    """The YAML files in the folders of this name, directory by directory; hidden ones are left to editors."""
    for directory in directories:
        yield from sorted(path for path in (directory / kind).glob("*.y*ml") if not path.name.startswith("."))


def load_all(directories: Iterable[Path], kind: str, load: Callable[[Path], T]) -> dict[str, T]:
    """Contents of these files, by name. An earlier directory wins over a later one. Raises MappingError."""
    loaded: dict[str, T] = {}
    for path in files_of(directories, kind):
        if path.stem not in loaded:
            loaded[path.stem] = _load(load, path, changed) if (changed := _changed(path)) else load(path)
    return loaded


@cache
def _load(load: Callable[[Path], T], path: Path, changed: tuple[int, ...]) -> T:
    """A model that is loaded again, after it slept for example, needs the same hundred files."""
    return load(path)


def _changed(path: Path) -> tuple[int, ...]:
    """A stamp that differs once the file was changed; empty if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_text(path: Path) -> str:
    """The text of such a file. Raises MappingError for one that is too large, unreadable or not UTF-8."""
    return files.read_text(path, MAX_BYTES, MappingError)


def _check_events(path: Path, text: str, loader: Any) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise MappingError(
                f"{place(path, event.start_mark)}: anchors and aliases (& and *) are not allowed; write the text out"
            )
        if tag := getattr(event, "tag", None):
            raise MappingError(f"{place(path, event.start_mark)}: tags ('{tag}') are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise MappingError(f"{place(path, event.start_mark)}: nested more than {MAX_DEPTH} levels deep")


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag != _STR:
        return f"'{node.value}' ({node.tag.rsplit(':', 1)[-1]})"
    return _KINDS.get(type(node), "something else")
