"""The page at `/`: its files, which lie beside this one and are sent as they are. Nobody builds them. The libraries
that it uses are in vendor/, as scripts/vendor_page.py fetched them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath

from aiohttp import web

PATH = "/page/"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        *("script-src 'self'", "style-src 'self'", "font-src 'self'", "img-src 'self' data:", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        # No script may turn text into HTML, not even the page's own: a model's text stays text.
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
VENDORED = "vendor/"  # another version lies at another path
FOR_GOOD = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def is_page(path: str) -> bool:
    """Whether a path, without the prefix of the API, is the page's. Its files need no key: they hold no secret."""
    return path in ("", "/") or path.startswith(PATH)


def add_routes(app: web.Application, prefix: str) -> None:
    """GET `/` and the files that it names, below `prefix`; without its last slash the prefix leads there."""
    _files()  # read now, not while requests are answered
    app.router.add_get(f"{prefix}/", _index)
    app.router.add_get(f"{prefix}{PATH}{{name:.+}}", _named)
    if prefix:
        app.router.add_get(prefix, _to_slash)


class _File:
    """One file as it is sent."""

    def __init__(self, name: str, data: bytes) -> None:
        self.data = data
        self.tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
        self.kept = {**(FOR_GOOD if name.startswith(VENDORED) else HEADERS), "ETag": self.tag}
        self.headers = {**self.kept, "Content-Type": KINDS[PurePath(name).suffix]}


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif PurePath(entry.name).suffix in KINDS:
            yield f"{prefix}{entry.name}", entry


@cache
def _files() -> dict[str, _File]:
    """All that is sent, by its name below the folder."""
    return {name: _File(name, file.read_bytes()) for name, file in _below(files(__name__), "")}


async def _index(request: web.Request) -> web.Response:
    return _sent(request, "index.html")


async def _named(request: web.Request) -> web.Response:
    return _sent(request, request.match_info["name"])


def _sent(request: web.Request, name: str) -> web.Response:
    """The file, or that it has not changed. Raises HTTPNotFound."""
    file = _files().get(name)
    if file is None:
        raise web.HTTPNotFound
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=file.kept)
    return web.Response(body=file.data, headers=file.headers)


async def _to_slash(request: web.Request) -> web.Response:
    """Addresses in the page are relative to its folder."""
    return web.Response(status=308, headers={"Location": f"{request.path}/"})
