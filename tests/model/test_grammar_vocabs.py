"""Constraints with real vocabularies: masks in their ids, forced ids as the target's tokenizer cuts them."""

from __future__ import annotations

import json
from functools import cache

import pytest
from kit.vocab_kit import BUNDLED, GENERATING, encoder, vocab

from uad.base.types import Constraint, ConstraintKind
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.matcher import GrammarMatcher
from uad.text.grammar.vocabulary import GrammarVocabulary

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "kind": {"const": "größer than 東京"}},
    "required": ["name", "count", "kind"],
    "additionalProperties": False,
}
TEXT = '{"name": "Jörg\u2019s 東京 😀 \\n", "count": 12, "kind":"größer than 東京"}'


@cache
def grammars(name: str) -> Grammars:
    made = Grammars(GrammarVocabulary(vocab(name), encoder(name).encode))
    assert made.notes == ()
    return made


def start(name: str) -> GrammarMatcher:
    return grammars(name).start(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)))


@pytest.mark.parametrize("name", [*GENERATING, *BUNDLED])
def test_a_text_that_fits_can_be_written_in_its_own_ids(name: str) -> None:
    """Where bytes are forced, ids are, too: the tokenizer's own. So the answer's ids there are not those of the whole
    text.
    """
    table, matcher, written, n_forced = vocab(name), start(name), b"", 0
    rest = TEXT.encode()
    ids_of: dict[bytes, list[int]] = {}
    for id_, text in enumerate(table.texts):
        if text in rest:
            ids_of.setdefault(text, []).append(id_)
    while rest:
        forced, mask = matcher.forced, matcher.mask()
        assert mask is not None
        allowed = set(mask.allowed(table.n_vocab).tolist())
        assert not table.eog & allowed
        assert not forced or allowed == {forced[0]}
        n_forced += bool(forced)
        id_ = next(i for n in range(len(rest), 0, -1) for i in ids_of.get(rest[:n], ()) if i in allowed)
        matcher.accept(id_)
        written, rest = written + table.texts[id_], rest[len(table.texts[id_]) :]
    assert matcher.is_over
    assert written == TEXT.encode()
    assert n_forced > 5


@pytest.mark.parametrize("name", GENERATING)
def test_forced_ids_are_the_tokenizers(name: str) -> None:
    table, matcher = vocab(name), start(name)
    forced = list(matcher.forced)
    assert forced == encoder(name).encode(b'{"name":')[: len(forced)]
    assert table.join(forced) in (b'{"name', b'{"name"')
