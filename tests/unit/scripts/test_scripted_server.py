"""What the server of `scripts/clients.py --scripted` says to a coding agent."""

from __future__ import annotations

from typing import Any

from kit.scripted_server import Answers

from uad.base.types import Request

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "edit")]
EDIT = {"role": "user", "content": '"Replace Hello by Goodbye in greeting.py. Read the file first."'}
TITLE = [{"role": "system", "content": "You write titles."}, EDIT]
TURN = {"role": "assistant", "content": "I look."}


def prompt(answers: Answers, messages: list[dict[str, str]], **kwargs: Any) -> Request:
    return Request(tuple(answers.fake.chat(messages, kwargs)))


def said(answers: Answers, request: Request) -> str:
    return answers.fake.script(request).decode()


def test_a_file_is_read_then_edited_then_the_user_is_told() -> None:
    answers, told, texts = Answers(), [EDIT], []
    for result in ("1: Hello", "Edit applied.", ""):
        texts.append(said(answers, prompt(answers, told, tools=TOOLS)))
        told = [*told, TURN, {"role": "tool", "content": result}]
    assert '"name": "read", "arguments": {"filePath": "greeting.py"}' in texts[0]
    assert '"filePath": "greeting.py", "oldString": "Hello", "newString": "Goodbye"' in texts[1]
    assert texts[2].endswith("The tool says: Edit applied.")


def test_each_prompt_has_the_answer_of_its_own_chat() -> None:
    answers = Answers()
    edit, title = prompt(answers, [EDIT], tools=TOOLS), prompt(answers, TITLE)
    assert '"name": "read"' in said(answers, edit)
    assert said(answers, title).endswith("Hello to you.")


def test_a_prompt_that_is_no_chat_has_an_answer() -> None:
    assert said(Answers(), Request((72, 105))).endswith("Hello to you.")
