"""What all handlers of a router share. Lives on the event loop's thread."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from uad.base.config.load import FolderConfig
from uad.router.events import Broadcast
from uad.router.pool import ModelPool


@dataclass(slots=True)
class RouterState:
    """One application: its models, its settings, and the connections to their processes."""

    pool: ModelPool
    config: FolderConfig
    session: aiohttp.ClientSession
    events: Broadcast
    reload: Callable[[], Awaitable[None]]
    """Reads the folder again."""
    started: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""


ROUTER = web.AppKey("ROUTER", RouterState)


def connections() -> aiohttp.ClientSession:
    """To processes of models: as many as there are requests, kept open between them. Inside of a running loop."""
    # what a model writes takes as long as it takes; the client's own connection has the bounds
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )
