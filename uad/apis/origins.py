"""Which drafter wrote which token, and the tokens' ids, in the chunks of a stream whose request has `return_origins` or
`return_token_ids`. Events in, JSON texts out.
"""

from __future__ import annotations

from collections.abc import Sequence

from uad.common.json_out import Json, has_choice, with_choice_member, with_member
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


class IdTeller:
    """Puts the ids of each sequence into its next chunk, as vLLM does: the prompt's into the first, into its choice or
    beside that. A piece may have no chunk: its ids wait for one.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], in_choice: bool) -> None:
        self._with_prompt = with_choice_member if in_choice else with_member
        self._prompts: list[Sequence[int] | None] = list(prompts)
        self._waiting: list[list[int]] = [[] for _ in prompts]

    def begin(self, index: int, texts: list[str]) -> list[str]:
        """The first chunks of a sequence, which stand for no ids of its answer."""
        prompt = self._prompts[index]
        if prompt is None or not texts:
            return texts
        self._prompts[index] = None
        return [self._with_prompt(texts[0], "prompt_token_ids", prompt), *texts[1:]]

    def put(self, index: int, ids: Sequence[int], texts: list[str]) -> list[str]:
        """The chunks of a piece: the first of those that have a choice has all ids that wait."""
        waiting, told = self._waiting[index], []
        waiting += ids
        for text in texts:
            if has_choice(text):
                told.append(with_choice_member(text, "token_ids", waiting))
                waiting.clear()
            else:
                told.append(text)
        return self.begin(index, told)


def _token(one: TokenText) -> Json:
    token: Json = {"text": one.text, "by": one.origin}
    return token | {"rejected": one.rejected} if one.rejected else token
