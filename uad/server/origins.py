"""Who wrote which token, in the chunks of a stream whose request has `return_origins`. Events in, JSON texts out."""

from __future__ import annotations

from collections.abc import Sequence

from uad.apis.outcome import Json
from uad.common.json_out import with_member
from uad.events import TokenText


class OriginTeller:
    """Puts the tokens of each sequence into its next chunk. A piece may have no chunk: its tokens wait for one."""

    def __init__(self, n: int) -> None:
        self._waiting: list[list[TokenText]] = [[] for _ in range(n)]

    def put(self, index: int, tokens: Sequence[TokenText], texts: list[str]) -> list[str]:
        """The chunks of a piece, each with its token where there are as many; else the first has all that wait."""
        waiting = self._waiting[index]
        if not waiting and len(tokens) == len(texts):
            pairs = zip(texts, tokens, strict=True)
            return [with_member(text, "origins", [_token(one)]) for text, one in pairs]
        waiting += tokens
        if not waiting or not texts:
            return texts
        told = with_member(texts[0], "origins", [_token(one) for one in waiting])
        waiting.clear()
        return [told, *texts[1:]]


def _token(one: TokenText) -> Json:
    token: Json = {"text": one.text, "by": one.origin}
    return token | {"rejected": one.rejected} if one.rejected else token
