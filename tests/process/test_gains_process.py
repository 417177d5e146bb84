"""What a server keeps of its draft when it ends."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from kit import process
from kit.models import DRAFTS, TARGET
from kit.process import Server

from uad.base.config import load_config
from uad.pairs.conditions import conditions
from uad.pairs.records import record_of

pytestmark = [pytest.mark.llama, pytest.mark.long]


def test_a_server_of_one_target_keeps_what_its_draft_gained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = process.fresh_cache(tmp_path)
    monkeypatch.setitem(process.ENV, "UAD_CACHE_DIR", cache)
    monkeypatch.setenv("UAD_CACHE_DIR", cache)
    draft = DRAFTS["zephyr"]
    with Server(tmp_path / "log", ["--target", str(TARGET), "--draft", str(draft), "--threads", "1"]) as server:
        body = json.dumps({"prompt": "Count from 1", "max_tokens": 200, "ignore_eos": True}).encode()
        with urllib.request.urlopen(f"{server.url}/v1/completions", body) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 200
        assert server.stop() == 0
    under = conditions(load_config(["--target", str(TARGET), "--draft", str(draft), "--threads", "1"], {}))
    kept = record_of(TARGET, under).of(draft, under)
    assert 0 < kept.tokens <= 199  # without the first, which the prompt brings, and without what was looked up
    assert kept.seconds > 0
    assert kept.plain_seconds > 0
