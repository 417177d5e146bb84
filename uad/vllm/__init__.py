"""uad's drafters inside vLLM (docs/vllm.md). Importing it loads neither vLLM nor llama.cpp: vLLM asks for the class."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`Proposer`, loaded when it is asked for."""
    if name == "Proposer":
        from uad.vllm.proposer import Proposer

        return Proposer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
