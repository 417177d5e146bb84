"""All routes that embed or rank: a request is read, its texts become ids, wait for their vectors, and are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from time import perf_counter

import numpy as np
from aiohttp import web

from uad.base.checkpoint import checkpoint
from uad.base.common.embedding import Embeds, Ids, Vectors
from uad.base.common.json_out import each_chunk
from uad.base.errors import InvalidRequestError, NotSupportedError, UadError
from uad.http.apis.api import Called, EmbedRoute
from uad.http.apis.dialect import AtOnce
from uad.http.apis.embeddings import EmbedAsk, Embedded
from uad.http.edge.json_in import SMALL_BYTES, parse_object
from uad.http.edge.replies import reply
from uad.http.server.state import STATE, State

_MOST_VALUES = 1 << 22
"""Token ids of a body."""
_DEPTH = 2
"""How deep the lists of an answer lie whose items are made one by one."""


class PendingVectors:
    """Vectors that a request waits for. A context manager: what is not done at its end is taken back."""

    def __init__(self, future: Future[list[Vectors]]) -> None:
        self._future = future
        self._failure: UadError | None = None

    def __enter__(self) -> PendingVectors:
        return self

    def __exit__(self, *error: object) -> None:
        self._future.cancel()

    def abort(self, failure: UadError) -> None:
        """Take the texts back; who waits gets `failure`."""
        self._failure = failure
        self._future.cancel()

    async def vectors(self) -> list[Vectors]:
        """The vectors. Raises what failed."""
        try:
            return await asyncio.wrap_future(self._future)
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            raise self._failure from None


async def embed(route: EmbedRoute, request: web.Request) -> web.StreamResponse:
    """Every route that embeds or ranks, in any API."""
    state = request.app[STATE]
    embeds = state.engine.embeds
    if embeds is None:
        raise NotSupportedError(
            f"{request.path[:100]} is not supported: this server generates text; serve an embedding model, or start it "
            "with --embedding (for reranking --reranking)"
        )
    asked, size = await _read(state, request, route)
    if isinstance(asked, AtOnce):
        async with state.idle.awake(asked.loads):
            state.idle.keep(asked.keep_s)
            return reply(asked.answer)
    asked.check(embeds.facts)
    began = perf_counter()
    async with state.idle.awake():
        with state.admission.enter(1):
            texts = await state.off_loop(size, lambda: list(_ids(embeds, asked, state.engine.info.target.n_vocab)))
            state.bodies.release(request)
            state.idle.keep(asked.keep_s)
            with PendingVectors(embeds.embed(texts)) as waiting:
                state.live.add(waiting)
                try:
                    vectors = await waiting.vectors()
                finally:
                    state.live.discard(waiting)
    done = Embedded(
        asked.shaped(vectors, embeds.facts), [*map(len, texts)], state.alias, embeds.facts, perf_counter() - began
    )
    pieces = each_chunk(asked.answer(done), _DEPTH)
    first = await state.off_loop(size, lambda: next(pieces))
    second = await state.off_loop(size, lambda: next(pieces, b""))
    if not second:
        return web.Response(body=first, content_type="application/json", charset="utf-8")
    return web.Response(
        body=_each(state, size, first + second, pieces), content_type="application/json", charset="utf-8"
    )


async def _each(state: State, size: int, first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A long answer, of which no more is made than is sent."""
    yield first
    while piece := await state.off_loop(size, lambda: next(pieces, b"")):
        yield piece


async def _read(state: State, request: web.Request, route: EmbedRoute) -> tuple[EmbedAsk | AtOnce, int]:
    called = Called(request.headers, request.match_info, request.query)
    data = await state.body(request)

    def made() -> EmbedAsk | AtOnce:
        asked: EmbedAsk | AtOnce = route.read(parse_object(data, _MOST_VALUES), called)
        return asked

    return (made() if len(data) <= SMALL_BYTES else await state.off_loop(len(data), made)), len(data)


def _ids(embeds: Embeds, asked: EmbedAsk, n_vocab: int) -> Iterator[Ids]:
    """The ids of each text, cut where that is asked for. Raises InvalidRequestError."""
    facts = embeds.facts
    for i in range(len(asked.texts)):
        checkpoint()
        where = asked.where if len(asked.texts) == 1 else f"{asked.where}.{i}"
        text = asked.prefixed(i, facts)
        if isinstance(text, str):
            ids = _fitting(embeds, asked.query, text, asked.cuts)
        else:
            ids = text
            if not all(0 <= id_ < n_vocab for id_ in ids):
                raise InvalidRequestError.at(where, f"token ids must be from 0 to {n_vocab - 1}")
        if asked.cuts:
            ids = embeds.cut(ids)
        if not ids:
            raise InvalidRequestError.at(where, "has no token")
        if len(ids) > facts.n_most:
            raise InvalidRequestError.at(
                where,
                f"has {len(ids)} tokens, and this model reads texts of up to {facts.n_most}; shorten it, send "
                "truncate: true, or start the server with a larger --ctx-size",
            )
        yield np.asarray(ids, np.int32)


def _fitting(embeds: Embeds, query: str | None, text: str, cuts: bool) -> list[int]:
    """The ids of a text; with a query of both, where a document that is too long is shortened if it may be cut."""
    if query is None:
        return embeds.ids(text)
    ids = embeds.pair(query, text)
    while cuts and text and len(ids) > embeds.facts.n_most:
        # of 1,000 tokens 512 fit: of 4,000 letters 2,047 are tried, and a few less each time that they do not fit
        text = text[: min(len(text) * embeds.facts.n_most // len(ids), len(text) - 1)]
        ids = embeds.pair(query, text)
    return ids
