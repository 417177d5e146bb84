"""Parts that the checks of clients share: where the server is, what they ask for, and how a result is told.

A file of checks marks its functions with `check` and ends with `run`, or calls `tell` for each. It is started by
`scripts/clients.py` with UAD_CLIENTS_URL.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ROOT_URL = os.environ.get("UAD_CLIENTS_URL", "http://127.0.0.1:8080")
BASE_URL = ROOT_URL + "/v1"
KEY = "none"
MODEL = "local"
MAX_TOKENS = 256
TIMEOUT_S = 240
MAX_ERROR = 300
CLIENT: dict[str, Any] = {"base_url": BASE_URL, "api_key": KEY, "timeout": TIMEOUT_S, "max_retries": 0}
"""The arguments with which clients of OpenAI's package are made."""

WEATHER = "What is the weather in Paris? Write a <tool_call>, and then tell me its answer."
INSTRUCTIONS = "When a tool has answered, tell the user its answer in one sentence."
REPORT = "It is 18 degrees and rains in Paris."
PERSON = "Bob is 42 years old and lives in Rome. Give his name, age and city as JSON."
TOOL_PERSON = "Bob is 42 years old and lives in Rome. Save him."


class City(BaseModel):
    """The arguments of get_weather."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(description="name of the city")


class Person(BaseModel):
    """A person."""

    model_config = ConfigDict(extra="forbid")
    name: str
    age: int
    city: str


WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city",
        "parameters": City.model_json_schema(),
    },
}

_checks: list[tuple[str, Callable[[], None]]] = []


def check(what: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put a function among those that `run` calls. It raises where the answer is not what was asked for."""

    def put(function: Callable[[], None]) -> Callable[[], None]:
        _checks.append((what, function))
        return function

    return put


def is_bob(person: object) -> None:
    """Raises AssertionError unless it is the person of PERSON."""
    assert person == Person(name="Bob", age=42, city="Rome"), f"another person: {person!r}"


def is_paris(name: str, arguments: str | dict[str, Any]) -> None:
    """Raises unless the call is get_weather for Paris. arguments: JSON text or what was read from it."""
    assert name == "get_weather", f"another tool: {name!r}"
    city = City.model_validate_json(arguments) if isinstance(arguments, str) else City.model_validate(arguments)
    assert "paris" in city.city.lower(), f"another city: {city!r}"


def tells_report(text: object) -> None:
    """Raises AssertionError unless the text tells what the tool answered."""
    assert isinstance(text, str), f"no text: {text!r}"
    assert "18" in text, f"the tool's answer is not told: {text!r}"


def posted(url: str, body: dict[str, Any]) -> Any:
    """The answer to a POST, of which the lines can be read as they come. Raises HTTPError, or URLError."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def tell(client: str, client_version: str, what: str, function: Callable[[], None]) -> None:
    """Do a check; prints a line of JSON: client, version, what, error (empty without one)."""
    error = ""
    try:
        function()
    except Exception as problem:  # whatever a client raises is the result
        error = f"{type(problem).__name__}: {problem}"[:MAX_ERROR]
    print(json.dumps({"client": client, "version": client_version, "what": what, "error": error}), flush=True)


def run(package: str) -> None:
    """Do all checks of an installed package."""
    for what, function in _checks:
        tell(package, version(package), what, function)
