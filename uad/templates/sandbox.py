"""The Jinja environment of chat templates: immutable sandbox, the functions that templates of models expect, and a
budget.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, cast

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from uad.checkpoint import checkpoint
from uad.errors import InvalidRequestError
from uad.templates.switches import switch_names

MAX_TEMPLATE = 1_000_000
MAX_OUTPUT = 8_000_000
MAX_STEPS = 300_000
MAX_SECONDS = 5.0
_WIDE = re.compile(r"\{[^{}]*:[^{}]*(\d{4}|\{)")
"""A format field that asks for a huge width, or takes its width from a value."""


class RefusedError(InvalidRequestError):
    """The template does not take these messages; `words` are its own."""

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message, "messages")
        self.words = words


class Budget:
    """What one rendering may use. Templates get it as a variable; the compiler puts calls to it into loops and
    assignments.
    """

    def __init__(self, n_steps: int = MAX_STEPS, n_output: int = MAX_OUTPUT, seconds: float = MAX_SECONDS) -> None:
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

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick"), lineno=node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick"), lineno=node.lineno))
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        node.node = _call("sized", cast(nodes.Expr, node.node))
        return node


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    budget = nodes.Getattr(nodes.Name("uad_budget", "load"), method, "load")
    return nodes.Call(budget, list(arguments), [], None, None)


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its body passes."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own convention)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """Operators and methods that make huge values out of nothing are watched."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_product(left, right)
        elif isinstance(left, str) or (operator == "**" and abs(right) > 64):
            raise InvalidRequestError(f"the chat template uses '{operator}' in a way that is not allowed", "messages")
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
        if isinstance(obj, str) and attr in ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"):
            return False
        return super().is_safe_attribute(obj, attr, value)


class ChatTemplate:
    """One compiled template. `switches` are the variables that it only tests for being true."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_TEMPLATE:
            raise InvalidRequestError(f"the chat template is longer than {MAX_TEMPLATE} characters", "chat_template")
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
        given = {name: _fixed(value) for name, value in variables.items()}
        own = {
            "bos_token": "",
            "eos_token": "",
            "tools": None,
            "documents": None,
            "uad_budget": budget,
            "strftime_now": _clock(now),
            "raise_exception": _raise_exception,
        }
        try:
            return budget.join(self._template.generate({**own, **given}))
        except TemplateError as error:
            raise RefusedError(
                f"the chat template cannot render these messages: {error.message}", str(error.message)
            ) from None
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            raise RefusedError(f"the chat template fails on these messages: {error}", str(error)) from None


class _GivenText(list[Any]):
    """A list of the request, which templates cannot change."""


def _fixed(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _fixed(item) for name, item in value.items()}
    return _GivenText(map(_fixed, value)) if isinstance(value, list | tuple) else value


def _check_product(left: Any, right: Any) -> None:
    is_long = any(isinstance(side, str | list | tuple) for side in (left, right))
    if _size(left) * _size(right) > (MAX_OUTPUT if is_long else 1 << 64):
        raise InvalidRequestError("the chat template makes a value that is too large; it was stopped", "messages")


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
    if grown > MAX_OUTPUT:
        raise InvalidRequestError("the chat template makes a value that is too large; it was stopped", "messages")


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


@lru_cache(maxsize=16)
def compile_template(source: str) -> ChatTemplate:
    """The compiled form of a template text, kept for the next request."""
    return ChatTemplate(source)


def probed(source: str, messages: Sequence[Mapping[str, object]], budget: Budget, **variables: object) -> str:
    """What a template writes for a conversation that tries it out, with a fresh budget; empty where it refuses."""
    try:
        return compile_template(source).render({"messages": messages, **variables}, budget.fresh())
    except InvalidRequestError:
        return ""


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
    environment.filters["tojson"] = _tojson
    environment.filters["fromjson"] = json.loads
    environment.filters |= {"replace": _replace, "join": _join, "indent": _indent}
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


def _clock(now: object) -> Callable[[str], str]:
    moment = now if isinstance(now, datetime) else datetime.now()
    return moment.strftime


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))
