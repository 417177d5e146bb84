"""The application of a router: which routes go to the process of a model, and which it answers itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from aiohttp import web

from uad.http.apis import gemini
from uad.http.edge import page
from uad.http.edge.access import allow_origin, guard
from uad.http.edge.edge import EDGE, Edge, own_path
from uad.http.edge.replies import FAILED, STREAM, Handler, errors, id_of_request, name_request, refused
from uad.http.server.app import ABSENT_BY_ANY_METHOD, GET_ROUTES, MAX_BODY, POST_ROUTES
from uad.http.server.info import runs_as_ollama
from uad.router import lists, own_routes
from uad.router.refusal import RoutingError
from uad.router.routing import to_model
from uad.router.state import ROUTER, RouterState

log = logging.getLogger("uad.router")
OWN_GETS = {
    "/health": own_routes.health,
    "/v1/health": own_routes.health,
    "/v1/models": lists.models,
    "/models": lists.models,
    "/models/sse": own_routes.events,
    "/v1/models/{id:.+}": lists.model,
    gemini.PATH: lists.google_models,
    f"{gemini.PATH}/{{model:.+}}": lists.google_model,
    "/props": own_routes.props,
    "/metrics": own_routes.metrics,
    "/api/tags": lists.tags,
    "/api/ps": lists.running,
    "/api/version": own_routes.version,
}
OWN_POSTS = {
    "/models": own_routes.models_are_files,
    "/models/load": own_routes.load,
    "/models/unload": own_routes.unload,
    "/api/show": lists.show,
}
"""Routes that the router answers itself. All other routes of uad go to a model: `http/server/app.py` has them."""


def make_app(state: RouterState) -> web.Application:
    """The application over `state`, whose processes it neither starts nor ends."""
    config = state.config.server
    app = web.Application(client_max_size=MAX_BODY, middlewares=[errors, guard, refusals])
    app[EDGE], app[ROUTER] = Edge(config), state
    for method, path, handler in _routes():
        app.router.add_route(method, config.api_prefix + path, handler)
    if config.ui:
        page.add_routes(app, config.api_prefix)
    else:
        app.router.add_get(f"{config.api_prefix}/", runs_as_ollama)
    app.on_response_prepare.append(allow_origin)
    app.on_response_prepare.append(name_request)
    return app


def _routes() -> Iterator[tuple[str, str, Handler]]:
    """Method, path and handler of each; paths with a name in them last, since the first that fits counts."""
    yield from (("POST", path, handler) for path, handler in OWN_POSTS.items())
    yield from (("GET", path, handler) for path, handler in OWN_GETS.items())
    yield from (("POST", path, to_model) for path in POST_ROUTES if path not in OWN_POSTS)
    yield from (("GET", path, to_model) for path in GET_ROUTES if path not in OWN_GETS)
    yield "DELETE", "/models", own_routes.models_are_files
    yield from (("*", path, own_routes.absent_route) for path in ABSENT_BY_ANY_METHOD)


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Around every handler: a request that does not reach its model gets an error in the words of its API."""
    try:
        return await handler(request)
    except RoutingError as error:
        problem = error.problem
        log.info("%s %s: %d, %s", request.method, request.path[:100], problem.status, problem.message)
        stream: web.StreamResponse | None = request.get(STREAM)
        if stream is None:
            return refused(problem, own_path(request), id_of_request(request), request.headers)
        if FAILED not in request:  # it said how long it would be, and no error fits there
            raise ConnectionError(problem.message) from error
        await stream.write(request[FAILED](problem))
        await stream.write_eof()
        return stream
