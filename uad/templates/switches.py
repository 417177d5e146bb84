"""Which variables of a chat template are switches, and their values in any spelling. Works on the parsed template;
renders nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from uad.errors import InvalidRequestError

_TRUE = frozenset({"true", "on", "yes", "1", "enabled"})
_FALSE = frozenset({"false", "off", "no", "0", "disabled"})
_TESTED, _USED = "tested", "used"


def switch_names(tree: nodes.Template) -> frozenset[str]:
    """Names whose truth alone matters to the template, under this name and under those that it keeps their values
    by.
    """
    found = _Uses()
    found.visit(tree, _USED)
    used = _spread(found.used, found.kept)
    return frozenset(_spread(found.tested - used, found.kept) - used)


def _spread(names: set[str], kept: Mapping[str, set[str]]) -> set[str]:
    """The names, and all whose values are kept by one of them."""
    names = set(names)
    while more := {name for name, by in kept.items() if by & names} - names:
        names |= more
    return names


def settle(kwargs: Mapping[str, object], switches: frozenset[str]) -> dict[str, object]:
    """Template variables with every switch as true or false, however it is spelled; a switch that is null is left out.

    Raises InvalidRequestError that names a switch with another value. Lists and mappings pass: they are true where they
    hold something.
    """
    settled = {name: _settled(name, value) if name in switches else value for name, value in kwargs.items()}
    return {name: value for name, value in settled.items() if value is not None or name not in switches}


def _settled(name: str, value: object) -> object:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else f"{value:g}"
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    where = f"chat_template_kwargs.{name}"
    raise InvalidRequestError(f"{where}: the chat template takes it for a switch; it must be true or false", where)


class _Uses(NodeVisitor):
    """Sorts names by what becomes of their values: tested for truth, kept under other names, or used for what they are.

    Every visit gets what becomes of the node's own value: one of the two words, or the name (as a tuple) that keeps it.
    """

    def __init__(self) -> None:
        self.tested: set[str] = set()
        self.used: set[str] = set()
        self.kept: defaultdict[str, set[str]] = defaultdict(set)

    def generic_visit(self, node: nodes.Node, use: object = _USED) -> None:
        for child in node.iter_child_nodes():
            self.visit(child, _USED)

    def visit_Name(self, node: nodes.Name, use: object) -> None:
        if node.ctx != "load":
            return
        if isinstance(use, tuple):
            self.kept[node.name].update(use)
        else:
            (self.tested if use == _TESTED else self.used).add(node.name)

    def visit_If(self, node: nodes.If, use: object) -> None:
        self.visit(node.test, _TESTED)
        for child in (*node.body, *node.elif_, *node.else_):
            self.visit(child, _USED)

    def visit_CondExpr(self, node: nodes.CondExpr, use: object) -> None:
        self.visit(node.test, _TESTED)
        self.visit(node.expr1, use)
        if node.expr2 is not None:
            self.visit(node.expr2, use)

    def visit_Not(self, node: nodes.Not, use: object) -> None:
        self.visit(node.node, _TESTED)

    def visit_And(self, node: nodes.And | nodes.Or, use: object) -> None:
        self.visit(node.left, use)
        self.visit(node.right, use)

    visit_Or = visit_And

    def visit_Filter(self, node: nodes.Filter, use: object) -> None:
        for child in node.iter_child_nodes():
            self.visit(child, use if node.name in ("default", "d") else _USED)

    def visit_Test(self, node: nodes.Test, use: object) -> None:
        if node.name in ("true", "false", "boolean", "sameas"):
            self.visit(node.node, _TESTED)
        elif node.name not in ("defined", "undefined", "none"):
            self.generic_visit(node)

    def visit_Compare(self, node: nodes.Compare, use: object) -> None:
        with_booleans = all(
            isinstance(operand.expr, nodes.Const) and isinstance(operand.expr.value, bool) for operand in node.ops
        )
        self.visit(node.expr, _TESTED if with_booleans else _USED)
        for operand in node.ops:
            self.visit(operand, _USED)

    def visit_Assign(self, node: nodes.Assign, use: object) -> None:
        self.visit(node.node, (node.target.name,) if isinstance(node.target, nodes.Name) else _USED)
