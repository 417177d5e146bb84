"""The table of samplers. A sampler is a `SamplerEntry` here and its fields in `SamplingParams`; all else is made from
them.

That is: flags and variables (`config/flags`), request fields (`requests/`) and answers (`apis/`), the stages of a
request (`sampling/stages`), llama.cpp's constructor (`llama/samplers`), and the table in docs/http.md, which a test
compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from uad.base.common.settings import Setting, setting, settings_of


@dataclass(frozen=True, slots=True)
class SamplerEntry:
    """One stage between logits and draw.

    `native` is llama.cpp's constructor; one without is a step in `sampling/steps` or `sampling/dry`. The constructor
    takes the size of the vocabulary (`takes_n_vocab`) or the vocabulary (`takes_vocab`), the fields in their order,
    `min_keep` (`keeps`), and `more`. `letter` and `aliases` are further names in a request's `samplers`; one without a
    letter cannot be named there. `changes_best`: whether it can change which id is the likeliest. `by_chance`: its
    first field is the probability that it acts at a position; `sampling/steps` draws that, and llama.cpp gets 1.
    `counts`: it remembers the ids of the text, as many as its first field says. `logs`: it takes logarithms of
    probabilities, and must not meet a 0. `draws`: it takes the place of the usual draw, after all others.
    """

    name: str
    letter: str
    native: str = ""
    more: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    changes_best: bool = False
    by_chance: bool = False
    takes_n_vocab: bool = False
    takes_vocab: bool = False
    keeps: bool = False
    counts: bool = False
    logs: bool = False
    draws: bool = False


_INIT = "llama_sampler_init_"
_PENALTIES = SamplerEntry("penalties", "e", _INIT + "penalties", changes_best=True, takes_n_vocab=True, counts=True)
_DRY = SamplerEntry("dry", "d", changes_best=True)
_TOP_N_SIGMA = SamplerEntry("top_n_sigma", "s", _INIT + "top_n_sigma")
_TOP_K = SamplerEntry("top_k", "k", _INIT + "top_k")
_TYPICAL = SamplerEntry(
    "typ_p", "y", _INIT + "typical", aliases=("typical_p", "typical", "typ"), changes_best=True, keeps=True, logs=True
)
_TOP_P = SamplerEntry("top_p", "p", _INIT + "top_p", aliases=("nucleus",), keeps=True)
_MIN_P = SamplerEntry("min_p", "m", _INIT + "min_p", keeps=True)
_XTC = SamplerEntry("xtc", "x", _INIT + "xtc", (0,), changes_best=True, by_chance=True, keeps=True)
_TEMPERATURE = SamplerEntry("temperature", "t", _INIT + "temp_ext", aliases=("temp",))
_ADAPTIVE_P = SamplerEntry("adaptive_p", "a", draws=True)
MIROSTAT = SamplerEntry("mirostat", "", draws=True)
INFILL = SamplerEntry("infill", "i", _INIT + "infill", changes_best=True, takes_vocab=True)
"""For code in the middle of a file; it has no fields, and runs only where a request names it."""

ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "adaptive_p")
"""Samplers that run by default, in llama.cpp's order; adaptive-p is off unless it has a target."""


def _of(sampler: SamplerEntry, default: float, help: str, names: str, **more: Any) -> Any:
    """A field of a sampler: see `Setting`."""
    declared = Setting(default, help, names, **more)
    return field(default=default, metadata={Setting: declared, SamplerEntry: sampler})


_probability = partial(_of, low=0, high=1, metavar="P")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How ids are chosen; names, meaning and defaults are llama-server's. Fields of samplers come first, in their
    order.

    `seed` None draws a fresh one per request. `logit_bias` maps id to an addend (-inf bans). A temperature of 0 or less
    is greedy. `samplers` are names of those that run, in order, any of them several times; mirostat replaces all but
    the temperature. `bad_words` are runs of ids that are not to be written, `allowed` all that may be (empty: any).
    """

    repeat_last_n: int = _of(
        _PENALTIES,
        64,
        "tokens that penalties look back on; 0 is off, -1 the context",
        "--repeat-last-n",
        low=-1,
        refused="below",
    )
    repeat_penalty: float = _of(
        _PENALTIES,
        1.0,
        "penalty for repeated tokens; 1 is off",
        "--repeat-penalty LLAMA_ARG_REPEAT_PENALTY",
        low=0.01,
        high=1000,
        off=(1.0,),
        metavar="X",
        aliases=("repetition_penalty",),
        refused="below",
    )
    frequency_penalty: float = _of(
        _PENALTIES,
        0.0,
        "penalty per time a token was seen; 0 is off",
        "--frequency-penalty LLAMA_ARG_FREQUENCY_PENALTY",
        low=-1000,
        high=1000,
        off=(0.0,),
        metavar="X",
    )
    presence_penalty: float = _of(
        _PENALTIES,
        0.0,
        "penalty for tokens seen before; 0 is off",
        "--presence-penalty LLAMA_ARG_PRESENCE_PENALTY",
        low=-1000,
        high=1000,
        off=(0.0,),
        metavar="X",
    )
    dry_multiplier: float = _of(
        _DRY,
        0.0,
        "penalty of DRY for what would lengthen a repetition; 0 is off",
        "--dry-multiplier",
        low=-1000,
        high=1000,
        off=(0.0,),
        metavar="X",
    )
    dry_base: float = _of(
        _DRY,
        1.75,
        "factor of DRY's penalty for each further token",
        "--dry-base",
        low=1,
        high=1000,
        metavar="X",
        usual_below=True,
    )
    dry_allowed_length: int = _of(
        _DRY, 2, "longest repetition that DRY has no such factor for", "--dry-allowed-length", refused="below"
    )
    dry_penalty_last_n: int = _of(
        _DRY,
        64,
        "tokens that DRY looks back on; 0 is off, -1 the context",
        "--dry-penalty-last-n",
        low=-1,
        refused="below",
    )
    top_n_sigma: float = _of(
        _TOP_N_SIGMA,
        -1.0,
        "keep tokens whose logit is within N standard deviations of the best; -1 is off",
        "--top-nsigma --top-n-sigma",
        low=-1,
        high=1000,
        off=(-1.0, 0.0),
    )
    top_k: int = _of(
        _TOP_K,
        40,
        "keep the K most likely tokens; 0 or -1 is off",
        "--top-k LLAMA_ARG_TOP_K",
        low=-1,
        off=(0, -1),
        metavar="K",
    )
    typical_p: float = _probability(
        _TYPICAL, 1.0, "locally typical sampling; 1 is off", "--typical --typical-p", off=(1.0,), aliases=("typ_p",)
    )
    top_p: float = _probability(
        _TOP_P, 0.95, "keep the tokens that make up this probability; 1 is off", "--top-p LLAMA_ARG_TOP_P", off=(1.0,)
    )
    min_p: float = _probability(
        _MIN_P, 0.05, "drop tokens less likely than P times the best; 0 is off", "--min-p LLAMA_ARG_MIN_P", off=(0.0,)
    )
    xtc_probability: float = _probability(
        _XTC,
        0.0,
        "chance at each token that XTC drops all likely tokens but the least likely of them; 0 is off",
        "--xtc-probability",
        off=(0.0,),
    )
    xtc_threshold: float = _probability(
        _XTC, 0.1, "least probability of a token that XTC calls likely", "--xtc-threshold"
    )
    temperature: float = _of(
        _TEMPERATURE,
        0.8,
        "temperature; 0 is greedy",
        "--temp --temperature LLAMA_ARG_TEMPERATURE",
        low=-1,
        high=1e9,
        off=(1.0,),
        metavar="T",
    )
    dynatemp_range: float = _of(
        _TEMPERATURE,
        0.0,
        "temperature by entropy, up to N below and above --temp; 0 is off",
        "--dynatemp-range",
        low=0,
        high=1e9,
        off=(0.0,),
    )
    dynatemp_exponent: float = _of(
        _TEMPERATURE,
        1.0,
        "exponent from entropy to temperature",
        "--dynatemp-exp --dynatemp-exponent",
        low=-1000,
        high=1000,
    )
    adaptive_target: float = _of(
        _ADAPTIVE_P,
        -1.0,
        "adaptive-p: prefer tokens of about this probability; below 0 is off",
        "--adaptive-target",
        low=-1,
        high=1,
        off=(-1.0,),
        off_below=0.0,
        metavar="P",
    )
    adaptive_decay: float = _of(
        _ADAPTIVE_P,
        0.9,
        "adaptive-p: how slowly earlier tokens are forgotten",
        "--adaptive-decay",
        low=0,
        high=0.99,
        refused="both",
    )
    mirostat: int = _of(
        MIROSTAT,
        0,
        "version of mirostat, in place of all samplers but temperature: 1 or 2; 0 is off",
        "--mirostat",
        low=0,
        high=2,
        off=(0,),
    )
    mirostat_tau: float = _of(
        MIROSTAT, 5.0, "mirostat: surprise to aim at, in bits", "--mirostat-ent", low=0, high=1000
    )
    mirostat_eta: float = _of(MIROSTAT, 0.1, "mirostat: learning rate", "--mirostat-lr", low=-1000, high=1000)
    min_keep: int = setting(0, "tokens that samplers leave at least", refused="below")
    samplers: tuple[str, ...] = ORDER
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed: tuple[int, ...] = ()

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest id is taken."""
        return (
            self.temperature <= 0
            and self.dynatemp_range <= 0
            and (bool(self.mirostat) or "temperature" in self.samplers)
        )


SETTINGS = settings_of(SamplingParams)
"""The fields of samplers, by name."""

SAMPLERS: dict[SamplerEntry, tuple[str, ...]] = {}
"""Each sampler with the names of its fields, in llama.cpp's order; those that only a request can name come last."""

for _field in fields(SamplingParams):
    if SamplerEntry in _field.metadata:
        SAMPLERS[_field.metadata[SamplerEntry]] = (*SAMPLERS.get(_field.metadata[SamplerEntry], ()), _field.name)
SAMPLERS[INFILL] = ()

BY_NAME = {sampler.name: sampler for sampler in SAMPLERS}
"""Each sampler by its name."""

NAMED = tuple(sampler.name for sampler in SAMPLERS if sampler.letter)
"""Names that `samplers` may have."""

_WORDS = {
    word: sampler.name
    for sampler in SAMPLERS
    if sampler.letter
    for name in (sampler.name, *sampler.aliases)
    for word in (name, name.replace("_", "-"), name.replace("_", ""))
}
_LETTERS = {sampler.letter: sampler.name for sampler in SAMPLERS if sampler.letter}


def sampler_names(words: Iterable[str]) -> Iterator[str]:
    """The names of samplers that are written in one of llama.cpp's ways, or as their letters; unknown ones are left
    out.
    """
    for word in words:
        name = _LETTERS.get(word) or _WORDS.get(word.lower())
        if name is not None:
            yield name
