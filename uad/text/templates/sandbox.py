"""The Jinja environment of chat templates: immutable sandbox, the functions that templates of models expect, and a
budget; and which variables of a template are switches, by its syntax.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, cast

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, filters, nodes, pass_environment
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer, NodeVisitor

from uad.base.checkpoint import checkpoint
from uad.base.errors import InvalidRequestError

MAX_TEMPLATE_CHARS = 1_000_000
MAX_OUTPUT_CHARS = 8_000_000
MAX_STEPS = 300_000
MAX_SECONDS = 5.0
_WIDE = re.compile(r"\{[^{}]*:[^{}]*(\d{4}|\{)")
"""A format field that asks for a huge width, or takes its width from a value."""
_MAX_BITS = 4096
"""Bits of a whole number: dividing longer ones takes a time that grows with the square of their length."""
_MOST_DIGITS = 64
_TEXT_METHODS = frozenset(
    [
        "capitalize",
        "casefold",
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "join",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rindex",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "swapcase",
        "title",
        "upper",
    ]
)
_TRUE = frozenset({"true", "on", "yes", "1", "enabled"})
_FALSE = frozenset({"false", "off", "no", "0", "disabled"})
_TESTED, _USED = "tested", "used"


class RefusedError(InvalidRequestError):
    """The template does not take these messages; `words` are its own."""

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message, "messages")
        self.words = words


class Budget:
    """The budget of one rendering. The compiler puts calls to it into loops and assignments."""

    def __init__(
        self, n_steps: int = MAX_STEPS, n_output: int = MAX_OUTPUT_CHARS, seconds: float = MAX_SECONDS
    ) -> None:
        self._n_steps = n_steps
        self._n_output = n_output
        self._deadline = time.monotonic() + seconds

    def fresh(self) -> Budget:
        """A budget for another rendering of the same request: steps and output start again, the deadline stays."""
        return Budget(seconds=self._deadline - time.monotonic())

    def tick(self) -> str:
        """Count one step; returns "", since a template prints it. Raises InvalidRequestError past the last step or the
        deadline, DroppedError where no request waits."""
        checkpoint()
        self._n_steps -= 1
        if self._n_steps < 0 or time.monotonic() > self._deadline:
            raise InvalidRequestError(
                "the chat template runs for too long with these messages; it was stopped", "messages"
            )
        return ""

    def sized(self, value: Any) -> Any:
        """The value. Raises InvalidRequestError for a text or collection longer than the output that is left."""
        if isinstance(value, (str, list, tuple, dict)) and len(value) > self._n_output:
            self._too_large()
        return value

    def join(self, pieces: Iterable[str]) -> str:
        """The pieces as one text, which counts as output. Raises InvalidRequestError past what is left."""
        out: list[str] = []
        for piece in pieces:
            self._n_output -= len(piece)
            if self._n_output < 0:
                self._too_large()
            out.append(piece)
        return "".join(out)

    def _too_large(self) -> NoReturn:
        raise InvalidRequestError(
            "the chat template writes too much text with these messages; it was stopped", "messages"
        )


class _OutputMeter(NodeTransformer):
    """Puts a tick into every loop and macro, and a size check around every assigned value."""

    def visit_For(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick"), lineno=node.lineno))
        return node

    visit_Macro = visit_For

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        node.node = _call("sized", cast(nodes.Expr, node.node))
        return node


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    # an attribute of the environment, since a template could give any name another meaning:
    # {% set uad_budget = namespace(tick=dict) %}
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


_BUDGET: ContextVar[Budget] = ContextVar("budget")
"""The budget of the rendering that runs."""


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its body passes."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own convention)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """Operators and methods that make huge values out of nothing are watched. A single call of C cannot be stopped by a
    budget, and holds the interpreter meanwhile.
    """

    tick: Callable[[], str]
    sized: Callable[[Any], Any]

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        bits = [side.bit_length() for side in (left, right) if isinstance(side, int)]
        lengths = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
        if operator == "*" and lengths:
            if _size(left) * _size(right) > MAX_OUTPUT_CHARS:
                raise _too_large_value()
        elif (
            sum(lengths) > MAX_OUTPUT_CHARS
            or max(bits, default=0) > _MAX_BITS
            or (operator == "*" and sum(bits) > _MAX_BITS)
        ):
            raise _too_large_value()
        elif operator == "**" and len(bits) == 2 and bits[0] * abs(right) > _MAX_BITS:
            raise _too_large_value()  # 9 ** 64 ** 64 would be computed for hours
        elif operator == "%" and isinstance(left, str):
            raise InvalidRequestError("the chat template uses '%' in a way that is not allowed", "messages")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ in ("replace", "join"):
            _check_growth(owner, obj.__name__, args)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Jinja's own safe `format`; a format that asks for huge fields gets none and is refused as an unsafe
        attribute.
        """
        owner = getattr(value, "__self__", None)
        return None if isinstance(owner, str) and _WIDE.search(owner) else super().wrap_str_format(value)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Lists that a template made itself may grow one by one; nothing else is changed."""
        if type(obj) is list and attr in ("append", "insert", "pop"):
            return True
        if isinstance(obj, str) and attr not in _TEXT_METHODS:
            return False  # translate, center and encode().replace make texts of any length
        if isinstance(obj, bytes | int | float):
            return False  # (1).to_bytes(10 ** 10)
        return super().is_safe_attribute(obj, attr, value)


class ChatTemplate:
    """One compiled template. `switches` are the variables that it only tests for being true."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise InvalidRequestError(
                f"the chat template is longer than {MAX_TEMPLATE_CHARS} characters", "chat_template"
            )
        environment = _environment()
        try:
            parsed = environment.parse(source)
            self.switches = switch_names(parsed)
            tree = _OutputMeter().visit(parsed)
            code = environment.compile(tree)
            self._template = Template.from_code(environment, code, environment.globals)
        except TemplateSyntaxError as error:
            raise InvalidRequestError(
                f"the chat template is not valid Jinja, line {error.lineno}: {error.message}", "chat_template"
            ) from None
        except RecursionError:
            raise InvalidRequestError("the chat template is nested too deeply", "chat_template") from None

    def render(self, variables: Mapping[str, object], budget: Budget) -> str:
        """The text. Raises RefusedError with the template's own words where it refuses, InvalidRequestError where it
        asks for too much.
        """
        now = variables.get("uad_now")
        moment = now if isinstance(now, datetime) else datetime.now()
        given = {name: _fixed(value) for name, value in variables.items()}
        own = {
            "bos_token": "",
            "eos_token": "",
            "tools": None,
            "documents": None,
            "strftime_now": moment.strftime,
            "raise_exception": _raise_exception,
        }
        token = _BUDGET.set(budget)
        try:
            return budget.join(self._template.generate({**own, **given}))
        except TemplateError as error:
            raise RefusedError(
                f"the chat template cannot render these messages: {error.message}", str(error.message)
            ) from None
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            raise RefusedError(f"the chat template fails on these messages: {error}", str(error)) from None
        finally:
            _BUDGET.reset(token)


class _GivenText(list[Any]):
    """A list of the request, which templates cannot change."""


def _fixed(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _fixed(item) for name, item in value.items()}
    return _GivenText(map(_fixed, value)) if isinstance(value, list | tuple) else value


def _too_large_value() -> InvalidRequestError:
    return InvalidRequestError("the chat template makes a value that is too large; it was stopped", "messages")


def _size(value: Any) -> float:
    """How much a factor multiplies: by its length, or by itself."""
    if isinstance(value, str | list | tuple):
        return len(value)
    return max(abs(value), 1) if isinstance(value, int | float) else 1


def _check_growth(text: str, method: str, args: tuple[Any, ...]) -> None:
    grown = 0
    if method == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        grown = text.count(args[0]) * len(args[1])
    elif method == "join" and args and isinstance(args[0], (list, tuple)):
        grown = len(text) * len(args[0]) + sum(len(item) for item in args[0] if isinstance(item, str))
    if grown > MAX_OUTPUT_CHARS:
        raise _too_large_value()


def _replace(text: Any, old: str, new: str, count: int = -1) -> str:
    _check_growth(str(text), "replace", (old, new))
    return str(text).replace(old, new, count)


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    texts = [str(value[attribute] if attribute else value) for value in values]
    _check_growth(separator, "join", (texts,))
    return separator.join(texts)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    pad = " " * min(width, 64) if isinstance(width, int) else width[:64]
    lines = text.splitlines(keepends=True)
    _check_growth(pad, "join", (lines,))
    return "".join(
        ("" if (at == 0 and not first) or not (blank or line.strip()) else pad) + line for at, line in enumerate(lines)
    )


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > _MOST_DIGITS:
        raise _too_large_value()  # 1 | round(4000000) is an integer of four million digits on its way
    return float(filters.do_round(value, precision, method))  # type: ignore[arg-type]


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > _MAX_BITS:
        raise _too_large_value()
    return filters.do_int(value, default, base)


@pass_environment
def _sum(environment: Environment, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    items = list(values)
    if attribute is not None:
        items = list(map(filters.make_attrgetter(environment, attribute), items))
    if not all(isinstance(item, int | float) for item in (start, *items)):
        raise InvalidRequestError("the chat template adds up what are no numbers", "messages")
    return sum(items, start)


@lru_cache(maxsize=16)
def compile_template(source: str) -> ChatTemplate:
    """The compiled form of a template text, kept for the next request."""
    return ChatTemplate(source)


def probed(source: str, messages: Sequence[Mapping[str, object]], budget: Budget, **variables: object) -> str:
    """The text that a template writes for a conversation that tries it out, with a fresh budget; empty where it
    refuses.
    """
    try:
        return compile_template(source).render({"messages": messages, **variables}, budget.fresh())
    except InvalidRequestError:
        return ""


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
    environment.filters["tojson"] = _tojson
    environment.filters["fromjson"] = json.loads
    environment.filters |= {"replace": _replace, "join": _join, "indent": _indent}
    environment.filters |= {"round": _round, "int": _int, "sum": _sum}
    environment.tick, environment.sized = lambda: _BUDGET.get().tick(), lambda value: _BUDGET.get().sized(value)
    del environment.globals["lipsum"]  # writes any number of words, without a tick
    refused = ("batch", "center", "filesizeformat", "format", "pprint", "random", "slice")
    for name in (*refused, "urlize", "wordwrap", "xmlattr"):
        del environment.filters[name]
    return environment


def _tojson(
    value: Any,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes characters of HTML, which models have never seen."""
    indent = min(indent, 16) if indent is not None else None
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


# --- switches


def switch_names(tree: nodes.Template) -> frozenset[str]:
    """Names whose truth alone matters to the template, under this name and under those that it keeps their values
    by.
    """
    uses = _Uses()
    uses.visit(tree, _USED)
    # {% set think = enable_thinking | default(true) %}{% if think %} tests `think`, and `think` keeps the value of
    # `enable_thinking`: so both are switches. With {{ think }} anywhere, `think` is used, and so is what it keeps.
    used = _spread(uses.used, uses.kept)
    return frozenset(_spread(uses.tested - used, uses.kept) - used)


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
