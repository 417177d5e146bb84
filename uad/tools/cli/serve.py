"""`uad serve`: load the models, say where the server listens, serve until stopped."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from uad.base.config import ServerConfig
from uad.base.config.argv import Parser
from uad.base.config.flags import GROUPS
from uad.base.console import note
from uad.base.errors import AddressError
from uad.base.model_files import wrong_files
from uad.tools.cli.models import has_template, parse, runtime

if TYPE_CHECKING:
    from uad.http.requests.generation import Backend

_log = logging.getLogger("uad")
_DESCRIPTION = (
    "Serve a target model over HTTP (OpenAI's and llama-server's API), sped up by a draft model with any tokenizer."
)
_EPILOG = """Flags are spelled as llama-server's. The command line wins over the environment, that over the file of
--config.

example: uad serve --target TARGET.gguf --draft DRAFT.gguf --port 8080"""
_ANY = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. Raises UadError."""
    _, config = parse(Parser("uad serve", _DESCRIPTION, _EPILOG), argv, tuple(GROUPS))
    from uad.http.server import serve
    from uad.http.server.access import is_loopback

    if not config.server.api_keys and (open_to := [one for one in config.server.hosts if not is_loopback(one)]):
        _log.warning(
            "--host %s lets other machines in, and no --api-key is set: whoever reaches port %d may use this server",
            ",".join(open_to),
            config.server.port,
        )

    def ready(opened: Backend, url: str) -> None:
        for line in opened.info.notes:
            _log.info("%s", line)
        print("\n".join(greeting(url, config.server, has_template(opened))), flush=True)

    try:
        serve(runtime(config, tell=_log.info), config.server, ready)
    except AddressError as error:  # nothing was loaded: what else is wrong shows now, not once the port is free
        for wrong in wrong_files(config):
            note(f"error: {wrong}")
        raise error from None
    return 0


def greeting(url: str, server: ServerConfig, can_chat: bool) -> Iterator[str]:
    """What is printed once the server listens: where, how to ask it, and the page."""
    yield f"listening on {url}"
    first, *others = (f"[{host}]" if ":" in host else host for host in server.hosts)
    yield from (f"and on {url.replace(f'//{first}:', f'//{host}:', 1)}" for host in others)
    yield curl(url, server, can_chat)
    if server.ui:
        yield f"or see which model wrote each token: {_reachable(url)}/"


def _reachable(url: str) -> str:
    """An address for this machine's own browser."""
    for any_address, local in _ANY.items():
        url = url.replace(any_address, local)
    return url


def curl(url: str, server: ServerConfig, can_chat: bool) -> str:
    """A command to copy that gets an answer from the server at `url`; the key itself is not printed."""
    url = _reachable(url)
    chat, plain = '"messages": [{"role": "user", "content": "Tell me a story."}]', '"prompt": "Once upon a time"'
    route, ask = ("/v1/chat/completions", chat) if can_chat else ("/v1/completions", plain)
    key = ' -H "Authorization: Bearer $LLAMA_API_KEY"' if server.api_keys else ""
    body = shlex.quote(f'{{{ask}, "max_tokens": 64}}')
    return f"curl {url}{route} -H 'Content-Type: application/json'{key} -d {body}"
