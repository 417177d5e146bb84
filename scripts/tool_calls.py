"""How many requests with tools get a call from a running server: 40 that need one of four tools, 40 that need none.

    python scripts/tool_calls.py --url http://127.0.0.1:8080 --record plain.jsonl    a server with --json-calls off
    python scripts/tool_calls.py --url http://127.0.0.1:8080 --against plain.jsonl   one as it is

All are streamed, at a temperature of 0, with the choice `auto`. Prints how many of each kind got calls, with which
tools, and with --against which texts are not those of the recorded answers. Exit code 1: fewer than --least of the
first kind got a call of the right tool, or an answer of the second kind changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LONGEST_S = 300


def _tool(name: str, about: str, required: Sequence[str], **arguments: Mapping[str, object]) -> dict[str, object]:
    schema = {"type": "object", "properties": arguments, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [
    _tool(
        "get_weather",
        "The weather in a city now.",
        ["city"],
        city={"type": "string", "description": "The city's name"},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    _tool(
        "set_timer",
        "Starts a timer.",
        ["minutes"],
        minutes={"type": "integer", "minimum": 1, "description": "How long it runs"},
        label={"type": "string", "description": "What it is for"},
    ),
    _tool(
        "send_message",
        "Sends a message to one of the user's contacts.",
        ["to", "text"],
        to={"type": "string", "description": "The contact's name"},
        text={"type": "string", "description": "The message"},
    ),
    _tool(
        "read_file",
        "Reads a file of the user's project.",
        ["path"],
        path={"type": "string", "description": "The file's path in the project"},
    ),
]
NEEDED = {
    "get_weather": (
        "What is the weather in Paris?",
        "Is it raining in London right now?",
        "How warm is it in Madrid at the moment, in celsius?",
        "Tell me the current weather in Tokyo.",
        "Do I need an umbrella in Hamburg today?",
        "weather oslo",
        "What's the temperature in New York in fahrenheit?",
        "Could you check whether it is sunny in Lisbon?",
        "I am about to leave the house in Vienna. What is it like outside?",
        "Check the weather for Buenos Aires, please.",
    ),
    "set_timer": (
        "Set a timer for 10 minutes.",
        "Start a 25 minute timer for my work session.",
        "Remind me in 5 minutes that the tea is ready.",
        "timer 3 minutes",
        "Please set a timer for the pasta, nine minutes.",
        "I want to nap for 20 minutes. Start a timer.",
        "Can you time 45 minutes for the cake in the oven?",
        "Give me a one minute timer.",
        "Start a timer of 90 minutes, label it laundry.",
        "Set a two hour timer.",
    ),
    "send_message": (
        "Tell Anna that I will be late.",
        "Send Ben a message: the meeting is at three.",
        "Text my mother that I arrived safely.",
        "Write to Carla and ask her if she has time tomorrow.",
        "Message David: happy birthday!",
        "Let Emma know the parcel has come.",
        'Send "On my way" to Frank.',
        "Please ask George by message where the keys are.",
        "Send Hanna a short thank-you message for the flowers.",
        "Message Ivan that the build is green again.",
    ),
    "read_file": (
        "Show me what is in README.md.",
        "Read the file src/main.py.",
        "What does config/settings.yaml contain?",
        "Open package.json and tell me the version.",
        "Which dependencies are listed in requirements.txt?",
        "Please read docs/install.md.",
        "Look at tests/test_app.py and tell me what it tests.",
        "Is there a bug in src/parser.c? Read it first.",
        "cat Makefile",
        "Summarise CHANGELOG.md for me.",
    ),
}
"""What only a tool can answer, by the tool."""
NOT_NEEDED = (
    "Hello!",
    "Who are you?",
    "Thank you, that was all.",
    "What is the capital of France?",
    "How many days does a week have?",
    "What is 17 times 4?",
    "Explain in one sentence what a compiler does.",
    "What is the difference between a list and a tuple in Python?",
    "Write a Python function that reverses a string.",
    "Write a Python function that adds two numbers.",
    "Write hello world in C.",
    "Write a bash line that counts the lines of all files.",
    "Write a SQL query that selects all users older than 30.",
    "Write a regular expression for a date like 2024-01-31.",
    "Translate 'good morning' into German.",
    "Translate 'I am hungry' into Spanish.",
    "Write a haiku about the sea.",
    "Tell me a short joke.",
    "Name three colours.",
    "List four fruits as a JSON array of strings.",
    "Write a JSON object that describes a person with name and age.",
    "Write a JSON object for a book with name, author and year. Only the JSON.",
    'Give me an example of a JSON list of two objects with the members "name" and "price".',
    "Write a minimal package.json for a project called demo.",
    "Write a tsconfig.json with strict mode on.",
    "Convert this YAML to JSON: name: tea\ncups: 3",
    'What does this JSON mean: {"name": "tea", "cups": 3}?',
    "Write a JSON schema for an object with one string called name.",
    "Write an HTML page with one heading.",
    "Write a CSS rule that makes all links red.",
    "What does HTTP status 404 mean?",
    "What is a mutex?",
    "Why is the sky blue?",
    "Who wrote Hamlet?",
    "Is 91 a prime number?",
    "Spell the word 'necessary'.",
    "What is the opposite of cold?",
    "Write a git command that undoes the last commit and keeps the changes.",
    "What does O(n log n) mean?",
    "Write a JavaScript function that returns the larger of two numbers.",
)
"""What a model answers by itself, JSON and blocks of code among it."""


@dataclass(frozen=True)
class Answer:
    """What came of one request. needs: the tool that it needs; empty for none."""

    question: str
    needs: str
    text: str
    calls: list[dict[str, str]] = field(default_factory=list)
    finish: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the tool that is needed is called, and no other."""
        return [call["name"] for call in self.calls] == [self.needs]


def questions() -> list[tuple[str, str]]:
    """All questions, each after the tool that it needs."""
    needed = [(tool, question) for tool, asked in NEEDED.items() for question in asked]
    return needed + [("", question) for question in NOT_NEEDED]


def ask(url: str, needs: str, question: str, max_tokens: int) -> Answer:
    """One request, streamed."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "tools": TOOLS,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    text, finish, calls = "", "", dict[int, dict[str, str]]()
    with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
        for line in answer:
            data = line.decode().removeprefix("data: ").strip()
            for choice in json.loads(data).get("choices", []) if data not in ("", "[DONE]") else []:
                text += choice["delta"].get("content") or ""
                finish = choice.get("finish_reason") or finish
                _collect(calls, choice["delta"].get("tool_calls") or [])
    return Answer(question, needs, text, [calls[index] for index in sorted(calls)], finish)


def _collect(calls: dict[int, dict[str, str]], pieces: Sequence[Mapping[str, Any]]) -> None:
    for piece in pieces:
        call = calls.setdefault(piece["index"], {"name": "", "arguments": ""})
        for name, value in piece["function"].items():
            call[name] += value


def report(answers: Sequence[Answer], recorded: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    """Print what came of them. Returns how many that need a tool call it, and how many that need none changed."""
    needed = [one for one in answers if one.needs]
    right = sum(one.is_right for one in needed)
    others = [one for one in answers if not one.needs]
    changed = [one for one in others if one.question in recorded and one.text != recorded[one.question]["text"]]
    print(
        f"of {len(needed)} that need a tool {right} call it, {sum(map(bool, (one.calls for one in needed)))} call any"
    )
    print("by tool:", dict(Counter(one.needs for one in needed if one.is_right)))
    print(f"of {len(others)} that need none {sum(bool(one.calls) for one in others)} call one")
    if recorded:
        print(f"of {len(others)} that need none {len(changed)} changed")
    for one in [*(one for one in needed if not one.is_right), *changed]:
        print(f"- {one.question!r}: {one.calls or one.text!r}")
    return right, len(changed)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True, help="of the server, without /v1")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write all answers, one a line")
    parser.add_argument("--against", type=Path, metavar="FILE", help="answers of an earlier run")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="calls that there must be")
    args = parser.parse_args(argv)
    recorded = {}
    if args.against:
        lines = map(json.loads, args.against.read_text(encoding="utf-8").splitlines())
        recorded = {one["question"]: one for one in lines}
    answers = []
    for needs, question in questions():
        answers.append(ask(args.url.rstrip("/"), needs, question, args.max_tokens))
        if args.record:
            text = "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in answers)
            args.record.write_text(text, encoding="utf-8")
    right, n_changed = report(answers, recorded)
    return int(right < args.least or n_changed > 0)


if __name__ == "__main__":
    sys.exit(main())
