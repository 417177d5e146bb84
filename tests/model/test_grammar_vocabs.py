"""Constraints with real vocabularies: masks in their ids, forced ids as the target's tokenizer cuts them."""

from __future__ import annotations

import json

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


def start(name: str) -> GrammarMatcher:
    grammars = Grammars(GrammarVocabulary(vocab(name), encoder(name).encode))
    assert grammars.notes == ()
    return grammars.start(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)))


@pytest.mark.parametrize("name", [*GENERATING, *BUNDLED])
def test_a_text_that_fits_can_be_written_in_its_own_ids(name: str) -> None:
    """Where bytes are forced, ids are, too: the tokenizer's own. So the answer's ids there are not those of the whole
    text.
    """
    table, matcher, written, n_forced = vocab(name), start(name), b"", 0
    rest = TEXT.encode()
    while rest:
        forced, mask = matcher.forced, matcher.mask()
        assert mask is not None
        ids = mask.allowed(table.n_vocab)
        assert not table.eog & set(ids.tolist())
        assert not forced or ids.tolist() == [forced[0]]
        n_forced += bool(forced)
        id_ = max(
            (int(i) for i in ids if rest.startswith(table.texts[i]) and table.texts[i]),
            key=lambda i: len(table.texts[i]),
        )
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
