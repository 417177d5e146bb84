"""A server whose answers are written in advance, for `scripts/clients.py --scripted`: it shows clients the forms of all
routes, without a model. `python -m kit.scripted_server --host HOST --port PORT`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kit.api_kit import ANSWERS
from kit.fake_runtime import FakeRuntime, turns
from kit.listening import base_url, listen
from uad.base.config import ServerConfig
from uad.base.types import ConstraintKind, Request
from uad.http.server import make_app, make_runner

THOUGHT = "<think>\nLet me see.\n</think>\n\n"
PERSON = {"name": "Bob", "age": 42, "city": "Rome"}


class Answers:
    """What is said, by the chat that was rendered: a call where a tool fits the question, then what it gave. "Replace A
    by B in FILE" is done by a coding agent's tools: read, then edit.
    """

    def __init__(self) -> None:
        self.fake = FakeRuntime(script=self._say, answers=ANSWERS, n_ctx=2**20, n_slots=4, pause=0.001, step=5)

    def _say(self, request: Request) -> bytes:
        messages, kwargs = self._chat(request)
        own = request.constraint
        if own is not None and own.kind is ConstraintKind.JSON_SCHEMA:
            return json.dumps(PERSON).encode()
        asked = str([message["content"] for message in messages if message["role"] == "user"])
        text = self._text(asked, messages, kwargs.get("tools") or ())
        return (THOUGHT + (text or "Hello to you.")).encode()

    def _chat(self, request: Request) -> tuple[Sequence[Mapping[str, object]], Mapping[str, Any]]:
        """The messages and arguments of this prompt's chat, both empty where it is none. Agents ask for a title while
        they ask for the answer, so it need not be the last.
        """
        prompt = bytes(id_ for id_ in request.prompt if id_ < 256).decode(errors="replace")
        rendered = [chat for chat in reversed(self.fake.chats) if prompt.startswith(turns(chat[0]))]
        messages, kwargs, _ = max(rendered, key=lambda chat: len(turns(chat[0])), default=((), {}, False))
        return messages, kwargs

    def _text(self, asked: str, messages: Sequence[Mapping[str, object]], tools: Any) -> str:
        functions = {tool["function"]["name"]: tool["function"] for tool in tools}
        if {"read", "edit"} <= functions.keys() and (call := _edit(asked, messages)):
            return call
        if any(message["role"] == "assistant" for message in messages):  # some clients tell results as the user
            text = f"The tool says: {str(messages[-1]['content']).rpartition(chr(10))[2]}"
            return _call("final_answer", {"answer": text}) if "final_answer" in functions else text
        if "Count from 1 to 9" in asked:
            return "1, 2, 3, 4, 5, 6, 7, 8, 9"
        if "Use no tool" in asked or not functions:
            return ""
        chosen = functions.get("get_weather", [*functions.values()][-1])
        return _call(chosen["name"], dict(_arguments(asked, chosen["parameters"].get("properties", {}))))


def _call(name: str, arguments: Mapping[str, object]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"I look.\n<tool_call>\n{call}\n</tool_call>"


def _edit(asked: str, messages: Sequence[Mapping[str, object]]) -> str:
    """The next call of an edit that was asked for, by how many turns there were; "" where none is left."""
    wanted = re.search(r"Replace (\w+) by (\w+) in ([\w.]+\w)", asked)
    if not wanted:
        return ""
    old, new, file = wanted.groups()
    calls = [
        _call("read", {"filePath": file}),
        _call("edit", {"filePath": file, "oldString": old, "newString": new}),
    ]
    n_done = sum(message["role"] == "assistant" for message in messages)
    return calls[n_done] if n_done < len(calls) else ""


def _arguments(asked: str, properties: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Values from the question: its cities, its person, its numbers in a row."""
    numbers = iter(re.findall(r"\d+", asked))
    for name, schema in properties.items():
        if schema.get("type") == "integer":
            yield name, int(next(numbers, "0"))
        else:
            yield name, "Paris" if "Paris" in asked else PERSON.get(name, "x")


async def serve(host: str, port: int) -> None:
    """Until the process is ended."""
    config = ServerConfig(host=host, port=port, alias="scripted", max_queue=16)
    fake = Answers().fake
    runner = make_runner(make_app(fake, config))
    with fake:
        await runner.setup()
        await listen(runner, config)
        print(f"listening on {base_url(runner, config)}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.host, given.port))


if __name__ == "__main__":
    main()
