"""Sampling parameters as the list of stages that llama.cpp runs, in llama.cpp's order, without those that would do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from uad.types import SamplingParams


@dataclass(frozen=True, slots=True)
class LogitBias:
    """Adds to the logits of single ids; -inf bans."""

    bias: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Penalties:
    """Lowers what was said in the last n ids."""

    last_n: int
    repeat: float
    frequency: float
    presence: float


@dataclass(frozen=True, slots=True)
class TopK:
    k: int


@dataclass(frozen=True, slots=True)
class Typical:
    p: float


@dataclass(frozen=True, slots=True)
class TopP:
    p: float


@dataclass(frozen=True, slots=True)
class MinP:
    p: float


@dataclass(frozen=True, slots=True)
class Temperature:
    t: float


Stage = LogitBias | Penalties | TopK | Typical | TopP | MinP | Temperature


def stages(params: SamplingParams, eog: frozenset[int], n_ctx: int) -> list[Stage]:
    """The stages for params. A greedy choice needs only those that can change which id is the likeliest."""
    chain: list[Stage] = []
    bias = params.logit_bias + tuple((id_, float("-inf")) for id_ in sorted(eog) if params.ignore_eos)
    if bias:
        chain.append(LogitBias(bias))
    last_n = n_ctx if params.repeat_last_n < 0 else min(params.repeat_last_n, n_ctx)  # llama.cpp makes a ring of as many
    if last_n and (params.repeat_penalty != 1 or params.frequency_penalty or params.presence_penalty):
        chain.append(Penalties(last_n, params.repeat_penalty, params.frequency_penalty, params.presence_penalty))
    if params.temperature <= 0:
        return chain
    if params.top_k > 0:
        chain.append(TopK(params.top_k))
    if params.typical_p < 1:
        chain.append(Typical(params.typical_p))
    if params.top_p < 1:
        chain.append(TopP(params.top_p))
    if params.min_p > 0:
        chain.append(MinP(params.min_p))
    if params.temperature != 1:
        chain.append(Temperature(params.temperature))
    return chain
