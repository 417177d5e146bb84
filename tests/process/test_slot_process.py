"""Slots in files over a restart of a real server, and who leaves before a slot is free."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server

pytestmark = pytest.mark.model
TALK = "the river and the stone, the river and the lantern. " * 4


def post(server: Server, path: str, body: object) -> tuple[int, dict]:
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def served(tmp_path: Path, name: str) -> Server:
    pair = ["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), "-np", "2", "-c", "2048", "-t", "1", "-td", "1"]
    return Server(
        tmp_path / name, [*pair, "--exact", "--spec-policy", "fixed", "--slot-save-path", str(tmp_path / "slots")]
    )


def told(server: Server, slot: int, **fields: object) -> dict:
    body = {"prompt": TALK + "And then", "id_slot": slot, "n_predict": 24, "temperature": 0, **fields}
    status, answer = post(server, "/completion", body)
    assert status == 200
    return answer


def test_a_conversation_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    with served(tmp_path, "first") as server:
        anew = told(server, 1, prompt=TALK)
        status, saved = post(server, "/slots/1?action=save", {"filename": "talk.bin"})
        expected = told(server, 1)
    assert (status, saved["id_slot"], saved["filename"]) == (200, 1, "talk.bin")
    assert saved["n_written"] == (tmp_path / "slots" / "talk.bin").stat().st_size
    with served(tmp_path, "second") as server:
        status, restored = post(server, "/slots/0?action=restore", {"filename": "talk.bin"})
        assert (status, restored["n_restored"], restored["n_read"]) == (200, saved["n_saved"], saved["n_written"])
        again = told(server, 0)
        assert post(server, "/slots/0?action=erase", {})[1]["n_erased"] == again["tokens_cached"]
        read_anew = told(server, 0, cache_prompt=False)
        refused = post(server, "/slots/0?action=restore", {"filename": "../talk.bin"})
    assert again["content"] == expected["content"] == read_anew["content"]
    assert again["timings"]["cache_n"] == expected["timings"]["cache_n"] > anew["timings"]["prompt_n"] - 8
    assert again["timings"]["draft_n"] == expected["timings"]["draft_n"] > 0
    assert (refused[0], refused[1]["error"]["message"]) == (400, "Invalid filename")


def test_a_client_that_leaves_while_the_slot_is_busy_gets_no_file(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    with served(tmp_path, "log") as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        body = {"prompt": TALK, "id_slot": 1, "n_predict": 400, "min_tokens": 400, "stream": True}
        request = urllib.request.Request(server.url + "/completion", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=240) as stream:
            assert stream.readline()
            with socket.create_connection((host, int(port)), timeout=240) as leaving:
                data = b'{"filename": "gone.bin"}'
                head = f"POST /slots/1?action=save HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
                leaving.sendall(head.encode() + data)
            assert b'"stop": true' in stream.read().replace(b'"stop":true', b'"stop": true')
        assert post(server, "/slots/1?action=erase", {})[0] == 200
    assert list((tmp_path / "slots").iterdir()) == []
