"""Names say what they hold, and a docstring says what it speaks of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

UAD = Path(__file__).parents[3] / "uad"
FILES = sorted(UAD.rglob("*.py"))
VAGUE = ("one", "its", "told", "said", "found")
HEADLESS = ("Those", "That", "Of", "As", "Its")


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


@pytest.mark.parametrize(("check", "way_out"), [(vague, "say what it holds"), (headless, "begin with the noun")])
def test_no_name_and_no_docstring_leaves_open_what_it_means(check, way_out) -> None:
    places = [
        f"{path.relative_to(UAD.parent)}:{line}"
        for path in FILES
        for line in check(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert places == [], way_out


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
