"""Settings of a request as answers repeat them, under llama-server's names: sampling, draft control, limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uad.base.common.json_out import Json
from uad.base.common.samplers import SETTINGS
from uad.base.types import Origin, Request, SamplingParams, SpeculativeParams
from uad.http.requests.fields import REQUEST_ROWS
from uad.http.requests.job import Job


def settings_json(job: Job, request: Request, seed: int | None) -> Json:
    """`generation_settings` of one request of a job, with the seed that was drawn."""
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    return {
        **sampling_json(request.sampling, seed, _banned(job, request)),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        **{row.name or name: getattr(request, name) for name, row in REQUEST_ROWS.items() if row.is_echoed},
        **speculative_json(request.speculative, job.drafters),
    }


def _banned(job: Job, request: Request) -> list[int]:
    """The ends that `ignore_eos` bans: not those that the request itself stops at."""
    asked = {id_ for id_, name in job.eog.items() if name and any(name in word for word in request.stop)}
    return [id_ for id_ in job.eog if request.sampling.ignore_eos and id_ not in asked | set(request.stop_token_ids)]


def speculative_json(params: SpeculativeParams, drafters: Sequence[Origin]) -> Json:
    """Draft control under the flat names that llama-server has or once had. drafters: those that draft with it."""
    return {
        "speculative.enabled": params.enabled,
        "speculative.n_max": params.longest,
        "speculative.n_min": params.n_min,
        "speculative.p_min": params.p_min,
        "speculative.policy": params.policy,
        "speculative.types": ",".join(drafters) or "none",
    }


def sampling_json(params: SamplingParams, seed: int | None, banned: Sequence[int] = ()) -> Json:
    """Sampling parameters under llama-server's names. banned: ends that `ignore_eos` bans. A ban is null, as there."""
    biases = (*params.logit_bias, *((id_, -math.inf) for id_ in banned))
    return {
        "seed": -1 if seed is None else seed,
        **{name: getattr(params, name) for name in SETTINGS},
        "dry_sequence_breakers": params.dry_sequence_breakers,
        "ignore_eos": params.ignore_eos,
        "logit_bias": [{"token": id_, "bias": None if math.isinf(bias) else bias} for id_, bias in biases],
        "samplers": params.samplers,
    }
