"""A YAML file as a source of values. Its keys are the long names of flags, with - or _; strict, and every complaint has
a line.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from uad.base.common.files import path_of, read_text
from uad.base.common.names import did_you_mean
from uad.base.common.yaml_fields import explained
from uad.base.config.flags import FLAGS, Flag, Given, Layer, read
from uad.base.config.foreign import IGNORED, check_refused
from uad.base.errors import ConfigError

_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
}


def from_yaml(path: Path) -> Layer:
    """Values from a configuration file; file names in it are relative to it. Raises ConfigError with file and line."""
    text = read_text(path)
    root = explained(path, ConfigError, lambda loader: yaml.compose(text, Loader=loader))
    if root is None:
        return Layer()
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}:{root.start_mark.line + 1}: expected lines such as `port: 8080`, one per setting")
    return _layer(path, root)


def _layer(path: Path, root: yaml.MappingNode) -> Layer:
    loader = yaml.SafeLoader("")  # makes values of nodes
    given: list[Given] = []
    ignored: list[str] = []
    seen: dict[str, int] = {}
    for key_node, value_node in root.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{path}:{line}: expected the name of a setting, found a list or a mapping")
        key = str(key_node.value)
        where = f"{path}:{line}: {key}"
        name = key.replace("_", "-")
        if name in seen:
            raise ConfigError(f"{where} was given in line {seen[name]} already")
        seen[name] = line
        flag = _find(name, where)
        if flag is None:
            ignored.append(key)
        else:
            given += _read(flag, f"--{name}" in flag.off.split(), _value(value_node, loader, where), where, path.parent)
    return Layer(tuple(given), tuple(ignored))


def _find(name: str, where: str) -> Flag | None:
    """The flag of a key, None for one that is ignored."""
    known = {long[2:]: flag for flag in FLAGS if flag.path for long in flag.all_names if long.startswith("--")}
    if name in known:
        return known[name]
    if any(f"--{name}" in names.split() for names in IGNORED.values()):
        return None
    check_refused(f"--{name}", where)
    raise ConfigError(f"{where} is not a known key; {did_you_mean(name, known)}")


def _value(node: yaml.Node, loader: yaml.SafeLoader, where: str) -> object:
    try:
        value: object = loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: a value that YAML cannot read; write it in quotes") from error
    return value


def _read(flag: Flag, negated: bool, value: object, where: str, base: Path) -> list[Given]:
    if (
        flag.kind.many
        and isinstance(value, list)
        and (flag.kind.arity == 1 or all(isinstance(item, list) for item in value))
    ):
        return [given for item in value for given in _read_one(flag, negated, item, where, base)]
    return _read_one(flag, negated, value, where, base)


def _read_one(flag: Flag, negated: bool, value: object, where: str, base: Path) -> list[Given]:
    parts = value if isinstance(value, list) and flag.kind.arity == 2 else [value]
    if len(parts) != max(flag.kind.arity, 1):
        raise ConfigError(f"{where}: expected {flag.kind.expects}")
    return [read(flag, [_text(flag, part, where, base) for part in parts], where, negated)]


def _text(flag: Flag, value: object, where: str, base: Path) -> str:
    if type(value) not in flag.kind.yaml:
        got = "nothing" if value is None else _NAMES.get(type(value), f"a {type(value).__name__}")
        hint = " (write it in quotes)" if flag.kind.yaml == (str,) and isinstance(value, (bool, int, float)) else ""
        raise ConfigError(f"{where}: expected {flag.kind.expects}, got {got}{hint}")
    if isinstance(value, dict):
        return _json(value, where)
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(base / path_of(str(value))) if flag.kind.is_path and value else str(value)


def _json(value: dict[object, object], where: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(
            f"{where}: a mapping with texts, numbers, true, false, lists and mappings is expected"
        ) from None
