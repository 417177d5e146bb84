"""The documentation keeps up with the code."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uad.base.config import ServerConfig
from uad.base.errors import ConfigError
from uad.tools.cli import COMMANDS, cost_plot, main
from uad.tools.cli.serve import curl

ROOT = Path(__file__).parents[3]
GENERATED = {"docs/template-matrix.md", "lab/translation-pairs.md"}
PAGES = sorted(
    {path.relative_to(ROOT).as_posix() for folder in (".", "docs", "lab") for path in (ROOT / folder).glob("*.md")}
    - {*GENERATED, "CHANGELOG.md"}
)
MOST_WORDS = 30
PARTS = [["bench", "requests"], *(["mapping", part] for part in ("show", "derive", "check", "lint"))]


def paragraphs(markdown: str) -> Iterator[str]:
    """Each paragraph and list item on one line, without headings, tables, images and code blocks."""
    words: list[str] = []
    is_code = False
    for line in [*markdown.splitlines(), ""]:
        is_code ^= line.startswith("```")
        is_prose = not is_code and bool(line.strip()) and not line.startswith(("#", "|", "![", "```"))
        if words and (not is_prose or re.match(r"\s*([-*]|\d+\.) ", line)):
            yield " ".join(words)
            words = []
        if is_prose and (words or not line.startswith("    ")):
            words += line.split()


def sentences(markdown: str) -> Iterator[list[str]]:
    """The words of each sentence; a colon or a semicolon ends one, too. A code span is one word; addresses of links are
    none.
    """
    for paragraph in paragraphs(markdown):
        text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`code`", paragraph))
        for sentence in re.split(r"[.!?:;][])\"*]*\s", re.sub(r"^([-*]|\d+\.) ", "", text)):
            yield sentence.split()


def anchors(markdown: str) -> set[str]:
    """What links to its headings are called."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_readme_shows_the_curl_line_that_make_serve_prints() -> None:
    assert curl("http://127.0.0.1:8080", ServerConfig(), can_chat=True) in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_files_and_headings_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), name
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_no_module_that_has_moved(page: str) -> None:
    """Such as `decode/step.py`, below the root, uad/ or lab/, or `uad/text/mapping/`; in indented blocks, too."""
    text = (ROOT / page).read_text(encoding="utf-8")
    folders = (ROOT, ROOT / "uad", ROOT / "lab")
    for name in re.findall(r"`(uad/(?:\w+/)+|(?:\w+/)+\w+\.py)(?::[\w.]+)?[`,]", text):
        assert any((folder / name).exists() for folder in folders), name
    own = {path.name for path in (ROOT / "uad").iterdir() if path.is_dir()}
    for name in re.findall(r"^    .*?\b((?:\w+/)+\w+\.py)\b", text, re.MULTILINE):
        assert name.split("/")[0] not in own or any((folder / name).exists() for folder in folders), name


@pytest.mark.parametrize(
    ("markdown", "lengths"),
    [
        ("One two. Three\nfour five!", [2, 3]),
        ("One (two: three.) Four", [2, 1, 1]),
        ("Version 1.5 is `a b c`.", [4]),
        ('See [the page](docs/a.md "a title"), now', [4]),
        ("- one two\n  three\n- four", [3, 1]),
        ("1. one\n2. two", [1, 1]),
        ("# A heading\n\n| a | table |\n\n![a picture](a.png)\n\n    indented code\n\nOne", [1]),
        ("One two\n    three\n\n```\nsome code\n```\nfour", [3, 1]),
    ],
)
def test_words_are_counted_by_sentence_and_only_those_of_prose(markdown: str, lengths: list[int]) -> None:
    assert [len(words) for words in sentences(markdown)] == lengths


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long(page: str) -> None:
    found = sentences((ROOT / page).read_text(encoding="utf-8"))
    assert [" ".join(words) for words in found if len(words) > MOST_WORDS] == []


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS), *PARTS], ids=" ".join)
def test_help_names_no_file_that_a_wheel_lacks(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # argparse ends like that
        assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: uad" in text
    assert not re.findall(r"\b(?:samples|docs|scripts|tests)/\S+", text)


def test_a_missing_plotting_library_is_said_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'uad\[lab\]'"):
        cost_plot.pyplot()


def test_remedies_name_extras_and_versions_never_a_bare_package() -> None:
    for path in (ROOT / "uad").rglob("*.py"):
        assert not re.findall(r"pip install \w+", path.read_text(encoding="utf-8")), path
