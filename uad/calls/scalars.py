"""Texts and single words as JSON. Pure functions."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator

_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMERAL = re.compile(r"[-+]?[\d.][\w.+-]{0,64}")


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """A piece of a text as it stands inside a JSON string."""
    return quoted(text)[1:-1]


def spelled(word: str) -> str:
    """Python's names of constants in JSON's spelling; any other text as it is."""
    return _WORDS.get(word, word)


def kinds(text: str) -> Iterator[str]:
    """The JSON type of a text that is JSON; nothing for one that is none."""
    if text in ("true", "false"):
        yield "boolean"
    elif text == "null":
        yield "null"
    elif _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        yield "number"
    elif text[:1] in ("{", "[", '"') and _is_json(text):
        yield {"{": "object", "[": "array", '"': "string"}[text[0]]


def word_json(word: str) -> str:
    """The JSON of a constant or a number, in JSON's spelling or in Python's; empty for any other text."""
    text = spelled(word)
    if text[:1] not in ("{", "[", '"') and any(True for _ in kinds(text)):
        return text
    if not _NUMERAL.fullmatch(text):
        return ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return ""
    return json.dumps(value) if isinstance(value, int | float) and math.isfinite(value) else ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return False
    return True


def _finite(text: str) -> float:
    """A number. Raises ValueError for what JSON has no number for."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
