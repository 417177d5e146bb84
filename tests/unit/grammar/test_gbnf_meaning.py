"""Random grammars in llama.cpp's notation against what they mean, character by character."""

from __future__ import annotations

import itertools
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.gbnf_kit import Meaning
from kit.grammar_kit import GRAMMARS, fits, grammar

from uad.base.errors import InvalidRequestError

N_EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "25"))
TEXTS = ["".join(text) for n in range(5) for text in itertools.product("abé", repeat=n)]
RULES = ("root", "x", "y")

_atoms = st.sampled_from(['"a"', '"ab"', '"b"', '"ba"', '"é"', "[ab]", "[^a]", "[b-é]", '""', "x", "y", "root"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    rows = st.lists(inner, min_size=1, max_size=3)
    signs = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}"])
    return (
        rows.map(" ".join) | rows.map(lambda parts: f"({' | '.join(parts)})") | st.tuples(inner, signs).map(_repeated)
    )


def _repeated(parts: tuple[str, str]) -> str:
    return f"({parts[0]}){parts[1]}"


bodies = st.recursive(_atoms, _grown, max_leaves=5)
grammars = st.tuples(*[st.lists(bodies, min_size=1, max_size=2) for _ in RULES]).map(
    lambda all_: "\n".join(f"{name} ::= {' | '.join(parts)}" for name, parts in zip(RULES, all_, strict=True))
)


@settings(max_examples=N_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammars)
def test_a_grammar_allows_the_texts_that_it_means(text: str) -> None:
    meaning = Meaning(text)
    expected = [answer for answer in TEXTS if meaning.has(answer)]
    try:
        GRAMMARS.check(grammar(text))
    except InvalidRequestError as error:
        is_endless = "no answer could ever end" in str(error)
        assert (is_endless, expected) == (True, [])
        return
    assert [answer for answer in TEXTS if fits(grammar(text), answer)] == expected
