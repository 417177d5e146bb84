"""Costs of constraints with a vocabulary: python scripts/grammar_costs.py FILE.gguf. Answers are drawn from logits at
random.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import process_time, thread_time

import numpy as np

from uad.base.types import Constraint, ConstraintKind, SamplingParams
from uad.engine.sampling.noise import Position, token_keys
from uad.engine.sampling.sampler import Sampler
from uad.llama.samplers import SamplerChain
from uad.llama.vocab import load_vocab
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.vocab.encode import Encoder

N_ANSWERS, N_TOKENS = 8, 60
_ITEM = {"name": {"type": "string"}, "count": {"type": "integer"}, "kind": {"enum": ["river", "stone", "cart"]}}
_OBJECT = {"type": "object", "properties": _ITEM, "required": list(_ITEM), "additionalProperties": False}
_MEMBERS = {f"member_{i}": {"type": "string", "maxLength": 40} for i in range(500)}
CONSTRAINTS = {
    "none": None,
    "object of three": Constraint(
        ConstraintKind.JSON_SCHEMA, json.dumps({"type": "array", "items": _OBJECT, "minItems": 3})
    ),
    "any JSON": Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "object"}'),
    "500 members": Constraint(
        ConstraintKind.JSON_SCHEMA, json.dumps({"properties": _MEMBERS, "required": list(_MEMBERS)})
    ),
    "regex": Constraint(ConstraintKind.REGEX, r"[a-z]{3,300}( [A-Z]\w+){2,90}"),
    "GBNF": Constraint(ConstraintKind.GRAMMAR, 'root ::= e\ne ::= t ([-+*] t)*\nt ::= [0-9]+ | "(" e ")"'),
}


def main(path: Path) -> None:
    table = load_vocab(path)
    encoder = Encoder(table).prepare()
    began = thread_time()
    grammars = Grammars(GrammarVocabulary(table, encoder.encode))
    print(f"{path.name}, {table.n_vocab} tokens: {thread_time() - began:.2f} s at start")
    print(
        "| constraint | compiling, ms | mask: first answer, µs | median | most | draw at 0.8, µs | greedy, µs | "
        "forced |"
    )
    keys = token_keys(table.texts)
    for name, constraint in CONSTRAINTS.items():
        began = process_time()
        if constraint is not None:
            grammars.check(constraint)
        compiling = 1e3 * (process_time() - began)
        first, masks, draws, forced, n = measured(grammars, constraint, table, keys, 0.8)
        greedy = measured(grammars, constraint, table, keys, 0.0)[2]
        row = (
            compiling,
            1e6 * median(first or [0]),
            1e6 * median(masks or [0]),
            1e6 * max(masks or [0]),
            1e6 * median(draws),
        )
        print(
            f"| {name} | "
            + " | ".join(f"{value:.0f}" for value in (*row, 1e6 * median(greedy)))
            + f" | {forced / n:.0%} |"
        )


def measured(
    grammars: Grammars, constraint: Constraint | None, table: object, keys: np.ndarray, temperature: float
) -> tuple[list[float], list[float], list[float], int, int]:
    """Seconds of masks in the first answer, in all, of draws (mask included); ids that were forced, of all."""
    rng = np.random.default_rng(0)
    n_vocab = len(keys)
    rows = rng.standard_normal((64, n_vocab)).astype(np.float32) * 4
    first: list[float] = []
    masks: list[float] = []
    draws: list[float] = []
    forced = n = 0
    for answer in range(N_ANSWERS):
        matcher = grammars.start(constraint) if constraint is not None else None
        params = SamplingParams(temperature=temperature)
        sampler = Sampler(
            params, answer, frozenset(), 512, lambda stages: SamplerChain(n_vocab, stages), keys, matcher=matcher
        )
        for at in range(N_TOKENS):
            began = thread_time()
            id_ = sampler.pick(rows[(at + 7 * answer) % 64], Position(at))
            draws.append(thread_time() - began)
            n += 1
            if matcher is not None:
                began = thread_time()
                mask = matcher.mask()
                masks.append(thread_time() - began)
                forced += mask is not None and not mask.are_banned and len(mask.ids) == 1
            sampler.accept(id_)
            if matcher is not None and matcher.is_over:
                break
        first = first or list(draws)
        sampler.close()
    return first, masks, draws, forced, n


if __name__ == "__main__":
    main(Path(sys.argv[1]))
