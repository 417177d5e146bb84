"""Parts that measurements of running servers share: the context that prompts need, the environment of a server, and
the order of turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from uad.base.config.flags import CONTEXT, DRAFT, FLAGS, GROUPS, LOOKUP, MODEL, VARIABLE
from uad.tools.bench.workloads import WorkloadPrompt

OWN = (
    *("--model", "--model-draft", "--ctx-size", "--predict", "--batch-size", "--ubatch-size", "--parallel"),
    *("--ctx-size-draft", "--spec-share", "--cache-ram", "--cache-disk", "--cache-disk-size"),
    *("--hf-repo", "--hf-file", "--hf-repo-draft"),
)
"""Flags of `uad serve` that measurements set themselves."""
_SERVED = (MODEL, CONTEXT, DRAFT, LOOKUP)
_TEMPLATE_ROOM = 256
_ROOM_PER_TOKEN = 4


def context_for(prompts: Iterable[WorkloadPrompt], max_tokens: int) -> int:
    """Tokens of context that hold the longest prompt and its answer in any vocabulary, in steps of 256."""
    room = max(prompt.n_bytes for prompt in prompts) + _TEMPLATE_ROOM + _ROOM_PER_TOKEN * max_tokens
    return -(-room // 256) * 256


def served_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: variables count for the flags that a measurement leaves alone."""
    ours = [flag for group in _SERVED for flag in GROUPS[group] if flag.name not in OWN]
    others = {name for flag in FLAGS if flag not in ours for name in flag.variables}
    others |= {name.replace(VARIABLE, f"{VARIABLE}NO_") for name in others}
    return {name: value for name, value in environ.items() if name not in others}


def turns(n_arms: int, repeats: int, backwards: bool = False) -> Iterator[int]:
    """The order in which arms run: A B C C B A A B C …, or C B A A B C …, so that a machine that drifts favours none.

    With an odd number of repeats one direction is run once more: turn every second group round to even that out, too.
    """
    for repeat in range(repeats):
        yield from range(n_arms) if (repeat % 2 == 1) is backwards else reversed(range(n_arms))
