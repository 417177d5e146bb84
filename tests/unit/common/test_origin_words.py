"""Kinds of origins, and how a terminal shows them."""

from uad.base.console import COLOURS, WORDS, kind_of, legend, painted
from uad.base.types import HEADS, MODELS, Origin


def test_every_origin_has_a_kind_with_words_and_a_colour_if_it_drafts() -> None:
    kinds = {origin: kind_of(origin) for origin in Origin}
    assert set(kinds.values()) == set(WORDS)
    assert set(WORDS) - set(COLOURS) == {"target"}
    assert [origin for origin in Origin if kinds[origin] == "beside"] == list(MODELS[1:])
    assert {kinds[origin] for origin in HEADS} == {"model"}
    assert (kinds[Origin.MODEL], kinds[Origin.SUFFIX], kinds[Origin.GRAMMAR]) == ("model", "text", "grammar")


def test_drafted_text_is_underlined_and_the_targets_own_is_left_alone() -> None:
    assert painted("x", Origin.TARGET) == "x"
    assert painted("x", Origin.SUFFIX) == "\x1b[4;38;5;172mx\x1b[0m"
    assert all(word in legend() for word in WORDS.values())
