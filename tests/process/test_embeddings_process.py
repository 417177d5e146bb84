"""Models that embed and rank beside one that writes, in a folder and alone, with real processes."""

from __future__ import annotations

import http.client
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.embedding_models import make
from kit.models import DRAFTS, TARGET
from kit.process import Server

pytestmark = [pytest.mark.llama, pytest.mark.long]
PATIENCE = 90.0
TEXTS = ["water and light", "a house", "music in the evening"]


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def answered(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    status, answer = ask(url, path, body)
    assert status == 200, answer
    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that write, one that embeds, one that ranks."""
    path = tmp_path_factory.mktemp("models")
    for name, source in (("chatml", TARGET), ("zephyr", DRAFTS["zephyr"])):
        shutil.copy(source, path / f"{name}.gguf")
    make("bert", path)
    make("bert", path, "rank")
    return path


def vectors(url: str, texts: list[str], model: str) -> list[list[float]]:
    data = answered(url, "/v1/embeddings", {"model": model, "input": texts})["data"]
    return [one["embedding"] for one in data]


def test_a_folder_serves_models_that_embed_rank_and_write(folder: Path, tmp_path: Path) -> None:
    words = (str(folder), "--draft", "auto", "--ctx-size", "512", "--threads", "1")
    with Server(tmp_path / "log", words, PATIENCE) as server:
        url = server.url
        listed = {one["id"]: one["capabilities"] for one in answered(url, "/v1/models")["data"]}
        assert {name: words[0] for name, words in listed.items()} == {
            "chatml": "completion",
            "zephyr": "completion",
            "bert-cls": "embedding",
            "bert-rank": "rerank",
        }
        assert answered(url, "/api/show", {"model": "bert-rank"})["capabilities"] == ["rerank"]
        together = vectors(url, TEXTS, "bert-cls")
        said = answered(url, "/v1/completions", {"model": "chatml", "prompt": "Once upon", "max_tokens": 8})
        assert said["choices"][0]["text"]
        assert [vectors(url, [text], "bert-cls")[0] for text in TEXTS] == together
        google = answered(url, "/v1beta/models/bert-cls:embedContent", {"content": {"parts": [{"text": TEXTS[0]}]}})
        assert google["embedding"]["values"] == together[0]
        assert answered(url, "/api/embed", {"model": "bert-cls:latest", "input": TEXTS})["embeddings"] == together
        ranked = answered(url, "/v2/rerank", {"model": "bert-rank", "query": "water", "documents": TEXTS})
        assert len(ranked["results"]) == len(TEXTS)
        assert ask(url, "/v1/chat/completions", {"model": "bert-cls", "messages": []})[0] == 501
        assert ask(url, "/v1/embeddings", {"model": "chatml", "input": "x"})[0] == 501
        states = {one["id"]: one["capabilities"] for one in answered(url, "/v1/models")["data"]}
        assert states == listed, "loaded, they are listed with the same capabilities"


def test_one_model_says_what_it_does_and_ends_at_a_signal(folder: Path, tmp_path: Path) -> None:
    words = (str(folder / "bert-cls.gguf"), "--draft", str(folder / "zephyr.gguf"), "--sleep-idle-seconds", "1")
    with Server(tmp_path / "log", words, PATIENCE) as server:
        assert len(vectors(server.url, TEXTS, "any")) == len(TEXTS)
        assert answered(server.url, "/health") == {"status": "ok"}
        ids = answered(server.url, "/tokenize", {"content": "water", "add_special": True})["tokens"]
        assert vectors(server.url, [ids], "any")[0] == vectors(server.url, ["water"], "any")[0]  # type: ignore[list-item]
        assert server.stop() == 0
        log = server.log.read_text()
        assert "--draft has no effect: bert-cls.gguf embeds texts, and writes none" in log
        assert "embeds texts in 64 numbers: pooling cls, texts of up to 512 tokens" in log
        assert "/v1/embeddings -H" in log
