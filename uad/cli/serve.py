"""`uad serve`: load the models, say where the server listens, serve until told to stop."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from collections.abc import Iterator, Sequence

from uad.cli.models import has_template, parse, runtime
from uad.config import ServerConfig
from uad.config.argv import Parser
from uad.config.flag_groups import GROUPS
from uad.console import note
from uad.errors import ConfigError

_DESCRIPTION = (
    "Serve a target model over HTTP (OpenAI's and llama-server's API), sped up by a draft model with any tokenizer."
)
_EPILOG = """Flags are spelled as llama-server's. The command line wins over the environment, that over the file of
--config.

example: uad serve --target TARGET.gguf --draft DRAFT.gguf --port 8080"""
_ANY = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. Raises UadError."""
    _, config = parse(Parser("uad serve", _DESCRIPTION, _EPILOG), argv, GROUPS)
    check_port(config.server.host, config.server.port)
    with runtime(config) as opened:
        from uad.server.app import serve

        for line in opened.info.notes:
            note(line)
        can_chat = has_template(opened)
        serve(
            opened,
            config.server,
            lambda url: print("\n".join(greeting(url, config.server, can_chat)), flush=True),
        )
    return 0


def check_port(host: str, port: int) -> None:
    """Raise ConfigError for a port in use. Asked before the models load, because that should not cost minutes to hear
    of.

    Everything else about host and port is left to the server, which asks again.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, proto) as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise ConfigError(f"--host: {host!r} is not an address of this machine ({error.strerror})") from error
    except UnicodeError as error:  # names are brought into ASCII first
        raise ConfigError(f"--host: {host!r} is no name of a machine") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"--port: {port} on {host} is in use by another program; choose another, or 0 for a free one"
            ) from error
        raise ConfigError(f"--host, --port: cannot listen on {host} port {port}: {error.strerror}") from error


def greeting(url: str, server: ServerConfig, can_chat: bool) -> Iterator[str]:
    """What is printed once the server listens: where, how to ask it, and the page."""
    yield f"listening on {url}"
    yield curl(url, server, can_chat)
    if server.ui:
        yield f"or see who writes each token: {_reachable(url)}/"


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
