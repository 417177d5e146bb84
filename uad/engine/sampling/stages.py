"""Sampling parameters as stages in the order that they ask for, without those that would do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from uad.base.common.samplers import BY_NAME, INFILL, MIROSTAT, SAMPLERS, SETTINGS, SamplerEntry
from uad.base.types import SamplingParams

_LAST_N = ("repeat_last_n", "dry_penalty_last_n")  # fields that say how far to look back; 0 is off, -1 the context
_ONE_ID = 1  # fewest ids that a stage leaves
TOP_K = BY_NAME["top_k"]
_MOST_IDS = 128  # that llama.cpp's infill may get: it compares the texts of all pairs of them


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
    try:
        return list(_known(params, eog, n_ctx))
    except TypeError:  # a list among the params is no key
        return list(_stages(params, eog, n_ctx))


@lru_cache(maxsize=64)  # most requests of a server have the same settings
def _known(params: SamplingParams, eog: frozenset[int], n_ctx: int) -> tuple[Stage, ...]:
    return _stages(params, eog, n_ctx)


def _stages(params: SamplingParams, eog: frozenset[int], n_ctx: int) -> tuple[Stage, ...]:
    bias = params.logit_bias + tuple((id_, float("-inf")) for id_ in sorted(eog) if params.ignore_eos)
    chain = [_stage(sampler, params, n_ctx) for sampler in _order(params) if _is_on(sampler, params)]
    if params.is_greedy:
        n = next((i for i, stage in enumerate(chain) if stage.sampler.name == "temperature"), len(chain))
        n = max((i for i, stage in enumerate(chain[:n], 1) if stage.sampler.changes_best), default=0)
        chain = chain[:n]
    return (*([LogitBias(bias)] if bias else []), *_bounded(chain))


def reach(chain: Sequence[Stage]) -> int:
    """How many of the last ids must be remembered for these stages of llama.cpp."""
    return max(
        (int(stage.args[0]) for stage in chain if isinstance(stage, SamplerStage) and stage.sampler.counts), default=0
    )


def most_kept(chain: Sequence[Stage]) -> int:
    """How many ids a chain keeps that begins with top_k; 0: it begins with something else."""
    first = chain[0] if chain else None
    if isinstance(first, SamplerStage) and first.sampler is TOP_K and first.chance >= 1:
        return int(first.args[0])
    return 0


def _bounded(chain: Sequence[SamplerStage]) -> Iterator[SamplerStage]:
    """The same; before one whose time grows with the square of its ids only the likeliest are kept."""
    for stage in chain:
        if stage.sampler is INFILL:
            yield SamplerStage(TOP_K, (_MOST_IDS,))
        yield stage


def _order(params: SamplingParams) -> list[SamplerEntry]:
    """llama.cpp's rules: mirostat stands alone after the temperature, and adaptive-p, which draws, is the last."""
    if params.mirostat:
        return [BY_NAME["temperature"], MIROSTAT]
    order = [BY_NAME[name] for name in params.samplers]
    draws = [stage for stage in dict.fromkeys(order) if stage.draws]
    return [*(stage for stage in order if not stage.draws), *draws]


def _is_on(sampler: SamplerEntry, params: SamplingParams) -> bool:
    """Whether one of its fields has a value that is not off; and it has something to look back on, if it does so."""
    names = SAMPLERS[sampler]
    is_blind = any(getattr(params, name) == 0 for name in names if name in _LAST_N)
    switches = [name for name in names if SETTINGS[name].off]
    return not is_blind and (not switches or any(not SETTINGS[name].is_off(getattr(params, name)) for name in switches))


def _stage(sampler: SamplerEntry, params: SamplingParams, n_ctx: int) -> SamplerStage:
    args = tuple(_value(name, params, n_ctx) for name in SAMPLERS[sampler])
    kept = (max(params.min_keep, _ONE_ID),) if sampler.keeps else ()
    if sampler.by_chance:
        return SamplerStage(sampler, (1.0, *args[1:], *kept), args[0])
    return SamplerStage(sampler, (*args, *kept))


def _value(name: str, params: SamplingParams, n_ctx: int) -> float:
    value: float = getattr(params, name)
    if name not in _LAST_N:
        return value
    return n_ctx if value < 0 else min(value, n_ctx)  # llama.cpp makes a ring of as many
