"""What drafters learned is in its files after any signal, with streams that were running."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kit.models import TARGET
from kit.process import Server

pytestmark = pytest.mark.model


def test_a_hangup_lets_a_stream_end_and_writes_the_files(tmp_path: Path) -> None:
    files = {"--spec-suffix-store": tmp_path / "suffix", "--lookup-cache-dynamic": tmp_path / "ngrams"}
    args = ["--target", str(TARGET), "-c", "1024", "-t", "1", "--spec-type", "suffix,ngram-cache"]
    args += ["--spec-share", "server", *(str(word) for pair in files.items() for word in pair)]
    with Server(tmp_path / "log", args) as server:
        address = urlsplit(server.url)
        one = http.client.HTTPConnection(address.hostname or "", address.port, timeout=240)
        body = {"prompt": "Once upon a time", "max_tokens": 300, "stream": True, "ignore_eos": True}
        one.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = one.getresponse()
        begun = answer.read(20)
        server.process.send_signal(signal.SIGHUP)
        rest = begun + answer.read()
        one.close()
        assert server.process.wait(120) == 0
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"error"' not in rest
    for path in files.values():
        header, _, rows = path.read_bytes().partition(b"\n")
        assert json.loads(header)["rows"] > 0
        assert rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "ngrams", "suffix"]
