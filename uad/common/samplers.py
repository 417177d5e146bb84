"""The table of samplers. A sampler is a `SamplerEntry` here and its fields in `SamplingParams`; all else is made from
them.

That is: flags and variables (`config/flags`), request fields and answers (`server/`), the stages of a request
(`sampling/stages`), llama.cpp's constructor (`llama/samplers`), and the table in docs/http.md, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from uad.common.settings import INT32_MAX, Setting, settings_of


@dataclass(frozen=True, slots=True)
class SamplerEntry:
    """One stage of llama.cpp's chain.

    `native` is llama.cpp's constructor. It takes the size of the vocabulary (`takes_n_vocab`), the fields in their
    order, and `more`. `letter` and `aliases` are further names in a request's `samplers`. `changes_best`: whether it
    can change which id is the likeliest. `by_chance`: its first field is the probability that it acts at a position;
    `sampling/sampler` draws that, and llama.cpp is told 1.
    """

    name: str
    letter: str
    native: str
    more: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    changes_best: bool = False
    by_chance: bool = False
    takes_n_vocab: bool = False


_ONE_ID = 1  # fewest ids that a stage leaves
_PENALTIES = SamplerEntry("penalties", "e", "llama_sampler_init_penalties", changes_best=True, takes_n_vocab=True)
_TOP_N_SIGMA = SamplerEntry("top_n_sigma", "s", "llama_sampler_init_top_n_sigma")
_TOP_K = SamplerEntry("top_k", "k", "llama_sampler_init_top_k")
_TYPICAL = SamplerEntry("typ_p", "y", "llama_sampler_init_typical", (_ONE_ID,), ("typical_p", "typical"))
_TOP_P = SamplerEntry("top_p", "p", "llama_sampler_init_top_p", (_ONE_ID,), ("nucleus",))
_MIN_P = SamplerEntry("min_p", "m", "llama_sampler_init_min_p", (_ONE_ID,))
_XTC = SamplerEntry("xtc", "x", "llama_sampler_init_xtc", (_ONE_ID, 0), changes_best=True, by_chance=True)
_TEMPERATURE = SamplerEntry("temperature", "t", "llama_sampler_init_temp", (), ("temp",))


def _of(sampler: SamplerEntry, default: float, help: str, flags: str, low: float, high: float, **more: Any) -> Any:
    """A field of a sampler: see `Setting`."""
    return field(
        default=default, metadata={Setting: Setting(default, help, flags, low, high, **more), SamplerEntry: sampler}
    )


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How ids are chosen; names, meaning and defaults are llama-server's. Fields of samplers come first, in their
    order.

    `seed` None draws a fresh one per request. `logit_bias` maps id to an addend (-inf bans). A temperature of 0 or less
    is greedy.
    """

    repeat_last_n: int = _of(
        _PENALTIES, 64, "tokens that penalties look back on; 0 is off, -1 the context", "--repeat-last-n", -1, INT32_MAX
    )
    repeat_penalty: float = _of(
        *(_PENALTIES, 1.0, "penalty for repeated tokens; 1 is off", "--repeat-penalty", 0.01, 1000),
        off=(1.0,),
        metavar="X",
        env="REPEAT_PENALTY",
        aliases=("repetition_penalty",),
    )
    frequency_penalty: float = _of(
        *(_PENALTIES, 0.0, "penalty per time a token was seen; 0 is off", "--frequency-penalty", -1000, 1000),
        off=(0.0,),
        metavar="X",
        env="FREQUENCY_PENALTY",
    )
    presence_penalty: float = _of(
        *(_PENALTIES, 0.0, "penalty for tokens seen before; 0 is off", "--presence-penalty", -1000, 1000),
        off=(0.0,),
        metavar="X",
        env="PRESENCE_PENALTY",
    )
    top_n_sigma: float = _of(
        *(_TOP_N_SIGMA, -1.0, "keep tokens whose logit is within N standard deviations of the best; -1 is off"),
        *("--top-nsigma --top-n-sigma", -1, 1000),
        off=(-1.0, 0.0),
    )
    top_k: int = _of(
        *(_TOP_K, 40, "keep the K most likely tokens; 0 or -1 is off", "--top-k", -1, INT32_MAX),
        off=(0, -1),
        metavar="K",
        env="TOP_K",
    )
    typical_p: float = _of(
        *(_TYPICAL, 1.0, "locally typical sampling; 1 is off", "--typical --typical-p", 0, 1),
        off=(1.0,),
        metavar="P",
        aliases=("typ_p",),
    )
    top_p: float = _of(
        *(_TOP_P, 0.95, "keep the tokens that make up this probability; 1 is off", "--top-p", 0, 1),
        off=(1.0,),
        metavar="P",
        env="TOP_P",
    )
    min_p: float = _of(
        *(_MIN_P, 0.05, "drop tokens less likely than P times the best; 0 is off", "--min-p", 0, 1),
        off=(0.0,),
        metavar="P",
        env="MIN_P",
    )
    xtc_probability: float = _of(
        *(_XTC, 0.0, "chance at each token that XTC drops all likely tokens but the least likely of them; 0 is off"),
        *("--xtc-probability", 0, 1),
        off=(0.0,),
        metavar="P",
    )
    xtc_threshold: float = _of(
        _XTC, 0.1, "least probability of a token that XTC calls likely", "--xtc-threshold", 0, 1, metavar="P"
    )
    temperature: float = _of(
        *(_TEMPERATURE, 0.8, "temperature; 0 is greedy", "--temp --temperature", -1, 1000),
        off=(1.0,),
        metavar="T",
        env="TEMPERATURE",
    )
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False


SETTINGS = settings_of(SamplingParams)
"""The fields of samplers, by name."""

SAMPLERS: dict[SamplerEntry, tuple[str, ...]] = {}
"""Each sampler with the names of its fields, in llama.cpp's order."""

for _field in fields(SamplingParams):
    if SamplerEntry in _field.metadata:
        SAMPLERS[_field.metadata[SamplerEntry]] = (*SAMPLERS.get(_field.metadata[SamplerEntry], ()), _field.name)
