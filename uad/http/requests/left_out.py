"""Members of requests that have no effect here. Members that are left out knowingly stand in the table of their API,
and the log has a line for each, once. Others that may hold content are refused by name: none is lost in silence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from pydantic import AliasChoices

from uad.base.errors import InvalidRequestError
from uad.http.requests.message_fields import Body

log = logging.getLogger("uad.server")
_NOTHING: tuple[object, ...] = (None, "", [], False)
_MOST_CHARS = 64  # of a name that a client made up


@lru_cache(256)
def leave_out(where: str, what: str, why: str) -> None:
    """Say that `what`, which stands at `where` in a request, is left out."""
    log.warning("%s: %s is left out: %s", where, what, why)


def account_for(
    given: Mapping[str, object],
    read: Collection[str],
    table: Mapping[str, str],
    api: str,
    where: str = "",
    usual: Callable[[str], str] = str,
) -> None:
    """Account for the members of an object of a request that are not `read`. Raises InvalidRequestError for the first
    that may hold content, a text, a list or an object, and is not in the table.

    table: from `parent.member`, or `member` at the top, to why it is left out; the parent is the last name of `where`.
    api: the route for the log. usual: from a member's name to how the table spells it.
    """
    for name, value in given.items():
        if name in read or value in _NOTHING:
            continue
        shown = name if len(name) <= _MOST_CHARS else f"{name[:_MOST_CHARS]}…"
        path = [part for part in where.split(".") if part and not part.isdigit()]
        why = table.get(".".join((*path[-1:], usual(name))))
        if why is None and isinstance(value, str | list | dict) and value:
            place = f"{where}.{shown}" if where else shown
            raise InvalidRequestError.at(place, "is not read by this server, and would be lost; leave it out")
        leave_out(api, repr(".".join((*path, shown))), why or "no such member is known here")


def account_for_body(
    given: Mapping[str, object],
    body: Body,
    table: Mapping[str, str],
    api: str,
    where: str = "",
    usual: Callable[[str], str] = str,
    more: Collection[str] = (),
) -> None:
    """The same for the object that `body` was made of, and for the bodies in it. more: names that are read beside."""
    account_for(given, names_of(type(body)) | frozenset(more), table, api, where, usual)
    for field in type(body).model_fields:
        inner = getattr(body, field)
        for name in _names(type(body), field) if isinstance(inner, Body) else ():
            if isinstance(members := given.get(name), dict):
                place = f"{where}.{usual(name)}" if where else usual(name)
                account_for_body(members, inner, table, api, place, usual)


@lru_cache
def names_of(kind: type[Body]) -> frozenset[str]:
    """All names that the fields of a body go by."""
    return frozenset(name for field in kind.model_fields for name in _names(kind, field))


def _names(kind: type[Body], field: str) -> list[str]:
    alias = kind.model_fields[field].validation_alias
    return [*map(str, alias.choices)] if isinstance(alias, AliasChoices) else [str(alias or field)]
