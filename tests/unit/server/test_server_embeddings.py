"""Embeddings and reranking over HTTP: every API's shapes, prefixes, lengths, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession
from kit.fake_embeds import N_MOST, FakeEmbeds, embedding, of_tokens, ranking, score, vector
from kit.fake_runtime import BOS, EOS, N_VOCAB, FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, get, post, post_each, with_server

from uad.base.common.embedding import EmbeddingFacts, Vectors, scaled
from uad.base.errors import DecodeError, UnavailableError
from uad.http.server.embedding import PendingVectors

V1, NATIVE, OLLAMA, OLDER = "/v1/embeddings", "/embeddings", "/api/embed", "/api/embeddings"
GEMINI, BATCH = "/v1beta/models/toy:embedContent", "/v1beta/models/toy:batchEmbedContents"
RANK, COHERE = "/v1/rerank", "/v2/rerank"
TEA = [BOS, *b"tea", EOS]
TOO_LONG = "x" * N_MOST


def of_length_one(ids: list[int], n: int = 4) -> list[float]:
    """The vector of a text, of n numbers."""
    values: list[float] = scaled(vector(ids)[:, :n], 2)[0].tolist()
    return values


def answered(path: str, body: Any, fake: FakeRuntime | None = None) -> Any:
    status, answer = post(path, body, fake or embedding())
    assert status == 200, answer
    return answer


# --- shapes


def test_openai_has_a_vector_for_each_text_and_the_ids_that_were_read() -> None:
    answer = answered(V1, {"model": "m", "input": ["tea", "coffee"], "encoding_format": "float", "user": "me"})
    assert [one["embedding"] for one in answer["data"]] == [of_length_one(TEA), of_length_one([BOS, *b"coffee", EOS])]
    assert [(one["index"], one["object"]) for one in answer["data"]] == [(0, "embedding"), (1, "embedding")]
    assert answer["usage"] == {"prompt_tokens": 13, "total_tokens": 13}
    assert (answer["object"], answer["model"]) == ("list", "m")


@pytest.mark.parametrize("given", ["tea", TEA, ["tea"], [TEA], [{"content": "tea"}]])
def test_a_text_is_embedded_in_whatever_form_it_is_sent(given: Any) -> None:
    (one,) = answered(V1, {"input": given})["data"]
    assert one["embedding"] == of_length_one(TEA)


def test_base64_holds_the_same_floats() -> None:
    (one,) = answered(V1, {"input": "tea", "encoding_format": "base64"})["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == of_length_one(TEA)


def test_fewer_dimensions_have_length_one_again() -> None:
    (one,) = answered(V1, {"input": "tea", "dimensions": 2})["data"]
    assert one["embedding"] == of_length_one(TEA, 2)
    assert np.linalg.norm(one["embedding"]) == pytest.approx(1)


@pytest.mark.parametrize(("how", "norm"), [(-1, None), (0, "max"), (1, 1), (2, 2), (3, 3)])
def test_vectors_are_scaled_as_the_request_says(how: int, norm: Any) -> None:
    ((vectors,),) = [[one["embedding"] for one in answered(NATIVE, {"content": "tea", "embd_normalize": how})]]
    own = np.array(vectors[0])
    raw = vector(TEA)[0].astype(np.float64)
    expected = {None: 1.0, "max": raw.max() / 32760}.get(norm) or np.linalg.norm(raw, norm)
    assert own == pytest.approx(raw / expected, rel=1e-6)


def test_llama_server_has_a_list_of_lists() -> None:
    assert answered(NATIVE, {"input": ["tea"]}) == [{"index": 0, "embedding": [of_length_one(TEA)]}]
    assert answered("/embedding", {"content": "tea"}) == [{"index": 0, "embedding": [of_length_one(TEA)]}]
    assert answered(V1, {"content": "tea"}) == [{"index": 0, "embedding": [of_length_one(TEA)]}]


def test_without_pooling_each_token_has_a_vector_that_is_not_scaled() -> None:
    fake = FakeEmbeds(EmbeddingFacts("none", 4, N_MOST), of_tokens)
    (one,) = answered(NATIVE, {"input": "tea"}, embedding(fake))
    assert one["embedding"] == of_tokens(TEA).tolist()
    status, answer = post(V1, {"input": "tea"}, embedding(fake))
    assert status == 400
    assert "--pooling none" in answer["error"]["message"]


def test_ollama_has_vectors_and_counts() -> None:
    answer = answered(OLLAMA, {"model": "m", "input": ["tea"], "dimensions": 3, "options": {"num_ctx": 9}})
    assert answer["embeddings"] == [of_length_one(TEA, 3)]
    assert answer["prompt_eval_count"] == 5
    assert answered(OLDER, {"model": "m", "prompt": "tea"}) == {"embedding": vector(TEA)[0].tolist()}


def test_ollama_loads_or_unloads_the_model_where_there_is_no_text() -> None:
    assert answered(OLLAMA, {"model": "m", "input": ""}) == {"model": "m", "embeddings": []}
    fake = embedding()
    assert answered(OLDER, {"model": "m", "keep_alive": 0}, fake) == {"embedding": []}


def test_google_has_values_of_one_or_of_each() -> None:
    content = {"parts": [{"text": "t"}, {"text": "ea"}]}
    assert answered(GEMINI, {"content": content}) == {"embedding": {"values": of_length_one(TEA)}}
    requests = [
        {"model": "models/toy", "content": content, "outputDimensionality": 2},
        {"content": "tea", "output_dimensionality": 3},
    ]
    answer = answered(BATCH, {"requests": requests})
    assert answer == {"embeddings": [{"values": of_length_one(TEA, 2)}, {"values": of_length_one(TEA, 3)}]}


def test_documents_are_ranked_the_best_first() -> None:
    documents = ["water", "tea that tastes", {"text": "at"}]
    answer = answered(RANK, {"model": "m", "query": "q", "documents": documents, "return_documents": True}, ranking())
    assert [(one["index"], one["relevance_score"]) for one in answer["results"]] == [(1, 5.0), (0, 1.0), (2, 1.0)]
    assert answer["results"][0]["document"] == {"text": "tea that tastes"}
    assert answer["usage"]["total_tokens"] == sum(
        len(b"q") + len(one) + 3 for one in ("water", "tea that tastes", "at")
    )
    answer = answered(COHERE, {"query": "q", "documents": ["a", "t"], "top_n": 1}, ranking())
    assert answer["results"] == [{"index": 1, "relevance_score": 1.0}]
    assert answer["meta"]["api_version"] == {"version": "2"}
    tei = {"query": "q", "texts": ["a", "t"], "return_text": True}
    assert answered("/rerank", tei, ranking()) == [
        {"index": 1, "score": 1.0, "text": "t"},
        {"index": 0, "score": 0.0, "text": "a"},
    ]


def test_a_long_answer_comes_in_pieces_and_is_whole() -> None:
    texts = [f"text {i}" for i in range(5000)]
    answer = answered(V1, {"input": texts})
    assert [one["index"] for one in answer["data"]] == [*range(5000)]
    assert answer["data"][4321]["embedding"] == of_length_one([BOS, *b"text 4321", EOS])


# --- prefixes and lengths


def seen(path: str, body: Any, **prefixes: str) -> bytes:
    """The text that the model is passed."""
    own = FakeEmbeds(EmbeddingFacts("cls", 4, N_MOST, 2, {"": "", **prefixes}))
    answered(path, body, embedding(own))
    return bytes(own.texts[0][1:-1])


def test_texts_have_the_prefix_of_their_kind() -> None:
    own = {"query": "query: ", "document": "title: {title} | "}
    for word in ("query", "search_query", "retrieval.query", "RETRIEVAL_QUERY"):
        assert seen(V1, {"input": "tea", "input_type": word}, **own) == b"query: tea"
    assert seen(V1, {"input": "tea", "task": "retrieval.passage"}, **own) == b"title: none | tea"
    google = {"content": "tea", "taskType": "RETRIEVAL_DOCUMENT", "title": "Hot"}
    assert seen(GEMINI, google, **own) == b"title: Hot | tea"
    assert seen(V1, {"input": "tea"}, **own) == b"tea"
    assert seen(V1, {"input": "tea", "input_type": "query"}, **{"": "all: "}) == b"all: tea"


def test_ids_have_no_prefix() -> None:
    own = FakeEmbeds(EmbeddingFacts("cls", 4, N_MOST, 2, {"": "all: "}))
    answered(V1, {"input": [TEA]}, embedding(own))
    assert own.texts == [TEA]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (V1, {"input": TOO_LONG, "truncate": True}),
        (V1, {"input": TOO_LONG, "truncate": "END"}),
        (OLLAMA, {"input": TOO_LONG}),
        (OLDER, {"prompt": TOO_LONG}),
        (GEMINI, {"content": TOO_LONG, "autoTruncate": True}),
    ],
)
def test_a_text_that_is_too_long_is_cut_where_the_api_says_so(path: str, body: Any) -> None:
    own = FakeEmbeds()
    answered(path, body, embedding(own))
    assert [len(ids) for ids in own.texts] == [N_MOST]
    assert own.texts[0][-1] == EOS


def test_a_document_that_is_too_long_is_cut_and_the_query_stays_whole() -> None:
    fake = ranking()
    answered(COHERE, {"query": "query", "documents": ["d" * 1000]}, fake)
    assert isinstance(fake.embeds, FakeEmbeds)
    (ids,) = fake.embeds.texts
    assert len(ids) <= N_MOST
    assert bytes(ids[1:6]) == b"query"


# --- what is refused

WRONG = {
    "no text": (V1, {}, "input"),
    "null": (V1, {"input": None}, "input"),
    "an empty list": (V1, {"input": []}, "input"),
    "an empty text": (V1, {"input": ""}, "input"),
    "an empty text among others": (V1, {"input": ["tea", ""]}, "input.1"),
    "empty ids": (V1, {"input": [[]]}, "input.0"),
    "a number": (V1, {"input": 7}, "input"),
    "a truth": (V1, {"input": True}, "input"),
    "an object": (V1, {"input": {"text": "tea"}}, "input"),
    "a list of truths": (V1, {"input": [True]}, "input.0"),
    "fractions as ids": (V1, {"input": [1.5]}, "input.0"),
    "an id that is too high": (V1, {"input": [[1, N_VOCAB]]}, "input"),
    "an id below 0": (V1, {"input": [-1]}, "input"),
    "an id that no machine counts to": (V1, {"input": [[10**30]]}, "input"),
    "ids among texts among ids": (V1, {"input": [[["tea"]]]}, "input.0"),
    "a text that is too long": (V1, {"input": TOO_LONG}, "tokens"),
    "too long among others": (V1, {"input": ["tea", TOO_LONG]}, "input.1"),
    "ids that are too many": (V1, {"input": [[1] * (N_MOST + 1)]}, "tokens"),
    "an image": (V1, {"input": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "input.0"),
    "no dimension": (V1, {"input": "tea", "dimensions": 0}, "dimensions"),
    "dimensions below 0": (V1, {"input": "tea", "dimensions": -3}, "dimensions"),
    "more dimensions than there are": (V1, {"input": "tea", "dimensions": 5}, "dimensions"),
    "dimensions as a text": (V1, {"input": "tea", "dimensions": "2"}, "dimensions"),
    "another encoding": (V1, {"input": "tea", "encoding_format": "hex"}, "encoding_format"),
    "an encoding that is a number": (V1, {"input": "tea", "encoding_format": 1}, "encoding_format"),
    "a model that is a number": (V1, {"input": "tea", "model": 1}, "model"),
    "truncate as a number": (V1, {"input": "tea", "truncate": 7}, "truncate"),
    "truncate at the other end": (V1, {"input": "tea", "truncate": "START"}, "truncate"),
    "a kind of a thousand letters": (V1, {"input": "tea", "input_type": "x" * 1000}, "input_type"),
    "a member that would be lost": (V1, {"input": "tea", "documents": ["more"]}, "documents"),
    "a norm below -1": (NATIVE, {"content": "tea", "embd_normalize": -2}, "embd_normalize"),
    "a norm that is a text": (NATIVE, {"content": "tea", "embd_normalize": "2"}, "embd_normalize"),
    "content that is empty": (NATIVE, {"content": ""}, "content"),
    "Ollama's text as a number": (OLLAMA, {"input": 3}, "input"),
    "Ollama's empty text among others": (OLLAMA, {"input": ["tea", ""]}, "input.1"),
    "Ollama's text that may not be cut": (OLLAMA, {"input": TOO_LONG, "truncate": False}, "tokens"),
    "Ollama's truncate as a text": (OLLAMA, {"input": "tea", "truncate": "yes"}, "truncate"),
    "Ollama's keep_alive": (OLLAMA, {"input": "tea", "keep_alive": "soon"}, "keep_alive"),
    "several texts for one": (OLDER, {"prompt": ["tea"]}, "prompt"),
    "Google's content without parts": (GEMINI, {"content": {}}, "content"),
    "Google's content without text": (GEMINI, {"content": {"parts": [{"text": ""}]}}, "content"),
    "Google's picture": (GEMINI, {"content": {"parts": [{"inlineData": {"data": "x"}}]}}, "content"),
    "Google's dimensions": (GEMINI, {"content": "tea", "outputDimensionality": 99}, "dimensions"),
    "no requests": (BATCH, {"requests": []}, "requests"),
    "requests that are none": (BATCH, {"requests": ["tea"]}, "requests.0"),
    "a request without content": (BATCH, {"requests": [{"content": "tea"}, {}]}, "requests.1.content"),
    "a list as a body": (V1, ["tea"], "object"),
    "no JSON": (V1, b"{", "JSON"),
}
WRONG_RANKS = {
    "no query": ({"documents": ["a"]}, "query"),
    "an empty query": ({"query": "", "documents": ["a"]}, "query"),
    "a query that is a list": ({"query": ["q"], "documents": ["a"]}, "query"),
    "no documents": ({"query": "q"}, "documents"),
    "an empty list of documents": ({"query": "q", "documents": []}, "documents"),
    "an empty document": ({"query": "q", "documents": ["a", ""]}, "documents.1"),
    "one document that is no list": ({"query": "q", "documents": "a"}, "documents"),
    "documents as ids": ({"query": "q", "documents": [[1, 2]]}, "documents"),
    "documents as numbers": ({"query": "q", "documents": [1, 2]}, "documents"),
    "none of the best": ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
    "half of the best": ({"query": "q", "documents": ["a"], "top_n": 0.5}, "top_n"),
    "a document that is too long": ({"query": "q", "documents": [TOO_LONG]}, "tokens"),
    "a query that is too long": ({"query": TOO_LONG, "documents": ["a"]}, "tokens"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    path, body, word = WRONG[name]
    status, answer = post(path, body, embedding())
    message = answer["error"] if path in (OLLAMA, OLDER) else answer["error"]["message"]
    assert status == 400, answer
    assert word in message


@pytest.mark.parametrize("name", WRONG_RANKS)
def test_what_is_wrong_with_documents_is_named(name: str) -> None:
    body, word = WRONG_RANKS[name]
    status, answer = post(RANK, body, ranking())
    assert status == 400, answer
    assert word in answer["error"]["message"]


@pytest.mark.parametrize("path", [V1, NATIVE, "/embedding", OLLAMA, OLDER, GEMINI, BATCH, RANK, COHERE, "/reranking"])
def test_a_model_that_writes_embeds_nothing_and_says_how_it_would(path: str) -> None:
    status, answer = post(path, {"input": "tea"}, FakeRuntime())
    assert status == 501
    assert "--embedding" in json.dumps(answer)


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/completion", "/infill", "/v1/messages", "/v1/responses", "/api/chat"]
)
def test_a_model_that_embeds_writes_nothing_and_says_what_it_does(path: str) -> None:
    status, answer = post(path, {"messages": HELLO, "prompt": "x"}, embedding())
    assert status == 501
    assert "/v1/embeddings" in json.dumps(answer)
    assert "/v1/rerank" in json.dumps(post(path, {"messages": HELLO}, ranking())[1])


def test_a_model_that_ranks_embeds_nothing_and_the_other_way_round() -> None:
    assert post(V1, {"input": "tea"}, ranking())[0] == 501
    status, answer = post(RANK, {"query": "q", "documents": ["a"]}, embedding())
    assert status == 501
    assert "--reranking" in answer["error"]["message"]


# --- lists, failures, clients that leave


def test_lists_say_that_the_model_embeds() -> None:
    assert get("/v1/models", embedding())[1]["data"][0]["capabilities"] == ["embedding"]
    assert get("/v1/models", ranking())[1]["data"][0]["capabilities"] == ["rerank"]
    assert post("/api/show", {"model": "toy"}, embedding())[1]["capabilities"] == ["embedding"]
    (one,) = get("/v1beta/models", embedding())[1]["models"]
    assert one["supportedGenerationMethods"] == ["embedContent", "batchEmbedContents"]
    assert get("/v1/models")[1]["data"][0]["capabilities"] == ["completion"]


def test_a_failure_is_the_servers() -> None:
    status, answer = post(V1, {"input": "tea"}, embedding(FakeEmbeds(fail=DecodeError("broken"))))
    assert (status, answer["error"]["message"]) == (500, "broken")
    assert post(V1, {"input": "tea"}, embedding(FakeEmbeds(fail=UnavailableError("stopped"))))[0] == 503


def test_a_client_that_leaves_takes_its_texts_back() -> None:
    own = FakeEmbeds(done=False)

    async def test(session: ClientSession) -> None:
        request = asyncio.create_task(session.post(V1, json={"input": "tea"}))
        while not own.futures:
            await asyncio.sleep(0.001)
        request.cancel()
        while not own.futures[0].cancelled():
            await asyncio.sleep(0.001)

    with_server(test, embedding(own))


def test_requests_beyond_the_queue_are_refused() -> None:
    own = FakeEmbeds(done=False)

    async def test(session: ClientSession) -> int:
        waiting = [asyncio.create_task(session.post(V1, json={"input": "tea"})) for _ in range(3)]
        while len(own.futures) < 3:
            await asyncio.sleep(0.001)
        async with session.post(V1, json={"input": "tea"}) as answer:
            status = answer.status
        for future in own.futures:
            future.set_result([vector(TEA)])
        for one in waiting:
            (await one).release()
        return status

    fake = embedding(own)
    assert with_server(test, fake, replace(CONFIG, max_queue=3 - fake.n_slots)) == 503


def test_a_stop_ends_what_waits_with_an_error() -> None:
    async def test() -> None:
        future: Future[list[Vectors]] = Future()
        with PendingVectors(future) as waiting:
            vectors = asyncio.create_task(waiting.vectors())
            await asyncio.sleep(0)
            waiting.abort(UnavailableError("the server is shutting down"))
            with pytest.raises(UnavailableError, match="shutting down"):
                await vectors
        assert future.cancelled()

    asyncio.run(test())


def test_scores_of_one_request_are_those_of_its_own_documents() -> None:
    fake = ranking()
    bodies = [{"query": "q", "documents": [f"{'t' * i}"]} for i in range(1, 4)]
    scores = [answer["results"][0]["relevance_score"] for _, answer in post_each(RANK, bodies, fake)]
    assert scores == [float(score([*b"t"] * i)[0, 0]) for i in range(1, 4)]
