"""`python -m uad.tools.health`: whether the server of this container answers; for the image's health check.

It looks for the process of `uad serve` and reads its flags, variables and file as that one did. So it asks at the
address, port and prefix that are served, with TLS where the server speaks it, and never by way of a proxy.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from uad.base.config import ServerConfig, load_config
from uad.base.console import note
from uad.base.errors import UadError

_SECONDS = 4.0
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running `uad serve`: the words after `serve`, its variables, and its working directory."""

    words: Sequence[str]
    environ: Mapping[str, str]
    folder: Path


def main(proc: Path = _PROC) -> int:
    """Exit code 0 if a server answers that it is well, else 1 with the reason on stderr."""
    for process in servers(proc):
        try:
            if why := why_ill(config_of(process)):
                note(f"error: {why}")
            return 1 if why else 0
        except UadError as error:  # the server says so itself
            note(f"error: {error}")
            return 1
    note("error: no `uad serve` runs here")
    return 1


def servers(proc: Path) -> Iterator[ServerProcess]:
    """The processes of `uad serve` that are seen here, the first one first."""
    for folder in sorted(
        (entry for entry in proc.iterdir() if entry.name.isdecimal()), key=lambda entry: int(entry.name)
    ):
        words = _texts(folder / "cmdline")
        at = next((i for i in range(1, len(words)) if words[i] == "serve" and Path(words[i - 1]).name == "uad"), None)
        if at is not None:
            pairs = (text.partition("=") for text in _texts(folder / "environ"))
            environ = {name: value for name, _, value in pairs} or dict(os.environ)
            yield ServerProcess(words[at + 1 :], environ, folder / "cwd")


def config_of(process: ServerProcess) -> ServerConfig:
    """The configuration that the process serves with. Raises ConfigError."""
    with suppress(OSError):  # a file of --config may be named from there
        os.chdir(process.folder)
    return load_config(list(process.words), dict(process.environ)).server


def why_ill(config: ServerConfig) -> str:
    """Why the server is not well, by its answer to GET /health; "" if it is."""
    where = f"{address(config.hosts[0])} port {config.port}"
    connection = _connection(config)
    try:
        connection.request("GET", f"{config.api_prefix}/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {where}: {error}"
    finally:
        connection.close()
    return "" if status == http.HTTPStatus.OK else f"{where} answers {status}"


def address(host: str) -> str:
    """Where a server that listens on this host is reached from its own machine."""
    with suppress(ValueError):  # a name
        if (ip := ipaddress.ip_address(host)).is_unspecified:
            return "127.0.0.1" if ip.version == 4 else "::1"
    return host


def _connection(config: ServerConfig) -> http.client.HTTPConnection:
    """To the server itself: http.client knows no proxies. The certificate need not be for this address."""
    host = address(config.hosts[0])
    if config.ssl_key is None:
        return http.client.HTTPConnection(host, config.port, timeout=_SECONDS)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, config.port, timeout=_SECONDS, context=context)


def _texts(path: Path) -> list[str]:
    """The texts that the system writes about a process, between zero bytes; nothing where that may not be read."""
    try:
        return [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
