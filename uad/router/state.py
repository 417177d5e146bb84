"""State that all handlers of a router share. Lives on the event loop's thread."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from uad.base.config.load import FolderConfig
from uad.router.connections import Connections
from uad.router.events import Broadcast
from uad.router.pool import ModelPool


@dataclass(slots=True)
class RouterState:
    """One application: its models, its settings, and the connections to their processes."""

    pool: ModelPool
    config: FolderConfig
    connections: Connections
    events: Broadcast
    reload: Callable[[], Awaitable[object]]
    """Reads the folder again; the list stays as it was where that fails."""
    started: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""


ROUTER = web.AppKey("ROUTER", RouterState)
