"""All APIs of this server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from uad.http.apis.anthropic import MESSAGES
from uad.http.apis.api import Api
from uad.http.apis.gemini import GEMINI
from uad.http.apis.native import NATIVE
from uad.http.apis.ollama import OLLAMA
from uad.http.apis.openai import OPENAI
from uad.http.apis.responses import RESPONSES

APIS: tuple[Api, ...] = (MESSAGES, GEMINI, RESPONSES, OLLAMA, NATIVE, OPENAI)
"""The first that owns a path has its errors: below --api-prefix /api, "/api/responses" is not Ollama's."""


def api_of(path: str, headers: Mapping[str, str] = MappingProxyType({})) -> Api:
    """The API whose errors a path has: OpenAI's where no other says that it is its own. headers: of the request."""
    return next((api for api in APIS if api.is_asked(path, headers)), None) or _owner(path)


@lru_cache(maxsize=256)
def _owner(path: str) -> Api:
    return next((api for api in APIS if api.owns(path)), OPENAI)
