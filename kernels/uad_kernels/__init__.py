"""The shared library of uad's kernels for CPUs: where it lies, and which version it is. Loads nothing."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["__version__", "library"]

try:
    __version__ = version("uad-kernels")
except PackageNotFoundError:  # used from a folder that was not installed
    __version__ = "unknown"


def library() -> Path:
    """The library's file."""
    return Path(__file__).with_name("libuad_kernels.so")
