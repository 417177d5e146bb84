"""Goes through all fields of requests with values at their bounds, past them and of other types, on a running server:

    python scripts/fields_beside.py http://127.0.0.1:8080                                   what is refused, and why
    python scripts/fields_beside.py http://127.0.0.1:8080 --beside http://127.0.0.1:8081    where llama-server differs

Both serve the same model, uad with UAD_KERNELS=off: other kernels may write other texts. Compared are the status, the
setting that the answer repeats, and the text, which is greedy. docs/http.md has the rule by which they may differ,
docs/llama-server.md where they do. Differences that a rule explains are only counted; --all prints them. Standard
library and uad only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import http_fields
from pydantic import BaseModel

from uad.base.common.samplers import SETTINGS
from uad.http.requests.fields import (
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

Schema = dict[str, Any]
TIMEOUT = 120.0
LENGTHS = ("max_tokens", "n_predict", "max_completion_tokens")
"""Of these only the first event is read: some mean an answer as long as the context."""
SHORT: dict[str, Any] = {"temperature": 0, "n_predict": 4, "cache_prompt": False}
HELLO = [{"role": "user", "content": "Say hello."}]
ROUTES: dict[type[BaseModel], tuple[str, dict[str, Any]]] = {
    TableBody: ("/completion", {"prompt": "Hello", **SHORT}),
    GenerationBody: ("/completion", {"prompt": "Hello", **SHORT}),
    StreamOptions: ("/v1/completions", {"prompt": "Hello", **SHORT}),
    SpeculativeBody: ("/completion", {"prompt": "Hello", **SHORT}),
    TemplateBody: ("/v1/chat/completions", {"messages": HELLO, **SHORT}),
    ChatBody: ("/v1/chat/completions", {"messages": HELLO, **SHORT}),
    CompletionBody: ("/v1/completions", {"prompt": "Hello", **SHORT}),
    NativeBody: ("/completion", {"prompt": "Hello", **SHORT}),
    InfillBody: ("/infill", {"input_prefix": "a = ", "input_suffix": "\n", **SHORT}),
    TokenizeBody: ("/tokenize", {"content": "Hello"}),
    DetokenizeBody: ("/detokenize", {"tokens": [1]}),
}
OTHER_TYPES: tuple[Any, ...] = (None, True, 1, 1.5, "5", "", [], {}, [None], {"a": None})
OWN = frozenset(
    (
        *(
            "min_tokens",
            "stop_token_ids",
            "include_stop_str_in_output",
            "bad_words",
            "bad_words_ids",
            "allowed_token_ids",
        ),
        *("prediction", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
        *(
            "return_origins",
            "return_token_ids",
            "add_special_tokens",
            "echo",
            "best_of",
            "suffix",
            "speculative",
            "verbose",
        ),
        *("thinking_budget", "reasoning_budget", "repetition_penalty", "typ_p", "enable_thinking", "id_slot"),
    )
)
"""Names that llama-server does not read, or not where uad does."""
DRAWN = frozenset(("temperature", "dynatemp_range", "samplers"))
"""With these a text may be drawn at random, so that none is compared."""
INT32 = 2**31
TYPE = re.compile('must be (an? |the |"none"|true)|should be a valid')
"""How uad says that a value has another type."""


@dataclass(frozen=True)
class Case:
    """A field with a value, in a body of its route."""

    path: str
    name: str
    value: Any
    usual: dict[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        """The body to send. A name with a dot is a member of an object, as SpeculativeBody takes it flat."""
        first, _, inner = self.name.partition(".")
        own = {first: {inner: self.value}} if inner and first == "stream_options" else {self.name: self.value}
        rest = {name: value for name, value in self.usual.items() if self.name not in LENGTHS or name not in LENGTHS}
        return {**rest, **own, **({"stream": True} if self.name in LENGTHS else {})}

    def __str__(self) -> str:
        shown = json.dumps(self.value)
        return f"{self.path} {self.name} {shown if len(shown) < 60 else shown[:57] + '...'}"


@dataclass(frozen=True)
class Reply:
    """A server's answer: the setting that it repeats, the text, or why it refuses."""

    status: int
    setting: object = None
    text: str | None = None
    why: str = ""


def values_of(schema: Schema) -> Iterator[Any]:
    """Values at the bounds and one past each; none of them where the type has no bounds."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        past = 1 if schema.get("type") == "integer" else max(1.0, math.ulp(high))
        yield from (low, high, low - past, high + past, 2**40, -(2**40))
    for most, unit in (("maxLength", "x"), ("maxItems", ["x"])):
        if most in schema and schema[most] < 1 << 16:
            yield from (unit * schema[most], unit * (schema[most] + 1))
    yield from schema.get("enum", ())
    for one in schema.get("anyOf", ()):
        yield from values_of(one)


def rows() -> Iterator[tuple[type[BaseModel], str, Schema]]:
    """Every name of every field, with the schema of its values."""
    for kind, found in http_fields.all_rows().items():
        for row in found:
            yield from ((kind, name, row.schema) for name in (row.name, *row.names))
    for field, one in SETTINGS.items():
        span = {"type": "integer" if one.is_whole else "number", "minimum": one.low, "maximum": one.high}
        yield from ((TableBody, name, span) for name in (field, *one.aliases))


def cases() -> Iterator[Case]:
    """All that is sent, each once."""
    seen = set[str]()
    for kind, name, schema in rows():
        path, usual = ROUTES[kind]
        for value in (*values_of(schema), *OTHER_TYPES):
            case = Case(path, name, value, usual)
            key = json.dumps([path, name, value])
            if key not in seen:
                seen.add(key)
                yield case


def answer_of(url: str, case: Case) -> Reply:
    """The answer of the server at this address to a case."""
    request = urllib.request.Request(
        url.rstrip("/") + case.path, json.dumps(case.body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if case.name in LENGTHS:
                answer.readline()
                return Reply(answer.status)
            return _read(answer.status, answer.read(), case)
    except urllib.error.HTTPError as error:
        return _refusal(error.code, error.read())
    except (OSError, http.client.HTTPException) as error:
        return Reply(0, why=f"{type(error).__name__}: {error}")


def _read(status: int, data: bytes, case: Case) -> Reply:
    try:
        found = json.loads(data)
    except ValueError:  # a stream
        return Reply(status)
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, dict):
        return Reply(status)
    settings = first.get("generation_settings")
    setting = settings.get(case.name) if isinstance(settings, dict) else None
    return Reply(status, setting, _text(first))


def _text(answer: dict[str, Any]) -> str | None:
    if isinstance(answer.get("content"), str):
        return str(answer["content"])
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    message = choices[0].get("message")
    return (
        choices[0].get("text") if message is None else json.dumps([message.get("content"), message.get("tool_calls")])
    )


def _refusal(status: int, data: bytes) -> Reply:
    try:
        error = json.loads(data)["error"]
        return Reply(status, why=str(error.get("message", error)) if isinstance(error, dict) else str(error))
    except (ValueError, KeyError, TypeError):
        return Reply(status, why=data[:200].decode("utf-8", "replace"))


def differences(mine: Reply, theirs: Reply) -> list[str]:
    """How two answers differ; what one of them does not repeat is not compared."""
    if (mine.status == 200) != (theirs.status == 200):
        why = mine.why or theirs.why
        return [f"status {mine.status} beside {theirs.status}: {why[:160]}"]
    found = []
    if None not in (mine.setting, theirs.setting) and not _same(mine.setting, theirs.setting):
        found.append(f"setting {mine.setting!r} beside {theirs.setting!r}")
    if None not in (mine.text, theirs.text) and mine.text != theirs.text:
        found.append(f"text {mine.text!r} beside {theirs.text!r}")
    return found


def rule_of(case: Case, mine: Reply, theirs: Reply) -> str | None:
    """Why the answers may differ; None: nothing in docs/http.md says so."""
    number = case.value if isinstance(case.value, int | float) and not isinstance(case.value, bool) else 0
    if case.name.partition(".")[0] in OWN:
        return "llama-server does not know the field"
    if (mine.status, theirs.status) == (400, 200) and case.value in OTHER_TYPES and TYPE.search(mine.why):
        return "a value of another type is refused"
    if abs(number) >= INT32:
        return "llama-server wraps numbers around, or keeps what has no meaning"
    if mine.status == theirs.status == 200 and isinstance(mine.setting, int | float) and mine.setting != number:
        return "a number out of bounds counts as the nearest bound"
    if mine.status == theirs.status == 200 and case.name in DRAWN and mine.text != theirs.text:
        return "the text is drawn at random"
    return None


def _same(mine: object, theirs: object) -> bool:
    """Equal, numbers up to single precision, in which llama-server keeps them."""
    if isinstance(mine, int | float) and isinstance(theirs, int | float):
        return math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-9)
    return mine == theirs


def run(url: str, beside: str | None, names: str, say: Callable[[str], None], is_all: bool = False) -> Counter[str]:
    """Say what is worth a line; how many cases were sent, and how many of them a rule explains."""
    counted = Counter[str]()
    for case in cases():
        if names and names not in case.name:
            continue
        counted["cases"] += 1
        mine = answer_of(url, case)
        if beside is not None:
            theirs = answer_of(beside, case)
            found = differences(mine, theirs)
            rule = rule_of(case, mine, theirs) if found else None
            if rule is not None:
                counted[rule] += 1
            if rule is None or is_all:
                for difference in found:
                    say(f"{case}: {difference}")
        elif mine.status != 200:
            say(f"{case}: {mine.status} {mine.why[:160]}")
    return counted


def main() -> int:
    """1 where a server does not answer, or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of uad")
    parser.add_argument("--beside", metavar="URL", help="address of a llama-server with the same model")
    parser.add_argument("--only", metavar="TEXT", default="", help="fields whose names have this text")
    parser.add_argument("--all", action="store_true", help="also what a rule explains")
    given = parser.parse_args()
    failed = []

    def say(line: str) -> None:
        print(line, flush=True)
        if ": 0 " in line or ": 5" in line or "status 0" in line or "status 5" in line:
            failed.append(line)

    counted = run(given.url, given.beside, given.only, say, given.all)
    print(*(f"{n:5} {what}" for what, n in counted.items()), sep="\n")
    return 1 if failed or not counted else 0


if __name__ == "__main__":
    sys.exit(main())
