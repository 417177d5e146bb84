"""Calls as a model's own chat template writes them: an answer of the history, cut out of the prompt; and arguments for
such calls, with texts that hold what the formats are made of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kit.calls_kit import FORMATS
from kit.templates_real import folder
from uad.base.common.sequences import common_prefix
from uad.text.calls.format import QUOTE, AnswerFormat, CallFormat
from uad.text.calls.recognise import GENERIC, answer_format
from uad.text.calls.tools import Calls, Tool
from uad.text.calls.values import kind_of
from uad.text.templates.calling import _OPEN_NAME, Calling, calling
from uad.text.templates.conversation import Talk, converse

REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}
NO_CALLS = {"muse-glimmer"}
"""Templates that write calls in a format that is not known here."""
_TYPES: dict[str, object] = {
    "text": "string",
    "path": "string",
    "n": "integer",
    "f": "number",
    "ok": "boolean",
    "list": "array",
    "obj": "object",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": kind, "description": "d"} for name, kind in _TYPES.items()},
    "required": ["text"],
}
NAMES = ("first_tool", "second")
TOOLS = Calls(tuple(Tool(name, SCHEMA) for name in NAMES))
MadeCall = tuple[str, dict[str, object]]
_WORDS = ["a", "word", "é", "日本", "🙂", "5", "-1.5e3", "null", "None", "true", "False"]
_SIGNS = [
    *"\"'`{}[](),:=;/-<>#%\\",
    '"""',
    '\\"',
    "\\n",
    "\\u0041",
    "\\d",
    ", ",
    ": ",
    "</",
    "]]>",
    "```",
    "<b>",
    "</b>",
]
_BLANK = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\x1b"]
_LOOKALIKES = [
    "</parameter>",
    "</tool_call>",
    "<tool_call>",
    "<![CDATA[",
    "```json\n",
    "&amp;",
    QUOTE,
    '{"name": "second", "arguments": {}}',
    "{{ x }}",
    "{% x %}",
    "def f(x):\n    return 'x'",
]


@lru_cache(maxsize=100)
def of_template(name: str) -> tuple[str, Calling, AnswerFormat]:
    """A template's text, what it does with calls, and how its answers are read."""
    template = REAL[name].read_text(encoding="utf-8")
    does = calling(template)
    return template, does, answer_format(template, does, FORMATS, None, ())


def writes_what_is_read(name: str) -> bool:
    """Whether calls of the history are written in the format in which answers are read."""
    _, does, answers = of_template(name)
    return name not in NO_CALLS and (does.calls or answers.calls[0].name == GENERIC)


def written(name: str, calls: Sequence[MadeCall]) -> str:
    """An answer that makes these calls, as the template writes it, up to the end of the prompt."""
    template = of_template(name)[0]
    asked: dict[str, object] = {"role": "user", "content": "U"}
    made = [
        {"id": f"abcdefgh{i}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for i, (tool, arguments) in enumerate(calls)
    ]
    told = [
        {"type": "function", "function": {"name": tool, "description": "d", "parameters": SCHEMA}} for tool in NAMES
    ]
    answer: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": made}
    whole, prompt = (
        converse(said, Talk(template, kwargs={"tools": told}, add_generation_prompt=asks)).text
        for said, asks in (([asked, answer], False), ([asked], True))
    )
    return whole[len(_OPEN_NAME.sub("", whole[: common_prefix(whole, prompt)])) :]


def texts(format_: CallFormat) -> st.SearchStrategy[str]:
    """Texts that hold what formats of calls are made of, this one above all."""
    own = [marker for marker in format_.markers() if marker]
    pieces = [*_WORDS, *_SIGNS, *_BLANK, *_LOOKALIKES, *own, *(f"\n{marker}\n" for marker in own)]
    return st.lists(st.sampled_from(pieces), max_size=8).map("".join)


def arguments(format_: CallFormat) -> st.SearchStrategy[dict[str, object]]:
    """Arguments that fit the schema, in any order, those that are left out among them, without what nobody could read
    from this format.
    """
    text = texts(format_)
    floats = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
    names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
    leaves: st.SearchStrategy[object] = st.booleans() | st.integers(-(10**9), 10**9) | floats | text
    n_least = 1 if format_.name in DROPS_NOTHING else 0
    leaves = leaves if n_least else leaves | st.none()
    inner: st.SearchStrategy[object] = st.recursive(
        leaves,
        lambda one: (
            st.lists(one, min_size=n_least, max_size=3) | st.dictionaries(names, one, min_size=n_least, max_size=3)
        ),
        max_leaves=6,
    )
    values: dict[str, st.SearchStrategy[object]] = {
        "text": text,
        "path": text,
        "n": st.integers(-(10**12), 10**12),
        "f": floats,
        "ok": st.booleans(),
        "nothing": st.integers() if n_least else st.none(),
        "list": st.lists(inner, max_size=3),
        "obj": st.dictionaries(names, inner, max_size=3),
    }
    chosen = st.lists(st.sampled_from(sorted(values)), unique=True, max_size=5)
    made = chosen.flatmap(lambda some: st.fixed_dictionaries({name: values[name] for name in some}))
    return made.filter(lambda found: not any(one(format_, found) for _, one in UNREADABLE))


def _strings(value: object) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


DROPS_NOTHING = {"minimax-m3"}
"""Formats whose template writes nothing for null, for an empty list and for an empty object."""


def _imitates_an_end(format_: CallFormat, found: Mapping[str, object]) -> bool:
    tags = format_.tags
    if tags is None:
        return False
    key, ends = re.escape(tags.key), "|".join(map(re.escape, tags.key_ends))
    behind = [*map(re.escape, (format_.end, format_.finish)), *(re.escape(format_.start + name) for name in NAMES)]
    after = "|".join([*behind, rf"{key}[^<>\n/]{{1,256}}?(?:{ends})"])
    close = re.escape(tags.value_end).replace(re.escape("{key}"), r"\w+")
    start = "]]>" if tags.cdata else r"(?:^|\n)[ \t]*" if tags.lines else ""
    return any(re.search(rf"{start}{close}\s*(?:{after})", text) for text in _strings(list(found.values())))


def _imitates_a_quote(format_: CallFormat, found: Mapping[str, object]) -> bool:
    mark = re.compile(rf"{re.escape(QUOTE)}\s*(?:[,}}\]]|{re.escape(format_.end)})")
    return format_.body == "gemma" and any(map(mark.search, _strings(list(found.values()))))


def _has_what_python_reads(format_: CallFormat, found: Mapping[str, object]) -> bool:
    key, end = r"[^\s=,:(){}\[\]\"'<>]+\s*=", re.escape(format_.finish)
    after = rf"[)\]][)\s]*[,\]<]|,\s*(?:{key}|\))|,?\s*{end}"
    mark = re.compile(rf"""^''|\\(?:['"\\abfnrtvxuU0-7\n]|$)|'\s*(?:{after})""")
    return format_.body == "python" and any(map(mark.search, _strings([found.get("text"), found.get("path")])))


def _has_no_types(format_: CallFormat, found: Mapping[str, object]) -> bool:
    if format_.tags is None or not format_.tags.nested:
        return False
    nested = list(_strings([found.get("list"), found.get("obj")]))
    return any(format_.tags.nested in one or not one.strip() or kind_of(one.strip()) for one in nested) or any(
        one.strip() in ("True", "False", "None") or one.strip()[:1] in ("[", "{") for one in nested
    )


UNREADABLE: tuple[tuple[str, Callable[[CallFormat, Mapping[str, object]], bool]], ...] = (
    ("a raw text in tags that holds its closing tag with the end of the call, or another argument", _imitates_an_end),
    ("a raw text of Gemma's that holds a quotation mark with a comma, a bracket or the call's end", _imitates_a_quote),
    ("LFM2.5 writes texts without escapes: what Python reads as one, or as the end of a text", _has_what_python_reads),
    ("texts in tags in tags have no types: one that reads as another value, blanks, or the mark itself", _has_no_types),
)
"""What nobody can tell from what a template writes, each with a reason."""
