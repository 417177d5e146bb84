"""From exceptions to errors as clients see them, and OpenAI's body of one. Knows every error family and no route."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from uad.base.errors import (
    ContextOverflowError,
    InvalidRequestError,
    NotSupportedError,
    RequestError,
    SlowReaderError,
    UadError,
    UnavailableError,
)

log = logging.getLogger("uad.server")

NO_RETRY = {"x-should-retry": "false"}  # OpenAI's clients repeat every 5xx twice unless this header is there
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
OVERFLOW = "exceed_context_size_error"


class AuthenticationError(UadError):
    """The request carries no valid API key."""

    code = "invalid_api_key"


class ForbiddenError(UadError):
    """The request comes from a web page or under a host name that this server does not serve without a key."""

    code = "forbidden"


class UnknownModelError(UadError):
    """A route was asked about a model that this server has not."""

    code = "model_not_found"


class BusyError(UnavailableError):
    """The queue is full; the same request may succeed later."""

    code = "queue_full"


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as clients see it: `extra` are further members of the error object, `headers` go with a plain
    response.
    """

    status: int
    message: str
    kind: str
    param: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, object]:
        """OpenAI's error object, inside its envelope."""
        return {
            "error": {
                "code": self.status,
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                **self.extra,
            }
        }


def problem_of(error: Exception) -> Problem:
    """The client's view of `error`; an unexpected one is logged in full and reported in general words."""
    match error:
        case ContextOverflowError():
            counts = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
            return Problem(400, str(error), OVERFLOW, error.param, counts)
        case ValidationError():
            field, reason = field_and_reason(error)
            return Problem(400, f"{field}: {reason}" if field else reason, KINDS[400], field or None)
        case UadError():
            status, headers = _status(error)
            param = error.param if isinstance(error, RequestError) else None
            return Problem(status, str(error), KINDS.get(status, "server_error"), param, headers=headers)
        case _:
            log.error("unexpected error in the HTTP server", exc_info=error)
            return Problem(500, "internal error; the server's log has the details", "server_error")


def _status(error: UadError) -> tuple[int, Mapping[str, str]]:
    match error:
        case InvalidRequestError():
            return 400, {}
        case AuthenticationError():
            return 401, {"WWW-Authenticate": "Bearer"}
        case ForbiddenError():
            return 403, {}
        case UnknownModelError():
            return 404, {}
        case NotSupportedError():
            # A field is the request's fault, and no client repeats a 400; a route is one that the server lacks.
            return 501 if error.param is None else 400, NO_RETRY
        case BusyError():
            return 503, {"Retry-After": "1"}
        case UnavailableError():
            return 503, NO_RETRY
        case SlowReaderError():
            return 408, NO_RETRY
        case _:
            return 500, {}


def field_and_reason(error: ValidationError) -> tuple[str, str]:
    """The field that is wrong, empty for the whole, and why. Of several the first."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    return param, text[:1].lower() + text[1:]
