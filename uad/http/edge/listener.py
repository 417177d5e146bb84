"""The sockets that a server listens on, and its TLS. They outlive the application that answers on them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from uad.base.common.files import is_file, no_such_file
from uad.base.config import ServerConfig
from uad.base.errors import AddressError, ConfigError


class Listener:
    """Bound sockets. Use with `with`, or call `close()`: what serves on them has copies of its own.

    Between two applications clients wait in the queue of the system; none is refused.
    """

    def __init__(self, config: ServerConfig, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        self._config, self._sockets, self._tls = config, sockets, tls

    @classmethod
    async def open(cls, config: ServerConfig) -> Listener:
        """Bind host and port, or raise ConfigError with the way out."""
        tls = tls_context(config)
        if not 0 <= config.port <= 65535:
            raise ConfigError(f"port {config.port} does not exist; choose one from 1 to 65535 with --port")
        sockets: list[socket.socket] = []
        try:
            for host in config.hosts:  # all on the port of the first one, which may be any free one
                port = sockets[0].getsockname()[1] if sockets else config.port
                sockets += await _bound(host, port, config)
        except ConfigError:
            for bound in sockets:
                bound.close()
            raise
        return cls(config, sockets, tls)

    @property
    def url(self) -> str:
        """Where the server can be reached, with the port that was really opened."""
        return url_of(self._config, self._sockets[0].getsockname()[1])

    async def answer_with(self, runner: web.BaseRunner) -> None:
        """Have a runner that was set up answer; when it is cleaned up, the sockets stay."""
        for bound in self._sockets:
            await web.SockSite(runner, bound.dup(), ssl_context=self._tls).start()

    def close(self) -> None:
        """No new client is let in, once no runner answers any more."""
        for bound in self._sockets:
            bound.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


async def _bound(host: str, port: int, config: ServerConfig) -> list[socket.socket]:
    """Sockets of a host's addresses. Raises AddressError with the way out."""
    try:
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, host, port, start_serving=False, reuse_port=config.reuse_port
        )
    except socket.gaierror as error:
        raise AddressError(f"host {host!r} is unknown ({error.strerror}); choose another with --host") from error
    except UnicodeError as error:  # names are brought into ASCII first
        raise AddressError(f"host {host!r} is no name of a machine; choose another with --host") from error
    except OSError as error:
        raise AddressError(_why_not(host, port, error)) from error
    sockets = [socket.dup() for socket in server.sockets]
    server.close()
    return sockets


def url_of(config: ServerConfig, port: int) -> str:
    """The base URL of a server on this port; of several addresses that of the first."""
    host = f"[{config.hosts[0]}]" if ":" in config.hosts[0] else config.hosts[0]
    return f"http{'s' if config.ssl_key else ''}://{host}:{port}{config.api_prefix}"


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS with the key and the certificate of the configuration, None without. Raises ConfigError naming the file."""
    key, certificate = config.ssl_key, config.ssl_cert
    if key is None or certificate is None:
        return None
    for flag, path in (("--ssl-key-file", key), ("--ssl-cert-file", certificate)):
        if not is_file(path):
            raise ConfigError(f"{flag}: {path}: {no_such_file(path)}")
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{flag}: {path} cannot be read ({error.strerror})") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: _refuse_password(key))
    except ssl.SSLError as error:
        raise ConfigError(_why_no_tls(error, key, certificate)) from error
    return context


def _refuse_password(key: Path) -> str:
    raise ConfigError(f"--ssl-key-file: {key} has a passphrase, and nobody is there to type it; give a key without one")


def _why_no_tls(error: ssl.SSLError, key: Path, certificate: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--ssl-key-file {key} is not the key of the certificate in --ssl-cert-file {certificate}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        return f"--ssl-cert-file: {certificate} holds no certificate in PEM form"
    return f"--ssl-key-file: {key} holds no private key in PEM form ({error.reason or 'unknown format'})"


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is already in use; choose another with --port (0: a free one)"
        case errno.EACCES:
            return f"port {port} needs more rights than this process has; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return (
                f"host {host!r} is no address of this machine; choose another with --host (127.0.0.1, or "
                "0.0.0.0 for all)"
            )
        case _:
            return f"cannot listen on {host} port {port}: {error.strerror}; choose others with --host and --port"
