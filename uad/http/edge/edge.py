"""State that the edge of any application needs: its settings, and the bodies that are being read."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from uad.base.config import ServerConfig
from uad.http.edge.bodies import Bodies


@dataclass(slots=True)
class Edge:
    """The outermost layer of one application."""

    config: ServerConfig
    bodies: Bodies = field(default_factory=Bodies)


EDGE = web.AppKey("EDGE", Edge)


def own_path(request: web.Request) -> str:
    """The path of a request without `--api-prefix`: what routes and APIs know it by."""
    return request.path.removeprefix(request.app[EDGE].config.api_prefix)
