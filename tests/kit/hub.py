"""A small hub on loopback: the few routes that huggingface_hub asks for listing and downloading, with accidents."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
_TREE, _RESOLVE = "/api/models/", "/resolve/"


class Hub:
    """Repositories by name, each with its files. Use with `with`; `url` goes into HF_ENDPOINT.

    gated: repositories that need `token`. breaks: how many answers end in the middle, with the connection. status: what
    every request is answered with instead, where it is not 0. asked: (method, path, Range header) of each request.
    """

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]], gated: tuple[str, ...] = (), token: str = "") -> None:
        self.repos = {name: dict(files) for name, files in repos.items()}
        self.gated, self.token = gated, token
        self.breaks = 0
        self.status = 0
        self.asked: list[tuple[str, str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def gets(self, file: str) -> list[str]:
        """The Range headers of the downloads of a file, "" for one from its beginning."""
        return [span for method, path, span in self.asked if method == "GET" and path.endswith(f"/{file}")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        """Facts about a file."""
        self._serve(with_body=False)

    def do_GET(self) -> None:
        """A list of files, or a file."""
        self._serve(with_body=True)

    def _serve(self, with_body: bool) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append((self.command, path, self.headers.get("Range", "")))
        if hub.status:
            return self._say(hub.status, {"error": "out of order"})
        repo = "/".join((path.removeprefix(_TREE) if path.startswith(_TREE) else path[1:]).split("/")[:2])
        if repo not in hub.repos:
            return self._say(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
        if path.startswith(_TREE):
            files = [{"rfilename": name} for name in hub.repos[repo]]
            return self._say(200, {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": files})
        if repo in hub.gated and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._say(403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        name = path.partition(_RESOLVE)[2].partition("/")[2]
        data = hub.repos[repo].get(name)
        if data is None:
            return self._say(404, {"error": "no such entry"}, {"X-Error-Code": "EntryNotFound"})
        return self._file(data, with_body)

    def _file(self, data: bytes, with_body: bool) -> None:
        span = self.headers.get("Range", "")
        start = int(span.removeprefix("bytes=").split("-")[0]) if span else 0
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if not with_body:
            return
        rest = data[start:]
        if self.hub.breaks:
            self.hub.breaks -= 1
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(1)
            return
        self.wfile.write(rest)

    def _say(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
