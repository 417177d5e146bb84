"""Settings of all tests: speed is measured by `uad bench`, never by a deadline in a test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("uad", deadline=None)
settings.load_profile("uad")
