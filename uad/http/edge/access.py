"""Which requests are let in: API keys, browsers' origins, host names."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web

from uad.base.config import ServerConfig
from uad.http.apis.listed import APIS, api_of
from uad.http.apis.problems import AuthenticationError, ForbiddenError
from uad.http.edge.edge import EDGE, own_path
from uad.http.edge.page import is_page
from uad.http.edge.replies import ID_HEADER, Handler

KEY_HEADERS = tuple(header for api in APIS for header in api.key_headers)
"""In any case. A client may send those of another API than it asks."""
LOCAL_SUFFIXES = (".localhost", ".local", ".internal")  # names that public DNS cannot point at a visitor's own machine
PUBLIC = ("/health", "/v1/health")
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, *",  # browsers do not count Authorization as part of *
    "Access-Control-Max-Age": "600",
}


def check_key(request: web.Request, keys: Sequence[str]) -> None:
    """Raise AuthenticationError unless the request carries one of `keys` (no keys: all requests may)."""
    if not keys:
        return
    api = api_of(own_path(request), request.headers)
    params = (request.query[name] for name in api.key_params if name in request.query)
    given = [value.encode("utf-8", "surrogateescape") for value in params]
    for value in (request.headers[name] for name in KEY_HEADERS if name in request.headers):
        # "Bearer sk-1", "bearer  sk-1" and "sk-1" are the same key.
        scheme, *rest = value.split(maxsplit=1) or [""]
        key = "".join(rest).strip() if scheme.lower() == "bearer" else value.strip()
        given.append(key.encode("utf-8", "surrogateescape"))
    # Every key is compared, so that time shows nothing about which one was near.
    if sum(hmac.compare_digest(data, key.encode("utf-8")) for data in given for key in keys) == 0:
        raise AuthenticationError(
            "invalid API key; send one of the server's --api-key values as 'Authorization: Bearer KEY'"
        )


def check_host(request: web.Request, bound: Sequence[str]) -> None:
    """Raise ForbiddenError for a host name that a hostile page could have pointed here (DNS rebinding).

    Only for servers without a key that listen on loopback addresses alone, whose users rely on being unreachable.
    """
    # A page at http://evil.example asks for its own address a second time, and DNS says 127.0.0.1 then. To the browser
    # it still talks to its own site, so no check of origins helps; but the Host header says evil.example.
    host = host_of(f"//{request.host}")
    if (
        is_local(host)
        or not all(map(is_loopback, bound))
        or host in {*map(str.lower, bound), socket.gethostname().lower()}
    ):
        return
    raise ForbiddenError(
        f"the host name {host!r} is not served without an API key; use 127.0.0.1, or start the server with --api-key"
    )


def check_origin(request: web.Request, config: ServerConfig) -> None:
    """Raise ForbiddenError for a request that a page makes which may not use the server."""
    origin = request.headers.get("Origin")
    if origin is not None and not may_use(origin, request.host, config):
        raise ForbiddenError(
            "web pages of other sites may use this server only with an API key; start it with --api-key, or name them "
            "with --cors-origins"
        )


def may_use(origin: str, host: str, config: ServerConfig) -> bool:
    """Whether a web page of this origin may use the server, which it calls by this host name. With a key, which
    decides then, any page may, unless --cors-origins names those that may.
    """
    allowed = config.cors_origins.lower().split(",") if config.cors_origins else ["*"] if config.api_keys else []
    return "*" in allowed or origin.lower() in allowed or is_trusted_origin(origin, host)


def is_trusted_origin(origin: str, host: str) -> bool:
    """Whether `origin` is a page on this machine, this server itself, or no web page at all (an app or an
    extension).
    """
    scheme = origin.partition(":")[0].lower()
    if origin != "null" and scheme not in {"http", "https"}:
        return True
    page = host_of(origin)
    return (
        is_loopback(page)
        or is_unspecified(page)
        or origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()}
    )


def host_of(url: str) -> str:
    """The lower-case host name in `url`; empty if it has no host."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine only."""
    address = _address(host)
    return address.is_loopback if address else host.lower() == "localhost" or host.lower().endswith(".localhost")


def is_unspecified(host: str) -> bool:
    """Whether `host` is 0.0.0.0 or ::, under which a browser has pages of this machine, too."""
    address = _address(host)
    return address is not None and address.is_unspecified


def is_local(host: str) -> bool:
    """Whether `host` is an address, or a name that cannot come from public DNS."""
    return host == "localhost" or host.endswith(LOCAL_SUFFIXES) or _address(host) is not None


@lru_cache(maxsize=64)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let in only requests that may: with the key, or without one from this machine's own programs and pages."""
    config = request.app[EDGE].config
    if not config.api_keys:
        check_host(request, config.hosts)
    if request.method == "OPTIONS" and (config.api_keys or config.cors_origins):
        return web.Response(headers=PREFLIGHT)  # a browser goes by the headers that `allow_origin` adds or not
    if not config.api_keys:
        check_origin(request, config)
    if request.method == "OPTIONS":
        return web.Response(headers=PREFLIGHT)
    path = own_path(request)
    if path not in PUBLIC and not (config.ui and is_page(path)):
        check_key(request, config.api_keys)
    return await handler(request)


async def allow_origin(request: web.Request, response: web.StreamResponse) -> None:
    """Let pages read the answer that may use the server."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    response.headers["Vary"] = "Origin"
    response.headers["Access-Control-Expose-Headers"] = ID_HEADER
    if may_use(origin, request.host, request.app[EDGE].config):
        response.headers["Access-Control-Allow-Origin"] = origin
