"""A small vocabulary for grammars, without llama.cpp, and answers drawn at random from what a constraint allows."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from kit.greedy import greedy
from uad.base.types import Constraint, ConstraintKind
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.matcher import GrammarMatcher
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

_WORDS = (
    '{"',
    '":',
    '": ',
    '": "',
    '",',
    '", "',
    '"}',
    "name",
    "age",
    "true",
    "false",
    "null",
    "}}",
    "[[",
    ", ",
    "ab",
    "abc",
    " the",
    "é",
    "<tool>",
)
SPECIALS = ("<start>", "<end>", "<stop>")
PIECES = (*(bytes([i]) for i in range(256)), *(word.encode() for word in _WORDS))
IDS = {piece: i for i, piece in enumerate(PIECES)}
START, END, STOP = range(len(PIECES), len(PIECES) + 3)
tokenize = greedy(PIECES)

TABLE = VocabTable(
    name="bytes",
    pieces=(*PIECES, b"", b"", b""),
    specials=dict(zip(SPECIALS, (START, END, STOP), strict=True)),
    tokenize=tokenize,
    eos=END,
    eot=STOP,
    eog=frozenset((END, STOP)),
)
ENCODER = Encoder(TABLE)
GRAMMARS = Grammars(GrammarVocabulary(TABLE, ENCODER.encode))


def schema(value: object, **more: object) -> Constraint:
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(value), **more)  # type: ignore[arg-type]


def grammar(text: str, **more: object) -> Constraint:
    return Constraint(ConstraintKind.GRAMMAR, text, **more)  # type: ignore[arg-type]


def regex(text: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, text)


def choice(*words: str) -> Constraint:
    return Constraint(ConstraintKind.CHOICE, json.dumps(words))


def start(constraint: Constraint) -> GrammarMatcher:
    return GRAMMARS.start(constraint)


def allowed(matcher: GrammarMatcher) -> list[int]:
    """The ids that may follow."""
    mask = matcher.mask()
    return list(range(TABLE.n_vocab)) if mask is None else mask.allowed(TABLE.n_vocab).tolist()


def fed(constraint: Constraint, text: str) -> GrammarMatcher:
    """A matcher behind this text, which fits."""
    matcher = start(constraint)
    for id_ in tokenize(text.encode()):
        assert id_ in allowed(matcher), f"{PIECES[id_]!r} in {text!r}"
        matcher.accept(id_)
    return matcher


def fits(constraint: Constraint, text: str) -> bool:
    """Whether this is an answer, whole."""
    ids = tokenize(text.encode())
    matcher = start(constraint)
    if matcher.n_valid(ids) < len(ids):
        return False
    for id_ in ids:
        matcher.accept(id_)
    return matcher.is_over or END in allowed(matcher)


def written(constraint: Constraint, rng: random.Random, n_most: int = 2000) -> bytes | None:
    """An answer of allowed ids, drawn at random; those that end something are drawn more often. None: it did not end in
    time.
    """
    matcher, ids = start(constraint), []
    while not matcher.is_over:
        ids.append(_drawn(allowed(matcher), rng))
        matcher.accept(ids[-1])
        if len(ids) > n_most:
            return None
    return TABLE.join(ids)


def _drawn(ids: Sequence[int], rng: random.Random) -> int:
    closing = [id_ for id_ in ids if id_ in (END, STOP) or TABLE.pieces[id_] in (b'"', b"}", b"]", b'"}')]
    return rng.choice(closing if closing and rng.random() < 0.5 else ids)
