"""Sampling parameters as the stages that llama.cpp runs, in its order, without those that would do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.common.samplers import SAMPLERS, SETTINGS, SamplerEntry
from uad.types import SamplingParams

_REACH = "repeat_last_n"  # the field that penalties begin with
_TYPICAL = "typical_p"


@dataclass(frozen=True, slots=True)
class LogitBias:
    """Adds to the logits of single ids; -inf bans."""

    bias: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SamplerStage:
    """A sampler with the arguments of its constructor. `chance`: with which probability it acts at a position."""

    sampler: SamplerEntry
    args: tuple[float, ...]
    chance: float = 1.0


Stage = LogitBias | SamplerStage


def stages(params: SamplingParams, eog: frozenset[int], n_ctx: int) -> list[Stage]:
    """The stages for params. A greedy choice needs them up to the last that can change which id is the likeliest.

    eog: ids that `ignore_eos` bans; n_ctx: ids that a text can have.
    """
    bias = params.logit_bias + tuple((id_, float("-inf")) for id_ in sorted(eog) if params.ignore_eos)
    chain = [_stage(sampler, params, n_ctx) for sampler in SAMPLERS if _is_on(sampler, params)]
    if params.temperature <= 0:
        n = max((i for i, stage in enumerate(chain, 1) if stage.sampler.changes_best), default=0)
        chain = chain[:n]
    return [*([LogitBias(bias)] if bias else []), *chain]


def reach(chain: Sequence[Stage]) -> int:
    """How many of the last ids must be remembered for these stages."""
    return max(
        (int(one.args[0]) for one in chain if isinstance(one, SamplerStage) and _REACH in SAMPLERS[one.sampler]),
        default=0,
    )


def is_typical(chain: Sequence[Stage]) -> bool:
    """Whether a stage takes logarithms of probabilities: a banned id would make NaN of them."""
    return any(isinstance(one, SamplerStage) and _TYPICAL in SAMPLERS[one.sampler] for one in chain)


def _is_on(sampler: SamplerEntry, params: SamplingParams) -> bool:
    """Whether one of its fields has a value that is not off. Penalties need something to look back on as well."""
    names = SAMPLERS[sampler]
    has_reach = _REACH not in names or params.repeat_last_n != 0
    return has_reach and any(getattr(params, name) not in SETTINGS[name].off for name in names if SETTINGS[name].off)


def _stage(sampler: SamplerEntry, params: SamplingParams, n_ctx: int) -> SamplerStage:
    # llama.cpp makes a ring of as many
    last_n = n_ctx if params.repeat_last_n < 0 else min(params.repeat_last_n, n_ctx)
    args = tuple(last_n if name == _REACH else getattr(params, name) for name in SAMPLERS[sampler])
    return SamplerStage(sampler, (1.0, *args[1:]), args[0]) if sampler.by_chance else SamplerStage(sampler, args)
