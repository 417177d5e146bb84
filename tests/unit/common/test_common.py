"""The ground floor: misspelt names, sums of counts, where sequences part, sums of exponentials."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml

from uad.base.common.logits import log_sum_exp
from uad.base.common.names import did_you_mean, meant_or_known, misspelt_path, nearest
from uad.base.common.sequences import common_prefix
from uad.base.common.sums import Sums, total
from uad.base.common.yaml_fields import explained
from uad.base.config.drafter_types import LOOKUP_TYPES, SPEC_TYPES, LookupConfig
from uad.base.errors import MappingError
from uad.base.events import Done, Totals
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.types import MODELS, Crossing, Finish, Origin, StopKind


@pytest.mark.parametrize(("name", "near"), [("--PORRT", "--port"), ("top_kk", "--top-k"), ("zzz", None)])
def test_the_nearest_name_is_like_enough_or_none(name: str, near: str | None) -> None:
    assert nearest(name, ["--port", "--top-k", "--host"], 0.75) == near


def test_a_complaint_ends_with_the_nearest_name_or_with_all() -> None:
    assert did_you_mean("prot", ["port", "host"]) == "did you mean port?"
    assert did_you_mean("prot", []) == "nothing is known here"
    assert meant_or_known("titel", ["title", "roles"]) == "did you mean 'title'?"
    assert meant_or_known("zzz", ["title", "roles"]) == "known are roles, title"


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/completion", "/v1/completions"),
        ("/healthz", "/health"),
        ("/vl/models", "/v1/models"),
        ("/api/pull", None),
        ("/api/embed", None),
        ("/v1/audio/speech", None),
        ("/nowhere", None),
    ],
)
def test_only_a_path_that_is_close_is_suggested(path: str, near: str | None) -> None:
    assert misspelt_path(path, ["/", "/health", "/api/ps", "/api/chat", "/v1/models", "/v1/completions"]) == near


@pytest.mark.parametrize(("a", "b", "at"), [("", "x", 0), ("abc", "abd", 2), ("ab", "abc", 2), ([1, 2], [1, 2], 2)])
def test_the_first_difference_of_sequences(a: str, b: str, at: int) -> None:
    assert common_prefix(a, b) == common_prefix(b, a) == at


def test_sums_of_exponentials_do_not_overflow() -> None:
    assert log_sum_exp(np.array([1000.0, 1000.0], np.float32)) == pytest.approx(1000 + np.log(2))
    assert log_sum_exp(np.array([0.0, -np.inf], np.float32)) == 0.0


@pytest.mark.parametrize("fast", [False, True])
def test_broken_yaml_is_told_with_its_place(fast: bool) -> None:
    with pytest.raises(MappingError, match=r"a\.yaml:2:1: not valid YAML: .*block mapping"):
        explained(Path("a.yaml"), MappingError, lambda loader: yaml.compose("a: b\n- c\n", Loader=loader), fast)


def one(n: int) -> DraftStats:
    model = DrafterStats(Origin.MODEL, n, n, 2 * n, n, 1.5 * n)
    return DraftStats(n, n, 2 * n, n, n, n, 0.5 * n, Crossing(3 * n, n, 2.0 * n), {Origin.MODEL: model})


def test_counts_are_added_field_by_field() -> None:
    assert one(1) + one(2) == total([one(1), one(1), one(1)]) == one(3)
    beside = DraftStats(by={Origin.SUFFIX: DrafterStats(Origin.SUFFIX, is_off=True)})
    assert list((one(1) + beside).by) == [Origin.MODEL, Origin.SUFFIX]
    assert (
        DrafterStats(Origin.SUFFIX, n_failures=1, is_off=True) + DrafterStats(Origin.SUFFIX, n_failures=2)
    ).n_failures == 3
    assert (DrafterStats(Origin.SUFFIX) + DrafterStats(Origin.SUFFIX, is_off=True)).is_off


def test_no_count_is_lost_between_a_request_and_the_totals() -> None:
    """Every number of a finished request is somewhere in the totals; the longest text is kept, not added."""
    done = Done(1, Finish.STOP, StopKind.EOS, Usage(10, 4, 6), Timings(2.0, 3.0, 6, 4, 6, one(1)))
    both = Totals.of(done) + Totals.of(done)
    assert (both.n_requests, both.n_prompt, both.n_cached, both.n_predicted, both.n_next) == (2, 12, 8, 12, 10)
    assert (both.prompt_ms, both.predicted_ms, both.n_tokens_max) == (4.0, 6.0, 16)
    assert both.draft == one(2)


@pytest.mark.parametrize("kind", [Crossing, DrafterStats, DraftStats, Timings, Usage, Totals])
def test_all_counts_are_sums(kind: type) -> None:
    assert issubclass(kind, Sums)


def test_every_drafter_is_in_the_table_once() -> None:
    assert set(SPEC_TYPES) == {str(origin) for origin in Origin} - {"target", "grammar", *MODELS[1:]}
    sections = [field.name for field in fields(LookupConfig) if field.name != "share"]
    assert [one.section for one in LOOKUP_TYPES] == sections
    assert all(one.settings for one in LOOKUP_TYPES)
