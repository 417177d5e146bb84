"""What people see of the settings, whole: every help text, and what becomes of some hundred words, variables and lines
of YAML, right and wrong ones. `python tests/unit/config/test_golden.py` writes them again after an intended change.

golden/values.txt has a case in each line: words of `uad serve`, `NAME=value` for a variable or `yaml: …` for a file
(⏎ is a line break in it), then ` => ` and the error, or the values that differ from those without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from uad.base.config import Config, load_config
from uad.base.errors import ConfigError
from uad.tools.cli import main

GOLDEN = Path(__file__).parent / "golden"
CASES = (GOLDEN / "values.txt").read_text(encoding="utf-8").splitlines()
MAPPING = [f"mapping {name}" for name in ("list", "show", "derive", "check", "lint")]
COMMANDS = ("", "serve", "generate", "profile", "trim", "rpc-worker", "mapping", *MAPPING)
MODELS = ("-m", "t.gguf", "-md", "d.gguf")
FILES = {
    "keys": "# none\n",
    "key": "k1\nk2\n",
    "t.jinja": "{{ a }}",
    "plain": "text",
    "g.gbnf": 'root ::= "a"',
    "s.json": "{}",
}


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    """A folder with the few files that cases name, as the current one."""
    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made):
        for name, text in FILES.items():
            Path(name).write_text(text, encoding="utf-8")
        Path("folder").mkdir()
        yield


def helped(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    return out.getvalue()


def all_help() -> str:
    """The help of all commands; a group of flags that one of them has as `uad serve` does is left with its title."""
    groups = set(re.findall(r"^[a-z ]+:\n(?:  .*\n)+", helped("serve"), re.MULTILINE))
    texts = []
    for command in COMMANDS:
        text = helped(command)
        for group in groups if command != "serve" else ():
            text = text.replace(group, f"{group.partition(chr(10))[0]} as in uad serve\n")
        texts.append(f"$ uad {command} --help\n{text}")
    return "\n".join(texts)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        yield from leaves(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
    if not dataclasses.is_dataclass(value):
        yield path, value


def changes(config: Config, before: Config) -> str:
    old = dict(leaves(before))
    new = {path: value for path, value in leaves(config) if path not in old or old[path] != value}
    return ", ".join(f"{path}={value!r}" for path, value in sorted(new.items())) or "nothing"


@functools.cache
def plain() -> Config:
    return load_config(MODELS, {})


def outcome(case: str) -> str:
    words, env = [*MODELS], {}
    if case.startswith("yaml: "):
        Path("uad.yaml").write_text(case.removeprefix("yaml: ").replace("⏎", "\n"), encoding="utf-8")
        words += ["--config", "uad.yaml"]
    elif re.match("[A-Z_]+=", case):
        name, _, env[name] = case.partition("=")
    else:
        words += shlex.split(case)
    try:
        return changes(load_config(words, env), plain())
    except ConfigError as error:
        return f"error: {error}".replace(str(Path.cwd()), "HERE")


def rerun() -> list[str]:
    return [f"{(case := line.partition(' => ')[0])} => {outcome(case)}" for line in CASES]


def test_values_become_what_they_always_did() -> None:
    assert rerun() == CASES


def test_help_texts_are_as_they_were() -> None:
    assert all_help() == (GOLDEN / "help.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    (GOLDEN / "help.txt").write_text(all_help(), encoding="utf-8")
    with contextlib.contextmanager(folder.__wrapped__)():  # type: ignore[attr-defined]
        (GOLDEN / "values.txt").write_text("".join(f"{line}\n" for line in rerun()), encoding="utf-8")
