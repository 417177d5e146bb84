"""Who may enter: API keys, browser origins, host names, and the bounded queue."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from uad.server.problems import AuthenticationError, BusyError, ForbiddenError

KEY_HEADERS = ("Authorization", "X-Api-Key", "Api-Key")  # OpenAI's and llama-server's, Anthropic's, Azure's; in any case
LOCAL_SUFFIXES = (".localhost", ".local", ".internal")  # names that public DNS cannot point at a visitor's own machine


@dataclass(slots=True)
class Gate:
    """Counts sequences that are submitted and not finished; past `limit` nobody enters. Lives on the event loop's thread."""

    limit: int
    n_inside: int = 0
    draining: bool = False

    @contextmanager
    def enter(self, n: int) -> Iterator[None]:
        """Hold room for `n` sequences, or raise BusyError."""
        if self.draining:
            raise BusyError("the server is shutting down")
        if self.n_inside + n > self.limit:
            raise BusyError(f"the queue is full ({self.n_inside} sequences of at most {self.limit}); try again later or raise --max-queue")
        self.n_inside += n
        try:
            yield
        finally:
            self.n_inside -= n


def check_key(request: web.Request, keys: Sequence[str]) -> None:
    """Raise AuthenticationError unless the request carries one of `keys` (no keys: everybody may enter)."""
    if not keys:
        return
    given = [_without_scheme(request.headers[name]).encode("utf-8", "surrogateescape") for name in KEY_HEADERS if name in request.headers]
    # Every key is compared, so that time tells nothing about which one was near.
    if sum(hmac.compare_digest(data, key.encode("utf-8")) for data in given for key in keys) == 0:
        raise AuthenticationError("invalid API key; send one of the server's --api-key values as 'Authorization: Bearer KEY'")


def _without_scheme(value: str) -> str:
    """The key in a header: `Bearer`, in any case and with any blanks around it, is not part of it."""
    scheme, *rest = value.split(maxsplit=1) or [""]
    return "".join(rest).strip() if scheme.lower() == "bearer" else value.strip()


def check_host(request: web.Request, bound: str) -> None:
    """Raise ForbiddenError for a host name that a hostile page could have pointed here (DNS rebinding).

    Only for servers without a key that listen on a loopback address, whose users rely on being unreachable.
    """
    host = host_of(f"//{request.host}")
    if not is_loopback(bound) or host in {bound.lower(), socket.gethostname().lower()} or is_local(host):
        return
    raise ForbiddenError(f"the host name {host!r} is not served without an API key; use 127.0.0.1, or start the server with --api-key")


def check_origin(request: web.Request) -> None:
    """Raise ForbiddenError for a request that a page of another site makes in the user's browser."""
    origin = request.headers.get("Origin")
    if origin is not None and not is_trusted_origin(origin, request.host):
        raise ForbiddenError("web pages of other sites may use this server only with an API key; start it with --api-key")


def is_trusted_origin(origin: str, host: str) -> bool:
    """Whether `origin` is a page on this machine, this server itself, or no web page at all (an app or an extension)."""
    scheme = origin.partition(":")[0].lower()
    if origin != "null" and scheme not in {"http", "https"}:
        return True
    return is_loopback(host_of(origin)) or origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()}


def host_of(url: str) -> str:
    """The lower-case host name in `url`, empty where there is none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine only."""
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(host: str) -> bool:
    """Whether `host` is an address, or a name that cannot come from public DNS."""
    if host == "localhost" or host.endswith(LOCAL_SUFFIXES):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
