"""How many requests with tools get a call from a running server: 40 that need one of four tools, 40 that need none.

    python scripts/tool_calls.py --url http://127.0.0.1:8080 [--record answers.jsonl] [--least 30]

All are streamed, at a temperature of 0, with the choice `auto`. Each answer is compared with what the model wrote, by
its ids. A record has an answer in each line; answers that are in it are not asked for again. Small models call tools
that nobody needs, and no server can know that: such calls are counted by themselves. Exit code 1: fewer than --least
requests that need a tool got a call of that tool, or another text is not what the model wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
"""Questions that only a tool can answer, by the tool."""
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
"""Questions that a model answers by itself, some of them with JSON and blocks of code."""


@dataclass(frozen=True)
class Answer:
    """The result of one request. needs: the tool that it needs; empty for none. written: what the model wrote."""

    question: str
    needs: str
    text: str
    written: str
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


def _post(url: str, body: Mapping[str, object]) -> Iterator[bytes]:
    """The lines of an answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
        yield from answer


def ask(url: str, needs: str, question: str, max_tokens: int) -> Answer:
    """One request, streamed."""
    body = {"messages": [{"role": "user", "content": question}], "tools": TOOLS, "max_tokens": max_tokens}
    body |= {"temperature": 0, "stream": True, "return_token_ids": True}
    text, finish, calls, ids = "", "", dict[int, dict[str, str]](), list[int]()
    for line in _post(f"{url}/v1/chat/completions", body):
        if not line.startswith(b"data: {"):  # a comment, a blank line or the end
            continue
        for choice in json.loads(line.removeprefix(b"data: ")).get("choices", []):
            text += choice["delta"].get("content") or ""
            finish = choice.get("finish_reason") or finish
            ids += choice.get("token_ids") or []
            _collect(calls, choice["delta"].get("tool_calls") or [])
    written = json.loads(b"".join(_post(f"{url}/detokenize", {"tokens": ids})))["content"]
    in_order = [calls[index] for index in sorted(calls)]
    return Answer(question, needs, text, written.removesuffix("<|im_end|>"), in_order, finish)


def _collect(calls: dict[int, dict[str, str]], pieces: Sequence[Mapping[str, Any]]) -> None:
    for piece in pieces:
        call = calls.setdefault(piece["index"], {"name": "", "arguments": ""})
        for name, value in piece["function"].items():
            call[name] += value


def report(answers: Sequence[Answer]) -> tuple[int, int]:
    """Print what came of them. Returns how many that need a tool call it, and how many texts are not as written."""
    needed, others = [one for one in answers if one.needs], [one for one in answers if not one.needs]
    wrong = [one for one in needed if not one.is_right]
    idle = [one for one in others if one.calls]
    changed = [one for one in answers if not one.calls and one.text != one.written]
    n_calls = sum(bool(one.calls) for one in needed)
    print(f"of {len(needed)} that need a tool {len(needed) - len(wrong)} call it, {n_calls} call any")
    print("by tool:", dict(Counter(one.needs for one in needed if one.is_right)))
    print(f"of {len(others)} that need none the model calls a tool in {len(idle)}")
    print(f"of {sum(not one.calls for one in answers)} texts {len(changed)} are not what the model wrote")
    for one in [*wrong, *idle, *changed]:
        print(f"- {one.question!r}: {one.calls or ''} {one.written!r}")
    return len(needed) - len(wrong), len(changed)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True, help="of the server, without /v1")
    parser.add_argument("--record", type=Path, metavar="FILE", help="answers, one a line; it may be there already")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="calls that there must be")
    args = parser.parse_args(argv)
    answers = {one.question: one for one in _recorded(args.record)}
    for needs, question in questions():
        if question not in answers:
            answers[question] = ask(args.url.rstrip("/"), needs, question, args.max_tokens)
            if args.record:
                with args.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(answers[question]), ensure_ascii=False) + "\n")
    n_right, n_changed = report(list(answers.values()))
    return int(n_right < args.least or n_changed > 0)


def _recorded(path: Path | None) -> Iterator[Answer]:
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Answer(**json.loads(line))


if __name__ == "__main__":
    sys.exit(main())
