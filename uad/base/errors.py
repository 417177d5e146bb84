"""The family of errors that users may see, each with a stable code.

Knows nothing of HTTP or of exit codes: `uad.http.apis` and `uad.tools.cli` translate. Every message names the thing
that is wrong and, where there is one, the way out.
"""

from __future__ import annotations

from typing import Self


class UadError(Exception):
    """Base of every expected failure. `code` is stable across releases; the text is for people."""

    code = "internal_error"


class ConfigError(UadError):
    """A flag, environment variable or configuration file is wrong."""

    code = "invalid_config"


class AddressError(ConfigError):
    """The server cannot listen on its host and port."""


class ModelLoadError(UadError):
    """A model file is missing, not a GGUF, truncated, or of a kind that cannot be used in its role."""

    code = "model_load_failed"


class MappingError(UadError):
    """A mapping file or a replacement rule is wrong; the text names file, line and what was expected."""

    code = "invalid_mapping"


class RequestError(UadError):
    """Base of what may be wrong with a request. `param` is the offending field, spelled as in the request."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    @classmethod
    def at(cls, param: str, why: str) -> Self:
        """The error of one field, whose name the message begins with."""
        return cls(f"{param}: {why}", param)


class InvalidRequestError(RequestError):
    """A request asks for something impossible."""

    code = "invalid_request"


class ContextOverflowError(InvalidRequestError):
    """The prompt does not fit into the context of a slot. Counts are in tokens; n_prompt_tokens is the least possible
    number where it was refused before it was tokenized.
    """

    code = "context_length_exceeded"

    def __init__(self, n_prompt_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the request exceeds the available context size: {n_prompt_tokens} prompt tokens, n_ctx is {n_ctx}; "
            "shorten the prompt or start the server with a larger --ctx-size",
            "prompt",
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class NotSupportedError(RequestError):
    """A known feature of other servers that this one does not have; the text says what to use instead."""

    code = "not_supported"


class UnavailableError(UadError):
    """The server cannot take the request now: loading, shutting down, or stopped by a fatal error."""

    code = "unavailable"


class SlowReaderError(UadError):
    """The client read its stream so slowly that the bounded queue overflowed; the request was cancelled."""

    code = "slow_reader"


class DecodeError(UadError):
    """llama.cpp refused a batch for a reason without a remedy here."""

    code = "decode_failed"


class NoKvRoomError(DecodeError):
    """`llama_decode` found no KV room for the batch (return code 1)."""

    code = "no_kv_room"


class AbortedError(DecodeError):
    """`llama_decode` was aborted by its callback (return code 2)."""

    code = "aborted"
