"""The command line `llm`, with settings in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import BASE_URL, KEY, MAX_TOKENS, MODEL, PERSON, TIMEOUT_S, Person, check, is_bob, run

TOOL = '''
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers"""
    return a * b
'''
NAME = "served"


def llm(*words: str) -> str:
    """The output of llm. Raises RuntimeError with its words where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        model = {
            "model_id": NAME,
            "model_name": MODEL,
            "api_base": BASE_URL,
            "supports_schema": True,
            "supports_tools": True,
        }
        Path(folder, "extra-openai-models.yaml").write_text(json.dumps([model]), encoding="utf-8")
        options = ("-m", NAME, "--key", KEY, "-o", "temperature", "0", "-o", "max_tokens", str(MAX_TOKENS), "--no-log")
        done = subprocess.run(
            [sys.executable, "-P", "-m", "llm", *words, *options],
            env={**os.environ, "LLM_USER_PATH": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


@check("--functions: a tool, called and answered")
def a_tool() -> None:
    answer = llm("--functions", TOOL, "How much is 123 times 45? Write a <tool_call>, and then tell me its answer.")
    assert "5535" in answer.replace(",", ""), f"another product: {answer!r}"


@check("-T llm_version")
def own_tool() -> None:
    answer = llm("-T", "llm_version", "Which version of llm is this? Write a <tool_call>, and then tell me its answer.")
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "llm", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    assert shown in answer, f"another version: {answer!r}"


@check("--schema")
def by_schema() -> None:
    is_bob(Person.model_validate_json(llm("--schema", json.dumps(Person.model_json_schema()), PERSON)))


run("llm")
