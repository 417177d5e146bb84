"""Calls as a model's own chat template writes them: an answer of the history, cut out of the prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kit.calls_kit import FORMATS
from kit.templates_real import folder
from uad.calls.format import AnswerFormat
from uad.calls.recognise import answer_format
from uad.calls.tools import Tool
from uad.common.sequences import common_prefix
from uad.templates.calling import _OPEN_NAME, Calling, calling
from uad.templates.conversation import Talk, converse

REAL = {path.stem: path for path in sorted((folder() or Path("none")).glob("templates/*.jinja"))}
NO_CALLS = {"muse-glimmer"}
"""Templates that write calls in a format that is not known here."""
EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "0"))
"""How many random calls each template writes; 0: the number that a test has by itself."""
TYPES: dict[str, Any] = {
    "text": "string",
    "path": "string",
    "n": "integer",
    "f": "number",
    "ok": "boolean",
    "nothing": "null",
    "list": "array",
    "obj": "object",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": kind, "description": "d"} for name, kind in TYPES.items()},
    "required": ["text"],
}
TOOLS = (Tool("first_tool", SCHEMA), Tool("second", SCHEMA))
_PIECES = (
    *(
        "a",
        "word",
        "é",
        "日本",
        "🙂",
        "5",
        "-1.5e3",
        "null",
        "None",
        "true",
        "False",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "\x1b",
    ),
    *(
        '"',
        "'",
        "`",
        '"""',
        "\\",
        '\\"',
        "\\n",
        "\\u0041",
        "\\d",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ", ",
        ":",
        ": ",
        "=",
        ";",
        "/",
        "-",
    ),
    *(
        "<",
        ">",
        "</",
        "<b>",
        "</b>",
        "&amp;",
        "]]>",
        "<![CDATA[",
        "</parameter>",
        "</tool_call>",
        "<tool_call>",
        '<|"|>',
        "```",
        "```json\n",
    ),
    *('{"name": "second", "arguments": {}}', "{{ x }}", "{% x %}", "%s", "#", "def f(x):\n    return 'x'"),
)


@lru_cache(maxsize=100)
def of_template(name: str) -> tuple[str, Calling, AnswerFormat]:
    """A template's text, what it does with calls, and how its answers are read."""
    template = REAL[name].read_text(encoding="utf-8")
    does = calling(template)
    return template, does, answer_format(template, does, FORMATS, None, ())


def written(name: str, calls: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """An answer that makes these calls, as the template writes it, up to the end of the prompt."""
    template = of_template(name)[0]
    asked = {"role": "user", "content": "U"}
    made = [
        {"id": f"abcdefgh{i}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for i, (tool, arguments) in enumerate(calls)
    ]
    told = [
        {"type": "function", "function": {"name": tool.name, "description": "d", "parameters": tool.parameters}}
        for tool in TOOLS
    ]
    answer = {"role": "assistant", "content": None, "tool_calls": made}
    whole, prompt = (
        converse(said, Talk(template, kwargs={"tools": told}, add_generation_prompt=asks)).text
        for said, asks in (([asked, answer], False), ([asked], True))
    )
    return whole[len(_OPEN_NAME.sub("", whole[: common_prefix(whole, prompt)])) :]


def texts(format_: AnswerFormat) -> st.SearchStrategy[str]:
    """Texts that hold what the formats of calls are made of."""
    markers = [marker for one in format_.calls for marker in one.markers()]
    markers += [format_.thought.start, format_.thought.end]
    pieces = [*_PIECES, *(marker for marker in markers if marker), *(f"\n{marker}\n" for marker in markers if marker)]
    return st.lists(st.sampled_from(pieces), max_size=8).map("".join)


def _values(text: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    numbers = st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names(), inner, max_size=3),
        max_leaves=6,
    )


def _names() -> st.SearchStrategy[str]:
    return st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True)


def arguments(format_: AnswerFormat) -> st.SearchStrategy[dict[str, object]]:
    """Arguments that fit the schema, in any order; those that are not required may be missing."""
    text = texts(format_)
    inner = _values(text)
    kinds: dict[str, st.SearchStrategy[object]] = {
        "text": text,
        "path": text,
        "n": st.integers(-(10**12), 10**12),
        "f": st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3)),
        "ok": st.booleans(),
        "nothing": st.none(),
        "list": st.lists(inner, max_size=3),
        "obj": st.dictionaries(_names(), inner, max_size=3),
    }
    chosen = st.lists(st.sampled_from(sorted(kinds)), unique=True, max_size=5)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: kinds[name] for name in names}))
