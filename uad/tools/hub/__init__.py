"""Models that lie on a Hugging Face hub: which file is meant, and how it gets into the local cache."""

from uad.tools.hub.fetch import fetched, path_on

__all__ = ["fetched", "path_on"]
