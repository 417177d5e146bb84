"""Instructor."""

from __future__ import annotations

import instructor
import openai
from checks import CLIENT, MAX_TOKENS, MODEL, PERSON, Person, check, is_bob, run


def answered(mode: instructor.Mode) -> None:
    """Raises unless the person comes at the first try."""
    client = instructor.from_openai(openai.OpenAI(**CLIENT), mode=mode)
    person = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PERSON}],
        response_model=Person,
        max_retries=0,
        temperature=0,
        max_tokens=MAX_TOKENS,
    )
    is_bob(Person.model_validate(person.model_dump()))


@check("mode TOOLS")
def tools() -> None:
    answered(instructor.Mode.TOOLS)


@check("mode JSON")
def json_mode() -> None:
    answered(instructor.Mode.JSON)


@check("mode JSON_SCHEMA")
def schema() -> None:
    answered(instructor.Mode.JSON_SCHEMA)


run("instructor")
