"""One way to read text files and paths: byte order marks, other encodings, `~`, from wherever a name comes."""

from __future__ import annotations

import ast
import codecs
import errno
import json
import os
from pathlib import Path

import pytest

from uad.base.common import files
from uad.base.common.files import no_such_file, path_of, read_text, why_not_writable
from uad.base.config import load_config
from uad.base.errors import ConfigError, MappingError
from uad.text.mapping.families import bundled_mappings, load_family
from uad.tools.bench.workloads import PROMPT_DIR, load
from uad.tools.cli.mapping import _conversation

ROOT = Path(__file__).parents[3]
BOM = codecs.BOM_UTF8


def test_why_a_file_cannot_be_written_is_known_before_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "old").touch()
    found = {name: why_not_writable(tmp_path / name) for name in ("new", "old", "folder", "none/new", "old/new")}
    assert found == {
        "new": "",
        "old": "",
        "folder": "it is a folder",
        "none/new": "No such file or directory",
        "old/new": "Not a directory",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def yaml_file(folder: Path, text: bytes) -> str:
    (folder / "uad.yaml").write_bytes(text)
    return str(folder / "uad.yaml")


@pytest.mark.parametrize("data", [b"a\r\nb\rc\n", BOM + b"a\nb\nc\n"])
def test_line_ends_are_one_and_a_mark_is_no_text(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    assert read_text(tmp_path / "x") == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("ü".encode("latin-1"), "byte 0"),
        (b"ab\xff", "byte 2"),
        (BOM + b"ab\xff", "byte 5"),
        ("hello".encode("utf-16"), "UTF-16"),
        ("hello".encode("utf-32"), "UTF-32"),
        (b"x" * 101, "more than 100 bytes"),
    ],
)
def test_what_is_no_utf_8_names_the_file_and_the_byte(tmp_path, data, told):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(MappingError, match=rf"{path}: .*{told}"):
        read_text(path, 100, MappingError)


@pytest.mark.parametrize("name", ["", "nothing", "a\0b"])
def test_what_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text(tmp_path / name)


def test_a_mark_in_front_of_keys_is_no_part_of_the_first(tmp_path):
    (tmp_path / "keys").write_bytes(BOM + b"one\r\ntwo\n")
    assert load_config(["-m", "t", "--api-key-file", str(tmp_path / "keys")], {}).server.api_keys == ("one", "two")


def test_a_mark_in_front_of_a_template_is_no_part_of_prompts(tmp_path):
    (tmp_path / "chat.jinja").write_bytes(BOM + b"{{ messages }}")
    config = load_config(["-m", "t"], {"LLAMA_ARG_CHAT_TEMPLATE_FILE": str(tmp_path / "chat.jinja")})
    assert config.templates.chat_template == "{{ messages }}"


def test_a_mark_in_front_of_yaml_json_and_toml_is_read_over(tmp_path):
    assert (
        load_config(["--config", yaml_file(tmp_path, BOM + b"model: t.gguf\n")], {}).target.path == tmp_path / "t.gguf"
    )
    source = bundled_mappings() / "families" / "chatml.yaml"
    (tmp_path / source.name).write_bytes(BOM + source.read_bytes())
    assert load_family(tmp_path / source.name).name == "chatml"
    (tmp_path / "talk.json").write_bytes(BOM + json.dumps([{"role": "user", "content": "Hi"}]).encode())
    assert _conversation(tmp_path / "talk.json") == [{"role": "user", "content": "Hi"}]
    bundled = next(PROMPT_DIR.glob("*.toml"))
    (tmp_path / bundled.name).write_bytes(BOM + bundled.read_bytes())
    assert load(str(tmp_path / bundled.name)).prompts == load(bundled.stem).prompts


def test_home_is_found_from_everywhere(home):
    (home / "keys").write_text("key")
    (home / "maps").mkdir()
    paths = [
        load_config(["--model=~/t.gguf"], {}).target.path,
        load_config([], {"LLAMA_ARG_MODEL": "~/t.gguf"}).target.path,
        load_config(
            ["--config=~/uad.yaml"], {"UAD": yaml_file(home, b"model: ~/t.gguf\nmappings: ~/maps\n")}
        ).target.path,
    ]
    assert paths == [home / "t.gguf"] * 3
    assert load_config(["-m", "t", "--mappings=~/maps"], {}).templates.mappings == (home / "maps",)
    assert load_config(["-m", "t", "--api-key-file=~/keys"], {}).server.api_keys == ("key",)
    assert load_config(["-m", "t", "--spec-suffix-store=~/s"], {}).drafting.lookup.suffix.store == home / "s"


def test_yaml_joins_only_relative_paths_to_its_folder(home, tmp_path):
    folder = tmp_path / "conf"
    folder.mkdir()
    config = load_config(["--config", yaml_file(folder, b"model: t.gguf\nmodel-draft: ~/d.gguf\n")], {})
    assert (config.target.path, config.draft.path) == (folder / "t.gguf", home / "d.gguf")


def test_a_home_that_nobody_has_is_an_error():
    with pytest.raises(ConfigError, match="~no-such-user-here"):
        path_of("~no-such-user-here/x")


def test_a_missing_file_is_told_with_the_one_that_may_be_meant(tmp_path):
    (tmp_path / "qwen2.5-q8_0.gguf").touch()
    (tmp_path / "qwen2.5-q8_0.txt").touch()
    assert no_such_file(tmp_path / "qwen2.5-q8-0.gguf") == f"no such file; did you mean {tmp_path}/qwen2.5-q8_0.gguf?"
    assert no_such_file(tmp_path / "zephyr.gguf") == f"no such file in {tmp_path}"
    assert no_such_file(tmp_path) == "a folder, a pipe or a device; a file is wanted"
    assert no_such_file(tmp_path / "none" / "a.gguf") == f"no such file; there is no folder {tmp_path}/none"


def test_a_missing_file_without_a_folder_is_told_with_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert no_such_file(Path("a.gguf")) == f"no such file in {tmp_path}"
    (tmp_path / "b.gguf").touch()
    assert no_such_file(Path("bb.gguf")) == "no such file; did you mean b.gguf?"


HIDDEN = Path("x" * 300)
"""A name that no system looks at. `Path.exists` raises for it, as for what lies in another user's folder."""


def test_what_this_process_may_not_look_at_is_not_there_and_why_is_known(tmp_path: Path) -> None:
    path = tmp_path / HIDDEN
    assert (files.is_there(path), files.is_file(path), files.is_folder(path)) == (False, False, False)
    assert files.why_hidden(path) == os.strerror(errno.ENAMETOOLONG)
    assert files.no_such_file(path) == f"it cannot be looked at ({os.strerror(errno.ENAMETOOLONG)})"
    assert files.why_not_writable(path) == os.strerror(errno.ENAMETOOLONG)
    assert files.why_hidden(Path("a\0b")) == "embedded null byte"


def test_what_is_there_or_only_missing_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert [files.why_hidden(tmp_path / name) for name in ("file", "none", "file/below", "none/below")] == [""] * 4
    assert (files.is_there(tmp_path), files.is_folder(tmp_path), files.is_file(tmp_path)) == (True, True, False)
    assert (files.is_there(tmp_path / "file"), files.is_file(tmp_path / "file")) == (True, True)


def test_a_folder_of_another_user_is_a_reason_and_no_exception(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(files.os, "stat", refuse)
    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    assert files.why_not_writable(tmp_path / "text") == "Permission denied"
    assert files.no_such_file(tmp_path / "x.gguf") == "it cannot be looked at (Permission denied)"


def test_paths_are_looked_at_by_these_functions_alone() -> None:
    """Methods of `Path` raise where this process may not look."""
    allowed = {"uad/base/common/files.py", "uad/http/edge/page/__init__.py", "uad/http/server/media.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "uad").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("exists", "is_file", "is_dir")
        and not node.args
        and not node.keywords
    }
    assert found <= allowed, "is_there, is_file and is_folder of uad.base.common.files say False instead"
