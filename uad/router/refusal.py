"""Why a request does not reach its model, as clients see it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uad.base.common.names import nearest
from uad.http.apis.problems import KINDS, Problem

_NAMES_SHOWN = 8


class RoutingError(Exception):
    """The request ends here."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def wrong(text: str, param: str | None = "model") -> RoutingError:
    """The request asks for something that cannot be."""
    return RoutingError(Problem(400, text, KINDS[400], param))


def unknown(name: str, known: Sequence[str]) -> RoutingError:
    """There is no model of this name."""
    near = nearest(name, known)
    hint = f"; did you mean '{near}'?" if near is not None else ";"
    return RoutingError(
        Problem(404, f"model '{name[:200]}' not found{hint} GET /v1/models lists all", KINDS[404], "model")
    )


def unnamed(known: Sequence[str]) -> RoutingError:
    """Several models, and none is named."""
    shown = ", ".join(known[:_NAMES_SHOWN]) + (
        f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    )
    return wrong(f"model name is missing from the request; this server has {shown or 'no model in its folder'}")


def later(text: str, seconds: float) -> RoutingError:
    """A refusal; the same request may succeed after these seconds."""
    wait = {"Retry-After": str(max(math.ceil(seconds), 1))}
    return RoutingError(Problem(503, text, KINDS[503], headers=wait))


def broken(text: str) -> RoutingError:
    """The process of the model failed."""
    return RoutingError(Problem(502, text, "server_error"))
