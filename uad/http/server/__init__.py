"""The HTTP side: the routes of all APIs over one runtime. Knows no model and no llama.cpp, only messages."""

from uad.http.server.app import make_app, make_runner
from uad.http.server.lifecycle import serve

__all__ = ["make_app", "make_runner", "serve"]
