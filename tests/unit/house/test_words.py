"""Names say what they hold, a docstring says what it speaks of, and sentences are plain English."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UAD = ROOT / "uad"
FILES = sorted(UAD.rglob("*.py"))
OTHERS = sorted(path for name in ("lab", "scripts", "docs") for path in (ROOT / name).rglob("*.py"))
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "lab").glob("*.md"), ROOT / "README.md"])
VAGUE = ("one", "its", "told", "said", "found")
HEADLESS = ("Those", "That", "Of", "As", "Its")
FOREIGN = re.compile(r"\b[Ss]o many\b|\b[Tt]he very\b|(?<!\b[Tt]here )\b(?:is|are) none\b")  # `is None` is code
RIDDLE = re.compile(r"(?:^|(?<=[.!?] ))What\b(?:[^.!?]|\.(?=\S))*(?:[.!]|$)")
"""A sentence that begins with "What" and does not ask."""
MAYBE = re.compile(r"#.*(?:many|very|none|What)\b")
"""A line that may have such a comment: few sources need to be cut into tokens."""
parse = cache(ast.parse)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a file gives a name to: variables, parameters, fields, functions and classes, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts that stand by themselves: of modules, classes, functions and fields, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def vague(tree: ast.AST) -> list[int]:
    return [line for line, name in names(tree) if name.strip("_") in VAGUE]


def headless(tree: ast.AST) -> list[int]:
    return [line for line, text in docstrings(tree) if text.split(maxsplit=1)[0].rstrip(",:.") in HEADLESS]


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Each text of a source on one line, with its place, and whether it is prose: a docstring or a comment."""
    tree = parse(source)
    prose = dict(docstrings(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if " " in text:
                yield node.lineno, " ".join(text.split()), prose.get(node.lineno) == text
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if MAYBE.search(source) else ()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), True


def paragraphs(page: str) -> Iterator[tuple[int, str, bool]]:
    """The texts of a Markdown page: paragraphs, list items and rows. Headings are no sentences."""
    for block in re.finditer(r"\S.*?(?=\n\s*\n|\n[|*#-]|\n\d+\.|\Z)", page, re.DOTALL):
        line = page.count("\n", 0, block.start()) + 1
        yield line, " ".join(block[0].lstrip("-|# ").split()), not block[0].startswith("#")


def twisted(found: Iterator[tuple[int, str, bool]]) -> list[int]:
    return [line for line, text, is_prose in found if FOREIGN.search(text) or (is_prose and RIDDLE.search(text))]


@pytest.mark.parametrize(("check", "way_out"), [(vague, "say what it holds"), (headless, "begin with the noun")])
def test_no_name_and_no_docstring_leaves_open_what_it_means(check, way_out) -> None:
    places = [
        f"{path.relative_to(UAD.parent)}:{line}"
        for path in FILES
        for line in check(parse(path.read_text(encoding="utf-8")))
    ]
    assert places == [], way_out


@pytest.mark.parametrize(("files", "read"), [([*FILES, *OTHERS], texts), (PAGES, paragraphs)])
def test_no_text_says_so_many_or_is_none_or_begins_with_what_where_it_asks_nothing(files, read) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}" for path in files for line in twisted(read(path.read_text(encoding="utf-8")))
    ]
    assert places == [], "say a number, a noun"


def test_twisted_sentences_are_seen() -> None:
    source = '''
"""What it is."""
x = "there is none", "a b is none of c", "What is x."  # the very one
def f():
    """Reads. What is read. Why. What now? There are none."""
    # What for?
    raise E(f"{x} are none, {y}")  # So many.
'''
    assert sorted(twisted(texts(source))) == [2, 3, 3, 5, 7, 7]
    page = "# What it is\n\nWhat it is.\n\n| a | What b |\n\n- What?\n- so\n  many\n"
    assert sorted(twisted(paragraphs(page))) == [3, 8]


def test_each_way_to_give_a_name_is_seen() -> None:
    source = """
one = [its for its in x]
def found(told, *, said=1): self._told = (lambda one: one)
match x:
    case [found, *its]: pass
    case {"a": said}: pass
try: pass
except E as told: pass
is_found = any_one = 1
"""
    assert sorted(vague(ast.parse(source))) == [2, 2, 3, 3, 3, 3, 3, 5, 5, 6, 8]


def test_docstrings_of_fields_are_seen() -> None:
    source = 'x = 1\n"""Of all."""\nclass A:\n    """As, if."""\n    y: int\n    """Offers."""\n'
    assert headless(ast.parse(source)) == [2, 4]
