"""Parts that the routes which embed or rank share: their requests in one form, and the results that answers are made
of. Each API's file has its rows; OpenAI's, llama-server's, Jina's and Cohere's bodies are here, since their clients
send one another's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, Field, StrictBool, StrictStr

from uad.base.common.embedding import DOCUMENT, QUERY, EmbeddingFacts, Vectors, scaled
from uad.base.common.json_out import Json
from uad.base.common.settings import INT32_MAX
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.http.apis.api import Called, EmbedRoute
from uad.http.apis.dialect import new_id
from uad.http.requests.fields import check_features
from uad.http.requests.left_out import account_for, names_of
from uad.http.requests.message_fields import Body
from uad.http.requests.no_effect import NO_EFFECT

MAX_TEXTS = 1 << 16
"""Texts of one request."""
EmbeddedText = str | list[int]
"""A text, or its ids."""
_KINDS = {
    **dict.fromkeys(("query", "search_query", "retrieval.query", "retrieval_query"), QUERY),
    **dict.fromkeys(("document", "passage", "search_document", "retrieval.passage", "retrieval_document"), DOCUMENT),
}
"""Words for the kinds of texts to embed, as Cohere, Jina, Google, Voyage and NVIDIA have them."""
_LEFT_OUT = {
    **NO_EFFECT,
    "late_chunking": "each text is embedded alone",
    "priority": "all requests take turns",
    "max_chunks_per_doc": "documents are not divided",
    "rank_fields": "a document is its text",
}
B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The result of a request: vectors of each text, or scores of each pair, and how many ids each had."""

    vectors: Sequence[Vectors]
    counts: Sequence[int]
    model: str
    facts: EmbeddingFacts
    seconds: float

    @property
    def usage(self) -> Json:
        """The ids that were read, as OpenAI says it."""
        n = sum(self.counts)
        return {"prompt_tokens": n, "total_tokens": n}

    @property
    def scores(self) -> list[float]:
        """The score of each pair."""
        return [float(rows[0, 0]) for rows in self.vectors]


@dataclass(frozen=True, slots=True)
class EmbedAsk:
    """A request to embed texts, or to rank them for a query.

    answer: its JSON, whose lists may be iterators; where: the member of the body that has the texts. kinds, titles and
    dimensions, the numbers that are kept of a vector: one for all texts, or one for each. cuts: texts that are too long
    are cut, else refused; normalize: None: as the server was started.
    """

    texts: Sequence[EmbeddedText]
    answer: Callable[[Embedded], object]
    where: str = "input"
    query: str | None = None
    kinds: Sequence[str] = ("",)
    titles: Sequence[str] = ("",)
    cuts: bool = False
    dimensions: Sequence[int | None] = (None,)
    normalize: int | None = None
    pooled: bool = True
    """Whether each text must have one vector."""
    keep_s: float | None = None

    def prefixed(self, i: int, facts: EmbeddingFacts) -> EmbeddedText:
        """Text i with what the server puts before texts of its kind."""
        text, kind = self.texts[i], self.kinds[i % len(self.kinds)]
        if not isinstance(text, str):
            return text
        title = self.titles[i % len(self.titles)] or "none"
        return facts.prefixes.get(kind, facts.prefixes.get("", "")).replace("{title}", title) + text

    def check(self, facts: EmbeddingFacts) -> None:
        """Raises NotSupportedError or InvalidRequestError where the model cannot do what is asked."""
        if (self.query is not None) != facts.ranks:
            raise NotSupportedError(
                "this server ranks documents, and embeds nothing: POST /v1/rerank"
                if facts.ranks
                else "this server embeds texts, and ranks nothing: start it with a reranker, or with --reranking"
            )
        if facts.pooling == "none" and (self.pooled or any(self.dimensions)):
            raise InvalidRequestError(
                "this server was started with --pooling none: a text has a vector for each token; POST /embeddings "
                "has them, or start it with --pooling mean, cls or last"
            )
        for n in self.dimensions:
            if n is not None and n > facts.width:
                raise InvalidRequestError.at(
                    "dimensions", f"must be at most {facts.width}, which this model's vectors have"
                )

    def shaped(self, vectors: Sequence[Vectors], facts: EmbeddingFacts) -> list[Vectors]:
        """The vectors as they are wanted: cut, then scaled. Rows of single tokens are left as they are."""
        if facts.ranks or facts.pooling == "none":
            return list(vectors)
        how, sizes = facts.normalize if self.normalize is None else self.normalize, self.dimensions
        return [scaled(rows[:, : sizes[i % len(sizes)]], how) for i, rows in enumerate(vectors)]


# --- bodies

Dimensions = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]


class EmbeddingBody(Body):
    """POST /v1/embeddings, /embeddings, /embedding."""

    model: StrictStr = ""
    input: Any = None
    content: Any = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions | None = Field(None, validation_alias=AliasChoices("dimensions", "output_dimension"))
    embd_normalize: Annotated[int, Field(strict=True, ge=-1, le=INT32_MAX)] | None = None
    truncate: Any = None
    kind: StrictStr = Field("", validation_alias=AliasChoices("input_type", "task", "prompt_name"))


class RerankBody(Body):
    """POST /v1/rerank, /rerank, /v2/rerank, in Jina's, Cohere's and TEI's words."""

    model: StrictStr = ""
    query: Any = None
    documents: Any = None
    texts: Any = None
    top_n: Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)] | None = Field(
        None, validation_alias=AliasChoices("top_n", "top_k")
    )
    return_documents: StrictBool = Field(False, validation_alias=AliasChoices("return_documents", "return_text"))
    truncate: Any = Field(None, validation_alias=AliasChoices("truncate", "truncation"))


def read_body(kind: type[B], members: Mapping[str, object], route: str) -> B:
    """The body, with all members accounted for. Raises ValidationError, InvalidRequestError or NotSupportedError."""
    check_features(members, kind.model_fields)
    account_for(members, names_of(kind), _LEFT_OUT, route)
    return kind.model_validate(members)


def texts_of(value: object, where: str) -> list[EmbeddedText]:
    """The texts of a member: one, ids of one, or a list of these. Raises InvalidRequestError."""
    if value is None:
        raise InvalidRequestError.at(where, "is missing: send a text, or a list of texts")
    is_one = isinstance(value, str) or (isinstance(value, list) and bool(value) and all(map(_is_id, value)))
    items = [value] if is_one else value
    if not isinstance(items, list):
        raise InvalidRequestError.at(where, "must be a text, a list of texts, token ids, or a list of lists of those")
    if not items:
        raise InvalidRequestError.at(where, "must not be empty")
    if len(items) > MAX_TEXTS:
        raise InvalidRequestError.at(where, f"must hold at most {MAX_TEXTS} texts")
    return [_text(item, where if is_one else f"{where}.{i}") for i, item in enumerate(items)]


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object, where: str) -> EmbeddedText:
    if isinstance(value, dict):
        value = value.get("content", value.get("text"))
        if isinstance(value, list):
            if not all(isinstance(part, dict) and part.get("type") == "text" for part in value):
                raise NotSupportedError.at(where, "this server embeds texts only; leave images and sounds out")
            value = "".join(str(part.get("text") or "") for part in value)
    if isinstance(value, list) and all(map(_is_id, value)):
        if not value:
            raise InvalidRequestError.at(where, "must not be empty")
        return value
    if not isinstance(value, str):
        raise InvalidRequestError.at(where, "must be a text or a list of token ids")
    if not value:
        raise InvalidRequestError.at(where, "must not be empty")
    return value


def kind_of(word: str, where: str) -> str:
    """The kind of text that a word of a request means; a word that is not known stands for itself."""
    if len(word) > 64:
        raise InvalidRequestError.at(where, "must be a short word, such as query or document")
    return _KINDS.get(word.lower(), word.lower())


def cuts_of(value: object) -> bool:
    """Whether texts are to be cut: a switch, or a word for the side. Raises InvalidRequestError."""
    words = {"NONE": False, "END": True, "RIGHT": True}
    cuts = words.get(value.upper()) if isinstance(value, str) else value
    if cuts is None:
        if value is None:
            return False
        raise InvalidRequestError.at("truncate", 'must be true, false, "NONE" or "END"')
    if not isinstance(cuts, bool):
        raise InvalidRequestError.at("truncate", 'must be true, false, "NONE" or "END"')
    return cuts


# --- requests and answers of OpenAI's and llama-server's routes


def _ask(members: Mapping[str, object], route: str, answer: Callable[[EmbeddingBody, Embedded], object]) -> EmbedAsk:
    body = read_body(EmbeddingBody, members, route)
    where = "content" if body.input is None and body.content is not None else "input"
    return EmbedAsk(
        texts_of(body.content if where == "content" else body.input, where),
        lambda done: answer(body, done),
        where,
        kinds=[kind_of(body.kind, "input_type")],
        cuts=cuts_of(body.truncate),
        dimensions=[body.dimensions],
        normalize=body.embd_normalize,
        pooled=False,
    )


def read_openai(members: Mapping[str, object], called: Called) -> EmbedAsk:
    """POST /v1/embeddings; with `content` in place of `input` the answer is llama-server's, as there."""
    if "input" not in members and "content" in members:
        return read_native(members, called)
    return replace(_ask(members, "/v1/embeddings", _openai), pooled=True)


def _openai(body: EmbeddingBody, done: Embedded) -> Json:
    data = (
        {"object": "embedding", "index": i, **_encoded(rows, body.encoding_format)}
        for i, rows in enumerate(done.vectors)
    )
    return {"object": "list", "data": data, "model": body.model or done.model, "usage": done.usage}


def _encoded(rows: Vectors, form: str) -> Json:
    if form == "base64":
        return {"embedding": base64.b64encode(rows[0].astype("<f4").tobytes()).decode(), "encoding_format": form}
    return {"embedding": rows[0].tolist()}


def read_native(members: Mapping[str, object], called: Called) -> EmbedAsk:
    """POST /embeddings and /embedding: llama-server's list, of each text its one vector or all."""
    return _ask(members, "/embeddings", lambda body, done: _native(done))


def _native(done: Embedded) -> Iterator[Json]:
    return ({"index": i, "embedding": rows.tolist()} for i, rows in enumerate(done.vectors))


# --- reranking


def read_rerank(members: Mapping[str, object], called: Called, is_cohere: bool = False) -> EmbedAsk:
    """POST /v1/rerank and others. is_cohere: documents that are too long are cut, and the answer has Cohere's members.
    Raises what reading bodies does.
    """
    body = read_body(RerankBody, members, "/v1/rerank")
    where = "texts" if body.documents is None and body.texts is not None else "documents"
    if not isinstance(body.query, str) or not body.query:
        raise InvalidRequestError.at("query", "must be a text that is not empty")
    given = body.texts if where == "texts" else body.documents
    if not isinstance(given, list):
        raise InvalidRequestError.at(where, "must be a list of texts, or of objects with a text")
    documents = texts_of(given, where)
    texts = [document for document in documents if isinstance(document, str)]
    if len(texts) < len(documents):
        raise InvalidRequestError.at(where, "must hold texts, not token ids")

    def answer(done: Embedded) -> object:
        order = sorted(range(len(texts)), key=lambda i: -done.scores[i])[: body.top_n]
        if where == "texts":
            with_text = body.return_documents
            return [{"index": i, "score": done.scores[i]} | ({"text": texts[i]} if with_text else {}) for i in order]
        results: list[Json] = [{"index": i, "relevance_score": done.scores[i]} for i in order]
        for result, i in zip(results, order, strict=True):
            result |= {"document": {"text": texts[i]}} if body.return_documents else {}
        if is_cohere:
            meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
            return {"id": new_id("rerank-"), "results": results, "meta": meta}
        same = {"model": body.model or done.model, "object": "list", "usage": done.usage}
        return {**same, "results": results}

    return EmbedAsk(texts, answer, where, body.query, cuts=is_cohere or cuts_of(body.truncate), pooled=False)


RERANK = EmbedRoute(read_rerank)
OPENAI_EMBEDDINGS = {"/v1/embeddings": EmbedRoute(read_openai)}
NATIVE_EMBEDDINGS = {
    **dict.fromkeys(("/embeddings", "/embedding"), EmbedRoute(read_native)),
    **dict.fromkeys(("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"), RERANK),
    "/v2/rerank": EmbedRoute(lambda members, called: read_rerank(members, called, is_cohere=True)),
}
