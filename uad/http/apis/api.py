"""An API as the rest of the server sees it: its routes, its errors, and where it has keys. Each is one file, and one
line in `listed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uad.base.common.json_out import dumps, frame
from uad.http.apis.dialect import AtOnce, Dialect, JsonMembers, Served, Translated
from uad.http.apis.problems import Problem
from uad.http.requests.chat import Reading
from uad.http.requests.generation import Backend
from uad.http.requests.job import Job


@dataclass(frozen=True, slots=True)
class Called:
    """A request without its body. path: the parts of its path that a route leaves open, by their names."""

    headers: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


BODY_ONLY = Called()
"""The call of a request that says all in its body."""
ReadBody = Callable[[Mapping[str, object], Called], Translated[Any] | AtOnce]
"""A request of its members. Raises InvalidRequestError, NotSupportedError or ValidationError."""


@dataclass(frozen=True, slots=True)
class AnswerRoute:
    """A route that generates: how its requests are read, and in which form they are answered."""

    read: ReadBody
    dialect: Callable[[Job, Served, Reading, Any], Dialect]
    """The last is what `Translated.own` is."""
    takes_pictures: bool = True


@dataclass(frozen=True, slots=True)
class CountRoute:
    """A route that says how many ids a prompt has. counted: its answer."""

    read: ReadBody
    counted: Callable[[int], JsonMembers]


@dataclass(frozen=True, slots=True)
class EmbedRoute:
    """A route that embeds or ranks; read: as `embeddings.EmbedAsk`, or an answer for which nothing is embedded."""

    read: Callable[[Mapping[str, object], Called], Any]


@dataclass(frozen=True, slots=True)
class About:
    """Facts about the server that a route may tell. names: all that the model goes by; started, expires_at: seconds
    since 1970, None for a model that stays loaded; asked: members of the body, or parts of the path.
    """

    engine: Backend
    names: tuple[str, ...]
    started: int
    expires_at: float | None
    asked: Mapping[str, object]


ServerAnswer = Callable[[About], JsonMembers]
"""Builds a route's answer about the server. Raises ValidationError, InvalidRequestError or UnknownModelError."""


@dataclass(frozen=True)
class Api:
    """An API: its routes by path, and what all of them have in common."""

    answers: Mapping[str, AnswerRoute] = field(default_factory=dict)
    counts: Mapping[str, CountRoute] = field(default_factory=dict)
    embeds: Mapping[str, EmbedRoute] = field(default_factory=dict)
    facts: Mapping[str, ServerAnswer] = field(default_factory=dict)
    """Routes about the server that are asked by GET."""
    facts_of: Mapping[str, ServerAnswer] = field(default_factory=dict)
    """The same by POST, with a body that says what is asked. They may take long: for worker threads."""
    shared: tuple[str, ...] = ()
    """Paths of another API that are this one's, with all below them, for requests with one of `marks`."""
    marks: tuple[str, ...] = ()
    """Headers by which its clients are known there."""
    absent: tuple[str, ...] = ()
    """Routes that only other servers have, by any method."""
    owns: Callable[[str], bool] = lambda path: False
    """Whether errors of a path are its own, also of one that no route has, and below a prefix."""
    error: Callable[[Problem, str], JsonMembers] = lambda problem, name: problem.body()
    """The body of an error of the request with this name."""
    event: Callable[[str], bytes] = frame
    """Encodes the JSON text of a frame for a stream."""
    broken: Callable[[Problem], JsonMembers] = Problem.body
    """The last frame of a stream that breaks off, where no dialect made the frames before it."""
    key_headers: tuple[str, ...] = ()
    key_params: tuple[str, ...] = ()
    """Where a query of its paths may have the key."""
    id_headers: tuple[str, ...] = ()
    """Headers in which answers have the name of the request, beside the one that all have."""

    def is_asked(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request for one of the shared paths is of this API's clients."""
        is_shared = any(path == shared or path.startswith(f"{shared}/") for shared in self.shared)
        return is_shared and any(mark in headers for mark in self.marks)

    def last_words(self, problem: Problem) -> bytes:
        """How a stream ends that is passed on from another process and breaks off."""
        return self.event(dumps(self.broken(problem)))
