"""Clients that embed and rank, on a folder with a model for each."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import cohere
from checks import BASE_URL, CLIENT, KEY, ROOT_URL, check, run
from google import genai
from google.genai.types import EmbedContentConfig, HttpOptions
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from ollama import Client
from openai import OpenAI

EMBEDS, RANKS = "bert-cls", "bert-rank"
TEXTS = ["water and light", "a house", "music in the evening"]
openai = OpenAI(**CLIENT)


def posted(path: str, body: Any) -> Any:
    """The answer to a recorded request."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(ROOT_URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def vectors() -> list[list[float]]:
    """The vectors of all texts, as OpenAI's client has them."""
    return [one.embedding for one in openai.embeddings.create(model=EMBEDS, input=TEXTS).data]


@check("openai: base64 and floats are the same")
def openai_forms() -> None:
    floats = openai.embeddings.create(model=EMBEDS, input=TEXTS, encoding_format="float")
    assert [one.embedding for one in floats.data] == vectors(), "other numbers"
    assert floats.usage.total_tokens > len(TEXTS), "no usage"


@check("openai: one text alone has the same bits")
def openai_alone() -> None:
    alone = [openai.embeddings.create(model=EMBEDS, input=text).data[0].embedding for text in TEXTS]
    assert alone == vectors(), "other bits"


@check("openai: fewer dimensions")
def openai_dimensions() -> None:
    (one,) = openai.embeddings.create(model=EMBEDS, input=TEXTS[0], dimensions=8).data
    assert len(one.embedding) == 8, "another length"
    assert abs(sum(x * x for x in one.embedding) - 1) < 1e-5, "not scaled again"


@check("langchain-openai")
def langchain_openai() -> None:
    client = OpenAIEmbeddings(model=EMBEDS, base_url=BASE_URL, api_key=KEY, check_embedding_ctx_length=False)
    assert client.embed_documents(TEXTS) == vectors(), "other numbers"
    assert client.embed_query(TEXTS[0]) == vectors()[0], "another query"


@check("langchain-ollama")
def langchain_ollama() -> None:
    client = OllamaEmbeddings(model=EMBEDS, base_url=ROOT_URL)
    assert client.embed_documents(TEXTS) == vectors(), "other numbers"
    assert client.embed_query(TEXTS[0]) == vectors()[0], "another query"


@check("ollama: embed, embeddings, show")
def ollama() -> None:
    client = Client(host=ROOT_URL)
    assert [list(one) for one in client.embed(model=EMBEDS, input=TEXTS).embeddings] == vectors(), "other numbers"
    assert len(client.embeddings(model=EMBEDS, prompt=TEXTS[0]).embedding) == len(vectors()[0]), "another length"
    assert client.show(EMBEDS).capabilities == ["embedding"], "another capability"


@check("google-genai")
def google() -> None:
    client = genai.Client(api_key=KEY, http_options=HttpOptions(base_url=ROOT_URL))
    config = EmbedContentConfig(task_type="RETRIEVAL_DOCUMENT", output_dimensionality=8)
    answer = client.models.embed_content(model=EMBEDS, contents=TEXTS, config=config)
    assert [len(one.values or []) for one in answer.embeddings or []] == [8] * len(TEXTS), "other lengths"


@check("llama-index")
def llama_index() -> None:
    client = OpenAILikeEmbedding(model_name=EMBEDS, api_base=BASE_URL, api_key=KEY)
    assert client.get_text_embedding_batch(TEXTS) == vectors(), "other numbers"
    assert client.get_query_embedding(TEXTS[0]) == vectors()[0], "another query"


@check("cohere: rerank")
def cohere_rerank() -> None:
    client = cohere.ClientV2(api_key=KEY, base_url=ROOT_URL)
    results = client.rerank(model=RANKS, query="water", documents=TEXTS, top_n=2).results
    assert len(results) == 2, "another number"
    assert results[0].relevance_score >= results[1].relevance_score, "not in order"


@check("jina's rerank, as recorded")
def jina_rerank() -> None:
    body = {"model": RANKS, "query": "water", "documents": TEXTS, "top_n": 3, "return_documents": True}
    results = posted("/v1/rerank", body)["results"]
    assert sorted(one["index"] for one in results) == [0, 1, 2], "others"
    assert all(one["document"]["text"] == TEXTS[one["index"]] for one in results), "other documents"


@check("Open WebUI's and Continue's requests, as recorded")
def recorded() -> None:
    for path in ("/v1/embeddings", "/v1/embeddings?"):
        data = posted(path, {"input": TEXTS, "model": EMBEDS})["data"]
        assert [one["embedding"] for one in data] == vectors(), "other numbers"
    assert posted("/api/embed", {"input": TEXTS, "model": EMBEDS})["embeddings"] == vectors(), "other numbers"
    ranked = posted("/v1/rerank", {"model": RANKS, "query": "water", "documents": TEXTS, "top_n": 3})
    assert [one["relevance_score"] for one in ranked["results"]], "no scores"


run("openai")
