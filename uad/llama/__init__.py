"""Thin owners of llama.cpp's handles: models, contexts, samplers. Knows no drafting, no requests and no text."""

import uad.llama.backend  # noqa: F401 - before llama_cpp: where that cannot be loaded, it says why in one line
