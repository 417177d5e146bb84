"""--target-tokenizer and --draft-tokenizer as a user meets them: served answers that stay the same, and refusals that
name the token.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server, uad
from kit.tokenizer_files import byte_level, edited
from kit.vocab_kit import vocab

pytestmark = pytest.mark.model
ASK = ("-p", "Make a numbered list of: river, stone, lantern.", "-n", "24", "--temp", "0", "-c", "1024")
PAIR = ("--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    right = {name: byte_level(name, folder / f"{name}.json") for name in ("target-chatml", "draft-zephyr")}
    return {**right, "wrong": edited(byte_level("target-chatml", folder / "wrong.json"), "Ġs", "Ġzebra")}


def refused(*args: str) -> str:
    result = uad(*args)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def test_the_first_differing_token_is_named(files: dict[str, Path]) -> None:
    line = refused("generate", *PAIR, *ASK, "--target-tokenizer", str(files["wrong"]))
    id_ = vocab("target-chatml").pieces.index(b" s")
    assert f"{files['wrong']} is not target-chatml.gguf's: token {id_} is 'Ġzebra' there and b' s' in the model" in line
    line = refused("generate", *PAIR, *ASK, "--draft-tokenizer", str(files["target-chatml"]))
    assert "is not draft-zephyr.gguf's: token" in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in refused("generate", *PAIR, *ASK, "--draft-tokenizer", str(tmp_path / "nothing.json"))


def test_inspect_checks_them_too(files: dict[str, Path]) -> None:
    pair = (str(TARGET), str(DRAFTS["zephyr"]))
    assert "'Ġzebra' there" in refused("inspect", *pair, "--target-tokenizer", str(files["wrong"]))
    given = ("--target-tokenizer", str(files["target-chatml"]), "--draft-tokenizer", str(files["draft-zephyr"]))
    with_files, without = uad("inspect", *pair, *given), uad("inspect", *pair)
    assert with_files.returncode == 0, with_files.stderr
    assert with_files.stdout == without.stdout


def test_a_served_request_with_both(files: dict[str, Path], tmp_path: Path) -> None:
    given = ("--target-tokenizer", str(files["target-chatml"]), "--draft-tokenizer", str(files["draft-zephyr"]))
    with Server(tmp_path / "log", [*PAIR, *given, "-c", "1024", "--spec-policy", "fixed"]) as server:
        for name in files["target-chatml"], files["draft-zephyr"]:
            assert f"tokenizer: {name}" in server.log.read_text()
        text = "été: naïve code x = foo(12)\n"
        ids = post(server, "/tokenize", {"content": text})["tokens"]
        assert ids == vocab("target-chatml").tokenize(text.encode())
        body = {
            "messages": [{"role": "user", "content": "Make a numbered list of: river, stone, lantern."}],
            "temperature": 0,
        }
        answer = post(server, "/v1/chat/completions", body)
        assert "1. river\n2. stone\n3. lantern" in answer["choices"][0]["message"]["content"]
        assert answer["timings"]["draft_n_accepted"] > 0


def post(server: Server, path: str, body: object) -> dict:
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=240) as response:
        return json.load(response)
