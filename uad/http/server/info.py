"""Routes about the server and its model, and the tokenizer's routes. Nothing here generates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from aiohttp import web

from uad.base.common.json_out import Json
from uad.base.config.kinds import SWITCH
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.events import SlotAction, SlotInfo
from uad.http.apis import gemini
from uad.http.apis.anthropic import listed_model
from uad.http.apis.api import About, ServerAnswer
from uad.http.apis.gemini import GEMINI
from uad.http.apis.native import sampling_json, speculative_json
from uad.http.apis.ollama import RUNNING
from uad.http.apis.problems import BusyError, Problem, UnknownModelError, problem_of
from uad.http.edge.bodies import WITH_PICTURES_BYTES
from uad.http.edge.edge import own_path
from uad.http.edge.json_in import parse_list
from uad.http.edge.replies import refusal, reply
from uad.http.requests.fields import DetokenizeBody, SlotBody, TemplateBody, TokenizeBody, checked
from uad.http.requests.job import drafters_of, scales_of
from uad.http.requests.pictures import MEDIA_MARKER, chat_sources, check_sight, has_pictures
from uad.http.requests.prompt_ids import (
    PromptPart,
    chat_template,
    check_begun,
    ids_of,
    mixed_ids,
    parts_of,
    render_chat,
    text_of,
)
from uad.http.server.metrics import CONTENT_TYPE, render
from uad.http.server.state import STATE, State

_MOST_DIGITS = 10  # of a slot's number
_UNASKED = {
    "stream": False,
    "stop": [],
    "n_probs": 0,
    "min_tokens": 0,
    "timings_per_token": False,
    "post_sampling_probs": False,
}
"""Settings that only requests change."""


async def health(request: web.Request) -> web.Response:
    """GET /health: 503 after a fatal error and while shutting down."""
    state = request.app[STATE]
    if state.engine.error is not None:
        return refusal(Problem(503, str(state.engine.error), "unavailable_error"))
    if state.admission.draining:
        return refusal(problem_of(BusyError("the server is shutting down")))
    return reply({"status": "ok"})


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: OpenAI's list, with llama-server's `meta` and its Ollama-like `models`; or Google's."""
    state = request.app[STATE]
    if GEMINI.is_asked(own_path(request), request.headers):
        return reply(gemini.models(_about(state, {})))
    details = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}
    entry = {
        "name": state.alias,
        "model": state.alias,
        **dict.fromkeys(("modified_at", "size", "digest", "description", "parameters"), ""),
        "type": "model",
        "tags": [""],
        "capabilities": _capabilities(state),
        "details": {**details, "parameter_size": "", "quantization_level": ""},
    }
    return reply({"object": "list", "data": [_model(state)], "models": [entry]})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}."""
    state = request.app[STATE]
    if GEMINI.is_asked(own_path(request), request.headers):
        return reply(gemini.model(_about(state, {"model": request.match_info["id"]})))
    if request.match_info["id"] not in state.aliases:
        raise UnknownModelError(f"this server has one model, {state.alias!r}; GET /v1/models lists it")
    return reply(_model(state))


def _capabilities(state: State) -> list[str]:
    if (embeds := state.engine.embeds) is not None:
        return ["rerank" if embeds.facts.ranks else "embedding"]
    return ["completion", *(["multimodal"] if state.engine.sees_images else [])]


def _model(state: State) -> Json:
    info = state.engine.info
    target = info.target
    meta = {
        "vocab_type": target.vocab_type,
        "n_vocab": target.n_vocab,
        "n_ctx": info.n_ctx,
        "n_ctx_train": target.n_ctx_train,
        "n_embd": target.n_embd,
        "n_params": target.n_params,
        "size": target.size,
        "ftype": target.ftype,
    }
    tags = sorted(filter(None, state.config.tags.split(",")))
    own = {"id": state.alias, "aliases": [*state.aliases], "tags": tags, "object": "model", "created": state.started}
    kinds = ["text", "image"] if state.engine.sees_images else ["text"]
    modalities = {"input_modalities": kinds, "output_modalities": ["text"]}
    own |= listed_model(state.alias, state.started) | {"capabilities": _capabilities(state)}
    if (embeds := state.engine.embeds) is not None:
        modalities = {
            "input_modalities": ["text"],
            "output_modalities": ["scores" if embeds.facts.ranks else "embeddings"],
        }
        meta |= {"pooling": embeds.facts.pooling}
    return {**own, "owned_by": "llamacpp", "meta": meta, "architecture": modalities, "warnings": info.warnings}


async def props(request: web.Request) -> web.Response:
    """GET /props, as far as it means something here."""
    state = request.app[STATE]
    info, config = state.engine.info, state.engine.config
    caps = await state.off_loop(0, state.engine.text.template_caps)
    params = {
        **sampling_json(config.sampling, config.sampling.seed),
        "n_predict": config.n_predict,
        "max_tokens": config.n_predict,
        **_UNASKED,
        "reasoning_format": state.config.reasoning_format,
        "lora": [{"id": adapter.id, "scale": adapter.scale} for adapter in state.engine.snapshot().adapters],
        **speculative_json(config.drafting.defaults, drafters_of(state.engine, config.drafting.defaults)),
    }
    return reply(
        {
            "default_generation_settings": {"n_ctx": info.n_ctx, "params": params},
            "total_slots": info.n_slots,
            "model_alias": state.alias,
            "model_path": info.target.path,
            "model_ftype": info.target.ftype,
            "draft_model_path": info.draft.path if info.draft is not None else "",
            "draft_model_paths": {origin: model.path for origin, model in info.drafts.items()},
            "chat_template": chat_template(state.engine),
            "chat_template_caps": caps,
            "bos_token": info.bos_token,
            "eos_token": info.eos_token,
            "is_sleeping": state.engine.sleep.is_asleep,
            "modalities": {"vision": state.engine.sees_images, "video": False, "audio": False},
            "media_marker": MEDIA_MARKER,
            "endpoint_slots": state.config.slots,
            "endpoint_metrics": state.config.metrics,
            "endpoint_props": False,
            "ui": state.config.ui,
            "ui_settings": {},
            "cors_proxy_enabled": False,
            "build_info": state.fingerprint,
            "warnings": info.warnings,
        }
    )


async def slots(request: web.Request) -> web.Response:
    """GET /slots; with ?fail_on_no_slot=1 the answer is 503 while every slot is busy."""
    state = request.app[STATE]
    if not state.config.slots:
        raise NotSupportedError("the slots endpoint is off; start the server without --no-slots")
    infos, text = state.engine.snapshot().slots, request.query.get("fail_on_no_slot", "")
    try:
        fails = bool(text) and bool(SWITCH.parse(text))  # in the words of the command line
    except ValueError:
        raise InvalidRequestError.at("fail_on_no_slot", "must be 0 or 1") from None
    if fails and all(slot.is_processing for slot in infos):
        raise BusyError("no slot is free")
    return reply([_slot(state, slot) for slot in infos])


def _slot(state: State, slot: SlotInfo) -> Json:
    return {
        "id": slot.id,
        "id_task": -1 if slot.request is None else slot.request,
        "n_ctx": state.engine.info.n_ctx,
        "n_past": slot.n_past,
        "is_processing": slot.is_processing,
        "speculative": bool(state.engine.info.drafters),
        "n_prompt_tokens": slot.n_prompt,
        "n_prompt_tokens_cache": slot.n_cached,
        "n_prompt_tokens_processed": max(min(slot.n_past, slot.n_prompt) - slot.n_cached, 0),
        "next_token": [{"has_next_token": slot.is_processing, "n_decoded": slot.n_predicted, "n_remain": slot.n_left}],
    }


async def slot_action(request: web.Request) -> web.Response:
    """POST /slots/{id}?action=save, restore or erase; waits until the slot is free."""
    state = request.app[STATE]
    if state.config.slot_save_path is None:
        raise NotSupportedError("This server does not support slots action. Start it with `--slot-save-path`")
    slot, word = request.match_info["id"], request.query.get("action", "")
    if not (slot.isdecimal() and slot.isascii() and len(slot) < _MOST_DIGITS):
        raise InvalidRequestError("Invalid slot ID", "id_slot")
    if word not in [*SlotAction]:
        raise InvalidRequestError("Invalid action", "action")
    id_, action, name = int(slot), SlotAction(word), ""
    if action is not SlotAction.ERASE:
        body, _ = await state.read(request, lambda members: checked(SlotBody, members))
        name = body.filename
    if id_ >= state.engine.info.n_slots:
        raise InvalidRequestError("Invalid slot ID", "id_slot")
    async with state.idle.awake():
        done = await asyncio.wrap_future(state.engine.slot_action(action, id_, name))
    if action is SlotAction.ERASE:
        return reply({"id_slot": id_, "n_erased": done.n_ids})
    counted, size = ("n_saved", "n_written") if action is SlotAction.SAVE else ("n_restored", "n_read")
    counts = {counted: done.n_ids, size: done.n_bytes, "timings": {f"{action}_ms": done.ms}}
    return reply({"id_slot": id_, "filename": name, **counts})


async def adapters(request: web.Request) -> web.Response:
    """GET /lora-adapters: llama-server's list."""
    return reply([asdict(adapter) for adapter in request.app[STATE].engine.snapshot().adapters])


async def change_adapters(request: web.Request) -> web.Response:
    """POST /lora-adapters [{"id", "scale"}, …]: for requests that come later; those that are not named get 0."""
    state = request.app[STATE]
    scales = parse_list(await state.body(request))
    state.engine.set_adapters(scales_of(state.engine, scales, "body"))
    return reply({"success": True})


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics in Prometheus' text format."""
    state = request.app[STATE]
    if not state.config.metrics:
        raise NotSupportedError("the metrics endpoint is off; start the server with --metrics")
    headers = {"Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": str(state.started)}
    return web.Response(body=render(state), headers=headers)


async def tokenize(request: web.Request) -> web.Response:
    """POST /tokenize {content, add_special, parse_special, with_pieces}."""
    state = request.app[STATE]
    n_vocab = state.engine.info.target.n_vocab

    def read(members: dict[str, object]) -> tuple[TokenizeBody, list[PromptPart]]:
        body = TokenizeBody.model_validate(members)
        return body, parts_of(body.content, n_vocab, "content")

    (body, parts), size = await state.read(request, read)
    async with state.idle.awake():
        return await state.reply(size, lambda: {"tokens": _tokens(state, body, parts)}, depth=2)


def _tokens(state: State, body: TokenizeBody, parts: list[PromptPart]) -> Iterator[Json] | Sequence[int]:
    engine = state.engine
    ids = mixed_ids(engine.text, parts, body.add_special, body.parse_special)
    return ({"id": id_, "piece": _piece(engine.text.piece(id_))} for id_ in ids) if body.with_pieces else ids


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


async def detokenize(request: web.Request) -> web.Response:
    """POST /detokenize {tokens}."""
    state = request.app[STATE]
    text, n_vocab = state.engine.text, state.engine.info.target.n_vocab

    def read(members: dict[str, object]) -> list[int]:
        return ids_of(DetokenizeBody.model_validate(members).tokens, n_vocab, "tokens")

    ids, size = await state.read(request, read)
    async with state.idle.awake():
        return await state.reply(size, lambda: {"content": text_of(text, ids)})


async def apply_template(request: web.Request) -> web.Response:
    """POST /apply-template {messages, chat_template_kwargs, …}: the prompt that a chat would get, as text."""
    state = request.app[STATE]
    body, size = await state.read(request, lambda members: checked(TemplateBody, members), WITH_PICTURES_BYTES)
    check_begun(body)
    if has_pictures(body):  # the markers say where they are; none is fetched or decoded
        check_sight(state.engine.sees_images, await state.off_loop(size, lambda: chat_sources(body)))
    async with state.idle.awake():
        return await state.reply(size, lambda: {"prompt": render_chat(state.engine.text, body)})


async def facts(tell: ServerAnswer, request: web.Request) -> web.Response:
    """A route of any API about the server."""
    return reply(tell(_about(request.app[STATE], request.match_info)))


async def facts_of(tell: ServerAnswer, request: web.Request) -> web.Response:
    """The same, of what a body asks for."""
    state = request.app[STATE]
    members, size = await state.read(request, lambda members: members)
    about = _about(state, members)
    return await state.reply(size, lambda: tell(about))


def _about(state: State, asked: Mapping[str, object]) -> About:
    """On the loop."""
    return About(state.engine, state.aliases, state.started, state.idle.expires_at, asked)


async def runs_as_ollama(request: web.Request) -> web.Response:
    """GET / of a server without the page."""
    return web.Response(text=RUNNING)


async def absent_route(request: web.Request) -> web.Response:
    """Routes of other servers that change which models there are, or make no text."""
    raise NotSupportedError(
        f"{request.path} is not supported: this server has one model, which it was started with, and generates text"
    )


async def writes_nothing(request: web.Request) -> web.Response:
    """Routes that generate, of a server that embeds."""
    embeds = request.app[STATE].engine.embeds
    assert embeds is not None
    raise NotSupportedError(f"{request.path[:100]} is not supported: {embeds.facts.instead}")
