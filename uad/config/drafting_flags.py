"""Flags of drafting: how far, with what, and the settings of each drafter without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uad.config import kinds
from uad.config.drafter_types import BESIDE_A_MODEL, LOOKUP_TYPES, MODEL_TYPE, SHARES, SPEC_TYPES, DrafterType
from uad.config.flag import Flag, setting_flag
from uad.config.kinds import SWITCH, choice, integer, number
from uad.types import N_MAX_AUTO, N_MAX_FIXED


def _lookup_flags(one: DrafterType) -> Iterator[Flag]:
    """The flags of a drafter without a model; a setting without names of its own is named after its field."""
    for name, own in one.settings.items():
        flags = own.flags or f"--spec-{one.origin}-{name.replace('_', '-')}"
        own = replace(own, flags=flags, help=f"{one.origin}: {own.help}")
        yield setting_flag(f"drafting.lookup.{one.section}.{name}", own)


DRAFTING_FLAGS = (
    Flag(
        "--spec-policy",
        "drafting.defaults.policy",
        kinds.SPEC_POLICY,
        "who decides how far to draft: auto (what pays on this machine, at most --spec-draft-n-max) or fixed (n-max, "
        "n-min, p-min)",
        "POLICY",
        "SPEC_POLICY",
    ),
    Flag(
        "--spec-draft-n-max --draft-max --draft-n",
        "drafting.defaults.n_max",
        integer(0),
        "most tokens per draft of the draft model; 0: nothing drafts",
        env="SPEC_DRAFT_N_MAX DRAFT_MAX",
        default=f"{N_MAX_FIXED} where they are fixed, {N_MAX_AUTO} where the policy chooses",
    ),
    Flag(
        "--spec-draft-n-min --draft-min --draft-n-min",
        "drafting.defaults.n_min",
        integer(0),
        "shorter drafts are not tried",
        env="SPEC_DRAFT_N_MIN DRAFT_MIN",
    ),
    Flag(
        "--spec-draft-p-min --draft-p-min",
        "drafting.defaults.p_min",
        number(0, 1),
        "a draft ends before a token less likely than this",
        "P",
        "SPEC_DRAFT_P_MIN DRAFT_P_MIN",
    ),
    Flag(
        "--spec-type",
        "drafting.types",
        kinds.SPEC_TYPE,
        f"drafters, separated by commas: {', '.join(SPEC_TYPES)}; or none",
        "TYPES",
        "SPEC_TYPE",
        default=f"{MODEL_TYPE}, with {BESIDE_A_MODEL} beside it where the policy is automatic",
    ),
    Flag("--spec-default", "drafting.spec_default", SWITCH, "ngram-mod as well, as in llama-server"),
    Flag(
        "",
        "drafting.defaults.enabled",
        SWITCH,
        "do not load the draft model; plain decoding",
        off="--no-draft",
        default="",
    ),
    Flag(
        "--exact",
        "drafting.exact",
        SWITCH,
        "measure at start which batch sizes give the same bits, and pad smaller ones (for BF16, F16 and K-quants, "
        "and with -fa off)",
    ),
    Flag(
        "--spec-draft-window",
        "drafting.window",
        integer(0),
        "most tokens that the draft model reads to catch up with a text; of more it reads the last ones (0: all)",
    ),
    Flag(
        "--spec-grammar",
        "drafting.grammar",
        kinds.ON_OFF,
        "draft what a request's grammar or schema forces; needs no draft model and no --spec-type",
        bare="on",
    ),
    Flag("--heal", "drafting.heal", SWITCH, "re-choose draft bytes where words are cut at the edge", off="--no-heal"),
    Flag(
        "--salvage",
        "drafting.salvage",
        SWITCH,
        "reuse what is left of a draft after other cut points",
        off="--no-salvage",
    ),
)
LOOKUP_FLAGS = (
    Flag(
        "--spec-share",
        "drafting.lookup.share",
        choice(*SHARES),
        "whose earlier texts serve a request's drafts: its own only (off), those of its slot, or all of the server",
        "SCOPE",
        default="server; slot with several API keys",
    ),
    *(flag for one in LOOKUP_TYPES for flag in _lookup_flags(one)),
)
