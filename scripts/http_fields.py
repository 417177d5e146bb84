"""The tables of request fields in docs/http.md, made of the rows in `http/requests/fields.py` and `base/types/`, and
random values for them: `python scripts/http_fields.py` writes the tables again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from uad.base.common.samplers import SAMPLERS, SETTINGS
from uad.base.types import Request
from uad.http.requests.fields import (
    REQUEST_ROWS,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerationBody,
    InfillBody,
    NativeBody,
    SpeculativeBody,
    StreamOptions,
    TableBody,
    TemplateBody,
    TokenizeBody,
)

PAGE = Path(__file__).parent.parent / "docs" / "http.md"
BEGIN, END = "<!-- fields: made by scripts/http_fields.py -->\n", "<!-- end of fields -->\n"
Schema = dict[str, Any]
_OF_SAMPLERS = {name for names in SAMPLERS.values() for name in names}
"""The page has a table of their own for these."""
_INHERITED = (TableBody, GenerationBody, TemplateBody, NativeBody)
KINDS: dict[type[BaseModel], tuple[str, str]] = {
    TableBody: ("", "On all routes that generate"),
    GenerationBody: ("", ""),
    StreamOptions: ("stream_options.", ""),
    SpeculativeBody: ("speculative.", ""),
    TemplateBody: ("", "Chats, and `/apply-template`"),
    ChatBody: ("", "`/v1/chat/completions` alone"),
    CompletionBody: ("", "`/v1/completions`"),
    NativeBody: ("", "`/completion` and `/infill`"),
    InfillBody: ("", "`/infill`"),
    TokenizeBody: ("", "`/tokenize`"),
    DetokenizeBody: ("", "`/detokenize`"),
}
"""The text before the names of each kind of body, and the heading above its rows."""
GENERATING = (TableBody, GenerationBody, SpeculativeBody, TemplateBody, ChatBody, CompletionBody, NativeBody)
"""Those whose rows a request that generates may have."""


@dataclass(frozen=True)
class Row:
    """One field as the page has it. schema: JSON schema of its values, empty where `says` tells what they are."""

    name: str
    names: tuple[str, ...]
    schema: Schema
    default: str
    says: str
    is_required: bool
    is_echoed: bool


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """The schema without references, and without null, which means absent everywhere."""
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    found = {**schema}
    if "anyOf" in schema:
        kinds = [_resolved(one, definitions) for one in schema["anyOf"] if one != {"type": "null"}]
        found |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if len(kinds) == 1:
            del found["anyOf"]
    if "items" in schema:
        found["items"] = _resolved(schema["items"], definitions)
    if "properties" in schema:
        found["properties"] = {name: _resolved(one, definitions) for name, one in schema["properties"].items()}
    return found


def rows_of(kind: type[BaseModel]) -> Iterator[Row]:
    """The rows that this kind of body has beside those of the kinds that it is made of; not those of samplers."""
    schema = kind.model_json_schema(by_alias=False)
    others = [base for base in kind.__mro__[1:] if base in _INHERITED]
    known = {name for base in others for name in base.model_fields} - {"prompt" if kind is InfillBody else ""}
    usual: dict[str, object] = {name: one.default for name, one in SETTINGS.items()}
    usual |= {one.name or name: one.default_text or getattr(Request(()), name) for name, one in REQUEST_ROWS.items()}
    for name, field in kind.model_fields.items():
        if name in known or name in _OF_SAMPLERS:
            continue
        start, more = KINDS[kind][0], field.json_schema_extra
        names = [str(one) for one in getattr(field.validation_alias, "choices", ())]
        default = usual.get(name, field.default)
        yield Row(
            start + name,
            tuple(one for one in dict.fromkeys((name, *names)) if one != name),
            _resolved(schema["properties"][name], schema.get("$defs", {})),
            "–" if field.is_required() or isinstance(default, BaseModel) else _shown(default),
            field.description or "",
            field.is_required(),
            isinstance(more, dict) and more["echoed"] is True,
        )


@cache
def all_rows() -> dict[type[BaseModel], list[Row]]:
    """The rows of the page, by the kind of body that they belong to."""
    return {kind: list(rows_of(kind)) for kind in KINDS}


def _shown(default: object) -> str:
    match default:
        case None:
            return ""
        case bool():
            return str(default).lower()
        case "" | [] | () | {}:
            return "empty"
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def takes(schema: Schema) -> str:
    """The values that there may be, in words."""
    low, high = schema.get("minimum"), schema.get("maximum")
    span = f", {low:g} to {high if isinstance(high, int) else f'{high:g}'}" if low is not None else ""
    most = f", {schema['maxItems']} at most" if "maxItems" in schema else ""
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "integer":
            return f"whole number{span}"
        case "number":
            return f"number{span}"
        case "string" if "enum" in schema:
            return ", ".join(f"`{one}`" for one in schema["enum"])
        case "string":
            return "text" + (f", {schema['maxLength']} characters at most" if "maxLength" in schema else "")
        case "array":
            kind = schema["items"].get("type")
            called = {"string": "texts", "integer": "token ids", "object": "objects", "array": "lists"}
            return f"list of {called[kind]}{most}"
        case "object":
            return "object"
    return " or ".join(takes(one) for one in schema.get("anyOf", ()))


def section() -> str:
    """The tables, with their headings."""
    lines: list[str] = []
    for kind, rows in all_rows().items():
        if KINDS[kind][1]:
            lines += ["", f"{KINDS[kind][1]}:", "", "| field | value | default | what it does |", "|---|---|---|---|"]
        for row in rows:
            name = f"`{row.name}`" + (" ✓" if row.is_echoed else "")
            name += f", also {', '.join(f'`{one}`' for one in row.names)}" if row.names else ""
            default = "must be there" if row.is_required else row.default
            lines.append(f"| {name} | {takes(row.schema)} | {default} | {row.says} |")
    return "\n".join([*lines[1:], ""])


def written(page: str) -> str:
    """The page with the tables as they are now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{section()}\n{END}{tail}"


def drawn(draw: random.Random, schema: Schema) -> Any:
    """A value that the schema takes, most often a usual one."""
    match schema.get("type"):
        case "boolean":
            return draw.random() < 0.5
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            return draw.choice((low, high, draw.randint(low, min(high, low + 8))))
        case "number":
            low, high = schema["minimum"], schema["maximum"]
            return draw.choice((low, high, draw.uniform(low, min(high, low + 2))))
        case "string":
            return draw.choice(schema.get("enum", ("a", " ", "x" * schema.get("maxLength", 9))))
        case "array":
            return [drawn(draw, schema["items"]) for _ in range(draw.randint(0, 3))]
        case "object":
            return {
                name: drawn(draw, one)
                for name, one in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or draw.random() < 0.5
            }
    kinds = schema.get("anyOf", ())
    return drawn(draw, draw.choice(kinds)) if kinds else None


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
