"""What goes wrong with a hub, in words that name the way out."""

from __future__ import annotations

from http import HTTPStatus

from uad.errors import ConfigError

_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class NoHubError(ConfigError):
    """The hub does not answer, or not now: what is in the cache may serve."""


def told(error: Exception, repo: str, endpoint: str) -> ConfigError:
    """The complaint about a call of huggingface_hub that raised `error`."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return ConfigError(
                f"{repo} is gated: accept its terms at {endpoint}/{repo}, "
                "then give a token of that account with --hf-token or HF_TOKEN"
            )
        case errors.RepositoryNotFoundError():
            return ConfigError(
                f"there is no repository {repo} at {endpoint}, or it is private; "
                "check the name, or give a token with --hf-token or HF_TOKEN"
            )
        case errors.RemoteEntryNotFoundError():
            return ConfigError(f"{repo} changed while it was read: {_first_line(error)}; start again")
        case errors.HfHubHTTPError():
            return _of_status(error.response.status_code, repo, endpoint)
        case errors.LocalEntryNotFoundError() | errors.OfflineModeIsEnabled():
            return NoHubError(f"{endpoint} cannot be reached for {repo}")
        case OSError() if error.strerror:
            return ConfigError(f"{repo} cannot be stored: {error.strerror}")
        case _:
            return NoHubError(
                f"{endpoint} cannot be reached for {repo} ({type(error).__name__}: {_first_line(error)}); "
                "start again to go on, or give a local file with --model"
            )


def _of_status(status: int, repo: str, endpoint: str) -> ConfigError:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ConfigError(f"{endpoint} refuses {repo} to this token (status {status}); check --hf-token or HF_TOKEN")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return NoHubError(f"{endpoint} does not hand out {repo} now (status {status}); start again later")
    return ConfigError(f"{endpoint} answers status {status} for {repo}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".:") or "no reason given"
