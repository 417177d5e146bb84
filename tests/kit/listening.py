"""An application that answers on a port of its own, without signals and without a thread that loads."""

from __future__ import annotations

from aiohttp import web

from uad.base.config import ServerConfig
from uad.http.edge.listener import Listener, url_of


async def listen(runner: web.AppRunner, config: ServerConfig) -> None:
    """Open the port for a runner that was set up, or raise ConfigError."""
    with await Listener.open(config) as listener:
        await listener.answer_with(runner)


def base_url(runner: web.AppRunner, config: ServerConfig) -> str:
    """Where the server can be reached, with the port that was really opened."""
    return url_of(config, runner.addresses[0][1])
