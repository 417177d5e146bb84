"""Fields of `types.Request` that a body over HTTP sets as they are. A field is one row there, and what reads it.

From the row come the member of every body, with its type and bounds (`requests/fields`), the value in the request
(`requests/job`), its repetition in answers (`apis/settings`), its line in docs/http.md, and cases for
`scripts/fuzz.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from uad.base.common.settings import INT32_MAX


@dataclass(frozen=True, slots=True)
class RequestField:
    """One row. The type is that of the field: true or false, a number, texts, token ids."""

    says: str
    """What it does, as docs/http.md has it."""
    name: str = ""
    """What bodies and answers call it, where that differs from the name in `Request`."""
    low: float = 0
    high: float = INT32_MAX
    """Numbers outside of low..high are refused."""
    counts_from: float | None = None
    """Smaller numbers are taken for this one."""
    only_streamed: bool = False
    """It means nothing, and is off, in a request that is not streamed."""
    is_echoed: bool = True
    """Whether `generation_settings` of answers has it."""
    default_text: str = ""
    """What docs/http.md says in place of the default."""


def request_field(default: object, says: str, name: str = "", **more: Any) -> Any:
    """A dataclass field with that default and a `RequestField` of these values."""
    return field(default=default, metadata={RequestField: RequestField(says, name, **more)})


def request_fields(kind: Any) -> dict[str, RequestField]:
    """The rows among the fields of a dataclass, by the field's name, in their order."""
    return {one.name: one.metadata[RequestField] for one in fields(kind) if RequestField in one.metadata}
