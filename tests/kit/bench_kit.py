"""A scripted server on loopback for what measures servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES: list[dict[str, Any]] = [
    {"choices": [{"delta": {"role": "assistant", "content": None}}]},
    *({"choices": [{"delta": {"content": c}}]} for c in "abcde."),
]
USAGE: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": 5}}
TIMINGS: dict[str, Any] = {
    "choices": [{"delta": {}}],
    "timings": {
        "predicted_n": 5,
        "predicted_ms": 40.0,
        "predicted_per_second": 125.0,
        "draft_n": 8,
        "draft_n_accepted": 2,
    },
}
"""What the scripted server streams: its text in pieces, its counts, llama-server's times."""


Seen = list[tuple[str, Any, str | None]]


@contextmanager
def server(
    chunks: Sequence[Mapping[str, Any]], status: int = 200, answer: bytes | None = None
) -> Iterator[tuple[str, Seen]]:
    """A server that streams `chunks` for every completion, and remembers the requests. answer: sent instead."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _send(self, data: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            seen.append((self.path, None, self.headers["Authorization"]))
            self._send(json.dumps({"data": [{"id": "their-model"}]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers["Authorization"]))
            if self.path == "/tokenize":
                self._send(json.dumps({"tokens": list(body["content"].encode())}).encode())
                return
            lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
            stream = "".join(f": ping\n\ndata: {line}\n\n" for line in lines).encode()
            self._send(stream if answer is None else answer, "text/event-stream")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}", seen
        finally:
            httpd.shutdown()
            thread.join()
