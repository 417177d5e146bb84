"""Files of a hub in the local cache: **the only importer of huggingface_hub**, whose cache other programs share.

Downloads go on where an earlier one ended, also one of another process. Without a network what is in the cache serves.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Self

from uad.base.common.files import is_file, is_folder, is_there, path_of, size_text
from uad.base.config import Config, HubConfig, HubModel, ModelConfig
from uad.base.console import Report
from uad.base.errors import ConfigError, UadError
from uad.tools.hub.choose import choose, parts, projector

_PATIENCE_S = 10.0  # seconds to wait for a hub that does not answer
_SHA256 = 64  # hexadecimal digits
_log = logging.getLogger("uad")


def fetched(config: Config, report: Report, sees: bool = False) -> Config:
    """The configuration with models of hubs in local files; nothing is imported without such models. sees: with the
    projector that the target's repository has, unless one is named or none is wanted.

    report(what, share) is called in long downloads. Raises ConfigError with the way out.
    """
    hub, vision = config.target.hub, config.vision
    if sees and hub is not None and vision.auto and vision.path is None:
        try:
            vision = replace(vision, path=_Repository(hub, config.hub).projector(report), is_found=True)
        except Exception as error:  # the target says what is wrong with the hub
            _log.warning("images are not seen: a projector of %s cannot be fetched (%s)", hub.repo, error)
    config = replace(config, vision=vision, target=local(config.target, config.hub, report))
    return config.with_drafts([local(draft, config.hub, report) for draft in config.drafts])


def local(model: ModelConfig, hub: HubConfig, report: Report) -> ModelConfig:
    """The same model in a local file. Raises ConfigError with the way out."""
    return model if model.hub is None else replace(model, path=path_on(model.hub, hub, report), hub=None)


def path_on(model: HubModel, hub: HubConfig, report: Report) -> Path:
    """The local file of a model on a hub, of a split one the first part. Raises ConfigError with the way out."""
    return _Repository(model, hub).fetch(report)


def cache_folder() -> Path:
    """Where downloads are kept: llama.cpp's variable, then those of huggingface_hub."""
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if given := os.environ.get(name):
            return path_of(given)
    given = os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME")
    home = os.environ.get("HF_HOME") or Path(given or "~/.cache") / "huggingface"
    try:
        return path_of(os.path.expandvars(home)) / "hub"
    except ConfigError:
        if given:
            raise
        raise ConfigError("this user has no home directory for downloads; set HF_HOME to a directory") from None


class _Repository:
    """One repository: its files there, and those of them that are here."""

    def __init__(self, model: HubModel, hub: HubConfig) -> None:
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what it warns about is said in our words
        self._model = model
        self._is_offline = hub.offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        self._token = hub.token
        self._endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._cache = cache_folder()
        self._folder = self._cache / f"models--{model.repo.replace('/', '--')}"

    def fetch(self, report: Report) -> Path:
        """The local path of the file to load. Raises ConfigError."""
        if self._is_offline:
            return self._cached("--offline")
        try:
            names = self._names()
        except NoHubError as error:
            try:
                path = self._cached("no network")
            except UadError:
                raise error from None
            _log.warning("%s; %s is used as it is in the cache", error, path.name)
            return path
        wanted = parts(choose(self._model, names), names, self._model.repo)
        places = [self._bring(name, report) for name in wanted]
        return places[0]  # llama.cpp finds the other parts beside it

    def projector(self, report: Report) -> Path | None:
        """The local path of the projector beside that file; None without one. Raises ConfigError."""
        try:
            names = [] if self._is_offline else self._names()
        except NoHubError:
            names = []
        snapshot, cached = self._cached_names()
        known = names or cached
        name = projector(choose(self._model, known), known) if known else None
        if name is None:
            return None
        return snapshot / name if not names and snapshot is not None else self._bring(name, report)

    # --- what is here

    def _cached_names(self) -> tuple[Path | None, list[str]]:
        """The folder of the revision that was fetched last, and what is in it."""
        snapshot = self._snapshot()
        if snapshot is None:
            return None, []
        files = (path for path in snapshot.rglob("*") if is_file(path))  # a link whose blob is gone is no file
        return snapshot, sorted(path.relative_to(snapshot).as_posix() for path in files)

    def _cached(self, why: str) -> Path:
        snapshot, names = self._cached_names()
        if snapshot is None or not names:
            raise ConfigError(
                f"{self._model.repo} is not in the cache {self._cache} ({why}); start once with a network"
            )
        name = parts(choose(self._model, names), names, self._model.repo)[0]
        return snapshot / name

    def _snapshot(self) -> Path | None:
        """The folder of the revision that was fetched last."""
        ref, snapshots = self._folder / "refs" / "main", self._folder / "snapshots"
        try:
            if is_file(ref) and is_folder(named := snapshots / ref.read_text().strip()):
                return named
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read (%s): the newest snapshot beside it is used", ref, error)
        try:
            every = [path for path in snapshots.iterdir() if is_folder(path)] if is_folder(snapshots) else []
            return max(every, key=lambda path: path.stat().st_mtime, default=None)
        except OSError as error:
            raise ConfigError(
                f"{snapshots} cannot be read ({error.strerror}); set HF_HUB_CACHE to a directory"
            ) from None

    # --- what is there

    def _names(self) -> list[str]:
        from huggingface_hub import HfApi

        try:
            info = HfApi(endpoint=self._endpoint, token=self._token).model_info(self._model.repo, timeout=_PATIENCE_S)
            return [file.rfilename for file in info.siblings or ()]
        except Exception as error:  # its transport's exceptions are no part of its API
            raise complaint(error, self._model.repo, self._endpoint) from error

    def _bring(self, name: str, report: Report) -> Path:
        """One file of the repository in the cache, complete."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.constants import MAX_HTTP_DOWNLOAD_SIZE

        repo = self._model.repo
        try:
            url = hf_hub_url(repo, name, endpoint=self._endpoint)
            facts = get_hf_file_metadata(url, token=self._token, endpoint=self._endpoint)
            # larger ones are left to hf_hub_download, which has another protocol for them
            if facts.etag and facts.size and facts.size <= MAX_HTTP_DOWNLOAD_SIZE:
                self._download(url, name, facts.etag, facts.size, report)
            place = hf_hub_download(
                repo, name, cache_dir=self._cache, token=self._token, endpoint=self._endpoint, library_name="uad"
            )
        except ConfigError:
            raise
        except Exception as error:
            raise complaint(error, repo, self._endpoint) from error
        return Path(place)

    def _download(self, url: str, name: str, etag: str, size: int, report: Report) -> None:
        """The file's bytes among the cache's blobs, where hf_hub_download takes them from.

        It has no partial files of its own that outlive a process; ours have.
        """
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        blob = self._folder / "blobs" / etag
        what = f"fetching {name.rpartition('/')[2]} ({size_text(size)})"
        if is_there(blob):
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        lock = self._cache / ".locks" / self._folder.name / f"{etag}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if is_there(blob):  # another process brought it while this one waited
                return
            part = blob.with_name(f"{etag}.uad-part")
            with part.open("r+b" if is_there(part) else "w+b") as file:
                resumed = self._receive(file, url, size, lambda share: report(what, share))
                file.seek(0)
                # one that came in one go is checked by its size; a part may be of a file that has changed since
                if resumed and len(etag) == _SHA256 and hashlib.file_digest(file, "sha256").hexdigest() != etag:
                    file.truncate(0)
                    raise ConfigError(f"{name}: what was downloaded is damaged and was dropped; start again")
            os.replace(part, blob)

    def _receive(self, file: BinaryIO, url: str, size: int, report: Callable[[float], None]) -> bool:
        """Write the rest of a file; whether some of it was there before. Raises what huggingface_hub raises."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers = build_hf_headers(token=self._token, library_name="uad")
        before = n_had = _end(file, size)
        while True:
            try:
                http_get(url, file, resume_size=n_had, headers=headers, expected_size=size, tqdm_class=_meter(report))
                break
            except Exception:  # of its transport; as long as each try brings something, it is worth another one
                n_now = _end(file, size)
                if n_now <= n_had:
                    raise
                n_had = n_now
        report(1.0)
        return before > 0


def _meter(report: Callable[[float], None]) -> Any:
    """A class as http_get wants one of tqdm: it gets the size of each piece."""

    class DownloadMeter:
        def __init__(self, total: int | None = None, initial: int = 0, **_: object) -> None:
            self._total, self._n = total or 1, initial

        def update(self, n: int) -> None:
            self._n += n
            report(min(self._n / self._total, 1.0))

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    return DownloadMeter


def _end(file: BinaryIO, size: int) -> int:
    """Go to the end of what was received; if that is longer than the file should be, all of it is dropped."""
    n = file.seek(0, os.SEEK_END)
    if n > size:
        file.truncate(0)
        n = file.seek(0)
    return n


_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class NoHubError(ConfigError):
    """The hub does not answer, or not now: what is in the cache may serve."""


def complaint(error: Exception, repo: str, endpoint: str) -> ConfigError:
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
