"""Regular expressions of JSON schemas in llguidance's words, which take time that grows with the text only."""

from __future__ import annotations

import re
from functools import lru_cache

import llguidance

from uad.text.grammar.grammars import LIMITS

_DATE = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_HOURS = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = r"[a-zA-Z0-9!#$%&'*+=?^_`{|}~-]+"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_HEX = "[0-9a-fA-F]"
_GROUP = f"{_HEX}{{1,4}}"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": rf"P(?:\d+W|(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)(?:{_HOURS})?|{_HOURS})",
    "email": rf"{_WORD}(?:\.{_WORD})*@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "|".join(
        (
            f"(?:{_GROUP}:){{7}}{_GROUP}",
            *(f"(?:{_GROUP}(?::{_GROUP}){{0,{n}}})?::(?:{_GROUP}(?::{_GROUP}){{0,{5 - n}}})?" for n in range(6)),
        )
    ),
    "uri": r"[a-zA-Z][a-zA-Z0-9+.-]*:(?:[a-zA-Z0-9._~:\/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+",
    "uuid": f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
}
"""Regular expressions for the whole of texts of these formats, none of which holds more than llguidance's own for JSON
strings.
"""
MAX_BYTES = 1 << 12
"""Size of a text in which a pattern is looked for: a microsecond or two each."""


def whole_match(pattern: str) -> str:
    """A regular expression for the whole of each text in which a pattern is found; empty where it has what llguidance's
    expressions do not know: anchors but at its ends, looking around, references back.
    """
    tokens = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:|.", pattern, re.DOTALL)
    begins, ends = tokens[:1] == ["^"], tokens[-1:] == ["$"]
    inner = tokens[begins : len(tokens) - ends]
    depth = 0
    for token, following in zip(inner, [*inner[1:], ""], strict=False):
        depth += (token in ("(", "(?:")) - (token == ")")
        is_open = token == "|" and not depth and (begins or ends)
        if token in ("^", "$") or is_open or (token == "(" and following == "?") or re.match(r"\\[1-9bBk]", token):
            return ""
    try:
        re.compile("".join(inner))
    except re.error:
        return ""
    text = "".join(token if token[0] == "\\" else token.replace("/", "\\/") for token in inner)
    return f"{'' if begins else '(?s:.*)'}(?:{text}){'' if ends else '(?s:.*)'}"


def is_in(pattern: object, text: str) -> bool | None:
    """Whether a pattern is found in a text; None where that is not known: the pattern is not understood, or one of both
    is too long.
    """
    expression = whole_match(pattern) if isinstance(pattern, str) and pattern else ""
    matcher = _matcher(expression) if expression else None
    data = list(text.encode(errors="replace"))
    if matcher is None or len(data) > MAX_BYTES:
        return None
    matcher = matcher.deep_copy()
    is_whole = matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()
    return None if matcher.is_error() else is_whole


@lru_cache(maxsize=64)
def _matcher(expression: str) -> llguidance.LLMatcher | None:
    """A matcher for the whole of a text, byte by byte."""
    grammar = llguidance.LLMatcher.grammar_from_regex(expression)
    matcher = llguidance.LLMatcher(_BYTES, grammar, limits=LIMITS, log_level=0)
    return None if matcher.is_error() else matcher


_BYTES = llguidance.LLTokenizer("byte")
