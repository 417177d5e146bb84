"""All APIs of this server."""

from __future__ import annotations

from functools import lru_cache

from uad.http.apis.anthropic import MESSAGES
from uad.http.apis.api import Api
from uad.http.apis.gemini import GEMINI
from uad.http.apis.native import NATIVE
from uad.http.apis.ollama import OLLAMA
from uad.http.apis.openai import OPENAI
from uad.http.apis.responses import RESPONSES

APIS: tuple[Api, ...] = (MESSAGES, GEMINI, RESPONSES, OLLAMA, NATIVE, OPENAI)
"""The first that owns a path has its errors: below --api-prefix /api, "/api/responses" is not Ollama's."""


@lru_cache(maxsize=256)
def api_of(path: str) -> Api:
    """The API whose errors a path has: OpenAI's where no other says that it is its own."""
    return next((api for api in APIS if api.owns(path)), OPENAI)
