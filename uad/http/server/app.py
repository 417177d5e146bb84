"""The application: its routes, and how it runs and stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from math import inf

from aiohttp import web

from uad.base.config import ServerConfig
from uad.http.apis.listed import APIS
from uad.http.apis.problems import BusyError
from uad.http.edge import page
from uad.http.edge.access import allow_origin, guard
from uad.http.edge.bodies import WITH_PICTURES_BYTES
from uad.http.edge.connection import PATIENCE_S, PhasedServer
from uad.http.edge.edge import EDGE, Edge
from uad.http.edge.replies import Handler, errors, name_request
from uad.http.requests.generation import Backend
from uad.http.server import info, live
from uad.http.server.completions import answer, count
from uad.http.server.embedding import embed
from uad.http.server.state import STATE, Admission, State

MAX_BODY = WITH_PICTURES_BYTES
"""Bytes of any body."""
SHUTDOWN_SECONDS = 2.0
"""Each for the last words of answers, and for handlers that do not end by themselves."""

POST_ROUTES: dict[str, Handler] = {
    "/tokenize": info.tokenize,
    "/lora-adapters": info.change_adapters,
    "/detokenize": info.detokenize,
    "/apply-template": info.apply_template,
    "/slots/{id}": info.slot_action,
    **{path: partial(answer, route) for api in APIS for path, route in api.answers.items()},
    **{path: partial(count, route) for api in APIS for path, route in api.counts.items()},
    **{path: partial(embed, route) for api in APIS for path, route in api.embeds.items()},
    **{path: partial(info.facts_of, tell) for api in APIS for path, tell in api.facts_of.items()},
}
GET_ROUTES: dict[str, Handler] = {
    "/health": info.health,
    "/v1/health": info.health,
    "/v1/models": info.models,
    "/models": info.models,
    "/v1/models/{id:.+}": info.model,
    "/props": info.props,
    "/slots": info.slots,
    "/lora-adapters": info.adapters,
    "/metrics": info.metrics,
    "/live": live.live,
    **{path: partial(info.facts, tell) for api in APIS for path, tell in api.facts.items()},
}
WRITING = frozenset(("/apply-template", *(path for api in APIS for path in (*api.answers, *api.counts))))
"""Routes of models that write text."""
ABSENT_BY_ANY_METHOD = tuple(path for api in APIS for path in api.absent)


def make_app(runtime: Backend, config: ServerConfig) -> web.Application:
    """The application over `runtime`, which it neither opens nor closes."""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[errors, guard])
    state = app[STATE] = State(runtime, config, Admission(runtime.info.n_slots + config.max_queue))
    app[EDGE] = Edge(config, state.bodies)
    for path, handler in POST_ROUTES.items():
        handler = info.writes_nothing if runtime.embeds is not None and path in WRITING else handler
        app.router.add_post(config.api_prefix + path, handler)
    for path, handler in GET_ROUTES.items():
        app.router.add_get(config.api_prefix + path, handler)
    if config.ui:
        page.add_routes(app, config.api_prefix)
    else:
        app.router.add_get(f"{config.api_prefix}/", info.runs_as_ollama)
    for path in ABSENT_BY_ANY_METHOD:
        app.router.add_route("*", config.api_prefix + path, info.absent_route)
    app.on_response_prepare.append(allow_origin)
    app.on_response_prepare.append(name_request)
    app.on_startup.append(live.start_watch)
    app.on_startup.append(_start_idling)
    app.on_shutdown.append(live.stop_watch)
    app.on_shutdown.append(_stop_streams)
    app.cleanup_ctx.append(_own_workers)
    return app


class Runner(web.AppRunner):
    """Runs an application on a server that may have been there before it, and ends with it."""

    def __init__(self, app: web.Application, server: PhasedServer | None) -> None:
        super().__init__(app, access_log=None)
        self._phases = server

    @property
    def server(self) -> PhasedServer | None:
        """The server that makes connections."""
        return self._phases

    async def setup(self) -> None:
        """The application answers from now on."""
        await super().setup()
        own = super().server
        assert own is not None
        self._phases = self._phases or PhasedServer(min(self.app[EDGE].config.timeout, PATIENCE_S))
        self._phases.open(own)

    async def shutdown(self) -> None:
        """Signal all that runs to end, and wait a while for the last words to be sent."""
        if self._phases is not None:
            self._phases.pre_shutdown()
            await super().shutdown()
            await self._phases.shutdown(SHUTDOWN_SECONDS)


def make_runner(app: web.Application, server: PhasedServer | None = None) -> Runner:
    """A runner for the application, on this server or one of its own."""
    return Runner(app, server)


async def _start_idling(app: web.Application) -> None:
    app[STATE].idle.start()


async def _stop_streams(app: web.Application) -> None:
    state = app[STATE]
    state.admission.draining = True
    state.idle.keep(inf)
    state.idle.stop()
    for generation in list(state.live):
        generation.abort(state.engine.error or BusyError("the server is shutting down"))


async def _own_workers(app: web.Application) -> AsyncIterator[None]:
    async with app[STATE].workers.closing():  # they read the model, which is freed next
        yield
