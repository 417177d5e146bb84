"""Settings of all tests: speed is measured by `uad bench`, never by a deadline in a test; side by side, each process has one thread."""

from __future__ import annotations

import os

from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before llama.cpp is loaded, here or in a process that a test starts: teams of OpenMP threads that share cores wait for each other.
    os.environ.setdefault("OMP_THREAD_LIMIT", "1")

settings.register_profile("uad", deadline=None)
settings.load_profile("uad")
