"""Which models there are, what they do and which are loaded, for clients of llama-server, OpenAI, Google and Ollama."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp
from aiohttp import web

from uad.base.common.files import path_text
from uad.base.common.json_out import Json
from uad.http.apis import gemini, ollama
from uad.http.apis.anthropic import listed_model
from uad.http.apis.gemini import GEMINI
from uad.http.edge.edge import EDGE, own_path
from uad.http.edge.json_in import parse_object
from uad.http.edge.replies import reply
from uad.router.instances import PooledModel
from uad.router.routing import members_of, model_named
from uad.router.state import ROUTER, RouterState

_LATEST_S = 253402300799.0
"""The end of the year 9999, after which there are no dates. A file may say that it was changed then."""
_MAKES = {"": "text", "embedding": "embeddings", "rerank": "scores"}
_PATIENCE_S = 2.0
"""For what a process says of itself; it is left out where that takes longer."""


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: all, with their states; with ?reload=1 the folder is read before. Google's clients get theirs."""
    state = request.app[ROUTER]
    if GEMINI.is_asked(own_path(request), request.headers):
        return await google_models(request)
    if request.query.get("reload"):
        await state.reload()
    entries = await asyncio.gather(*(_entry(state, pooled) for pooled in state.pool.models.values()))
    return reply({"object": "list", "data": entries})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}."""
    state = request.app[ROUTER]
    if GEMINI.is_asked(own_path(request), request.headers):
        return await google_model(request)
    return reply(await _entry(state, model_named(state, request.match_info["id"])))


async def _entry(state: RouterState, pooled: PooledModel) -> Json:
    model = pooled.model
    kinds = ["text", *(["image"] if model.sees else [])]
    own = {
        "id": model.name,
        "aliases": [*model.aliases],
        "tags": [*model.tags],
        "object": "model",
        "created": state.started,
        **listed_model(model.name, state.started),
        "owned_by": "llamacpp",
        "path": "" if model.path is None else path_text(model.path),
        "source": model.source,
        "can_remove": False,
        "status": await _status(state, pooled),
        "architecture": {"input_modalities": kinds, "output_modalities": [_MAKES[model.facts.purpose]]},
        "capabilities": _capabilities(pooled),
    }
    facts = model.facts
    meta = {
        "n_ctx_train": facts.n_ctx_train,
        "n_embd": facts.n_embd,
        "n_vocab": facts.n_vocab,
        "n_params": facts.n_params,
        "size": facts.size,
        "ftype": facts.ftype,
    }
    answered = await _asked_json(state, pooled, "/v1/models")
    (loaded, *_) = (*_objects(answered.get("data")), {"meta": meta})
    return {**loaded, **own}


async def _status(state: RouterState, pooled: PooledModel) -> Json:
    value: str = pooled.state
    if pooled.is_ready and not (await _asked_json(state, pooled, "/api/ps")).get("models", True):
        value = "sleeping"
    failure = pooled.failure
    failed = {} if failure is None else {"failed": True, "exit_code": failure.code, "reason": failure.reason}
    return {"value": value, "args": ["uad", "serve", *map(path_text, pooled.model.words)], **failed}


async def _asked_json(state: RouterState, pooled: PooledModel, path: str) -> Json:
    """The answer of the model's process about itself; empty where it is not loaded or does not answer soon."""
    text = await asked(state, pooled, path)
    return parse_object(text) if text else {}


async def asked(state: RouterState, pooled: PooledModel, path: str) -> bytes:
    """The body of a model's answer to GET `path`; empty where it is not loaded, or does not answer in time."""
    child = None if pooled.running is None else pooled.running.child
    if child is None:
        return b""
    with suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(_PATIENCE_S), state.connections.ask(child, path) as answer:
            if answer.status == HTTPStatus.OK:
                return await answer.content.read()
    return b""


def _objects(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


async def google_models(request: web.Request) -> web.Response:
    """GET /v1beta/models: all, by their files; a loaded one by what its process says."""
    state = request.app[ROUTER]
    entries = await asyncio.gather(*(_google_entry(state, pooled) for pooled in state.pool.models.values()))
    return reply({"models": entries})


async def google_model(request: web.Request) -> web.Response:
    """GET /v1beta/models/{model}."""
    state, (name,) = request.app[ROUTER], request.match_info.values()
    return reply(await _google_entry(state, model_named(state, name)))


async def _google_entry(state: RouterState, pooled: PooledModel) -> Json:
    model, facts = pooled.model, pooled.model.facts
    known = gemini.listed_model(
        model.name, facts.name or facts.arch, facts.n_ctx_train, _thinks(pooled), bool(facts.purpose)
    )
    answered = await _asked_json(state, pooled, gemini.PATH)
    (loaded, *_) = (*_objects(answered.get("models")), {})
    return {**known, **loaded, "name": known["name"], "displayName": known["displayName"]}


# --- Ollama's


async def tags(request: web.Request) -> web.Response:
    """GET /api/tags: all models."""
    return reply({"models": [_listed(pooled) for pooled in request.app[ROUTER].pool.models.values()]})


async def running(request: web.Request) -> web.Response:
    """GET /api/ps: the models that are loaded."""
    state = request.app[ROUTER]
    loaded = state.pool.running
    answers = await asyncio.gather(*(_asked_json(state, pooled, "/api/ps") for pooled in loaded))
    entries = [
        {**entry, **_listed(pooled)}
        for pooled, answer in zip(loaded, answers, strict=True)
        for entry in _objects(answer.get("models"))
    ]
    return reply({"models": entries})


async def show(request: web.Request) -> web.Response:
    """POST /api/show {model}: what its file says; it is not loaded for that."""
    state = request.app[ROUTER]
    shared = request.app[EDGE]
    body = await shared.bodies.read(request, shared.config.timeout)
    pooled = state.pool.find(ollama.ShowBody.model_validate(await members_of(body)).model)
    model, facts = pooled.model, pooled.model.facts
    arch = facts.arch or "unknown"
    return reply(
        {
            "modelfile": f"FROM {model.name if model.path is None else path_text(model.path.name)}\n",
            "parameters": "",
            # clients look in it for `.Suffix` to know whether the model fills in the middle
            "template": facts.chat_template + ("{# .Suffix #}" if facts.fills_in else ""),
            "details": ollama.details(facts.arch, facts.n_params, facts.ftype),
            "model_info": {
                "general.architecture": arch,
                "general.basename": facts.name,
                "general.parameter_count": facts.n_params,
                f"{arch}.context_length": facts.n_ctx_train,
                f"{arch}.embedding_length": facts.n_embd,
            },
            "capabilities": _capabilities(pooled),
            "modified_at": _listed(pooled)["modified_at"],
        }
    )


def _listed(pooled: PooledModel) -> Json:
    """`digest` is not that of the file, whose reading would take minutes: of the names, sizes and times of its
    files.
    """
    model = pooled.model
    name = ollama.tagged(model.name)
    changed = min(max((ns for _, _, ns, _ in model.files), default=0) / 1e9, _LATEST_S)
    return {
        "name": name,
        "model": name,
        "size": model.facts.size,
        "digest": hashlib.sha256(repr((model.name, model.files)).encode("utf-8", "replace")).hexdigest(),
        "details": ollama.details(model.facts.arch, model.facts.n_params, model.facts.ftype),
        "modified_at": datetime.fromtimestamp(changed, UTC).isoformat().replace("+00:00", "Z"),
    }


def _capabilities(pooled: PooledModel) -> list[str]:
    """Capabilities of a model, as far as its file shows them: templates with tools or thoughts name them."""
    model, template = pooled.model, pooled.model.facts.chat_template
    if model.facts.purpose:
        return [model.facts.purpose]
    has = {
        "completion": True,
        "tools": "tools" in template,
        "insert": model.facts.fills_in,
        "vision": model.sees,
        "thinking": _thinks(pooled),
    }
    return [name for name, there in has.items() if there]


def _thinks(pooled: PooledModel) -> bool:
    template = pooled.model.facts.chat_template
    return "<think>" in template or "enable_thinking" in template
