"""Where uad keeps what it has measured and proven on a machine."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from uad.base.common.files import path_of
from uad.base.errors import ConfigError


def cache_folder() -> Path:
    """$UAD_CACHE_DIR if set, else the user's cache directory; it need not exist. Raises ConfigError for a user without
    a home.
    """
    given = os.environ.get("UAD_CACHE_DIR")
    try:
        return path_of(given) if given else user_cache_path("uad", appauthor=False)
    except RuntimeError:
        raise ConfigError("this user has no home directory; set UAD_CACHE_DIR to a directory") from None
