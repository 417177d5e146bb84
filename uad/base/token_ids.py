"""Token ids of requests, which come from clients: the one check that all of them are of the vocabulary."""

from __future__ import annotations

from itertools import chain

from uad.base.errors import InvalidRequestError
from uad.base.types import Request


def check_ids(request: Request, n_vocab: int) -> None:
    """Raise InvalidRequestError for an id outside of the vocabulary, and for a banned word without ids. The field is
    called as clients call it.
    """
    sampling = request.sampling
    if not all(sampling.bad_words):
        raise InvalidRequestError.at("bad_words_ids", "a list in it is empty")
    for field, ids in (
        ("prompt", request.text_ids),
        ("stop_token_ids", request.stop_token_ids),
        ("allowed_token_ids", sampling.allowed),
        ("bad_words_ids", tuple(chain.from_iterable(sampling.bad_words))),
        ("logit_bias", tuple(id_ for id_, _ in sampling.logit_bias)),
    ):
        if ids and not 0 <= min(ids) <= max(ids) < n_vocab:
            raise InvalidRequestError.at(field, f"token ids must lie between 0 and {n_vocab - 1}")
