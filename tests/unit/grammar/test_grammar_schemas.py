"""Answers of 500 random schemas against an independent judge."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from kit.grammar_kit import schema, written
from kit.schema_maker import make

N_SCHEMAS = 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_every_answer_is_valid(part: int) -> None:
    """Ids drawn at random from what is allowed, so each answer goes where a model would not."""
    n_whole = 0
    for seed in range(part * N_SCHEMAS // 10, (part + 1) * N_SCHEMAS // 10):
        rng = random.Random(seed)
        asked = make(rng)
        judge = jsonschema.Draft202012Validator(asked, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for _ in range(4):
            text = written(schema(asked), rng)
            if text is None:
                continue
            n_whole += 1
            value = json.loads(text)
            assert next(judge.iter_errors(value), None) is None, f"{seed}: {text.decode()} against {json.dumps(asked)}"
            break
    assert n_whole == N_SCHEMAS // 10
