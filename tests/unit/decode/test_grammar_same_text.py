"""The first promise under constraints: drafted ids equal plain ids, and every whole answer fits its constraint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from kit.grammar_kit import choice, grammar, regex, schema
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, RandomDrafter, ScriptedModel, ToyRules, make_engine, run

from uad.base.types import (
    GREEDY,
    Ask,
    Commit,
    Constraint,
    Draft,
    Finish,
    Origin,
    Request,
    SamplingParams,
    SpecPolicy,
    SpeculativeParams,
    ThoughtBounds,
)
from uad.drafts.lookup import suffix
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.drafter import Drafter, Pace
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(TARGET_VOCAB)
GRAMMARS = Grammars(GrammarVocabulary(TARGET_VOCAB, ENCODER.encode))
START = TARGET_VOCAB.specials["<|im_start|>"]
N_TOKENS = 140

PERSON = {
    "type": "object",
    "properties": {
        "quick_name": {"type": "string", "maxLength": 12},
        "number_of_jumps": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["lazy dog", "lazy fox", "brown fox"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["quick_name", "number_of_jumps", "kind", "tags"],
    "additionalProperties": False,
}
SUM = 'root ::= term ([-+*] term){0,3} " = " [0-9]{1,3}\nterm ::= [0-9]{1,4} | "(" term [-+] term ")"'
TAGGED = "<jump>"


def is_person(text: str) -> bool:
    value = json.loads(text)
    return list(value) == PERSON["required"] and 0 <= value["number_of_jumps"] <= 99 and len(value["tags"]) <= 3


def is_json(text: str) -> bool:
    json.loads(text)
    return True


CONSTRAINTS: dict[str, tuple[Constraint, Callable[[str], object]]] = {
    "schema": (schema(PERSON), is_person),
    "any JSON": (schema({"type": ["boolean", "number", "null"]}), is_json),
    "GBNF": (grammar(SUM), lambda text: re.fullmatch(r"[-+*()\d]+ = \d{1,3}", text)),
    "regex": (
        regex(r"(the|a) (quick|lazy) [a-z]{2,8}\."),
        lambda text: re.fullmatch(r"(the|a) (quick|lazy) [a-z]{2,8}\.", text),
    ),
    "choice": (
        choice("The quick brown fox", "The quick brown dog", "jumps"),
        lambda text: text.endswith(("fox", "dog", "jumps")),
    ),
    "trigger": (
        schema({"const": {"a": [1, 2]}}, triggers=(" lazy",), must_trigger=True),
        lambda text: is_json(text.partition(" lazy")[2]),
    ),
    "around": (
        schema({"const": {"a": [1, 2]}}, prefix=TAGGED, suffix=" over"),
        lambda text: is_json(text[len(TAGGED) : -5]),
    ),
}


class Silent:
    """Another drafter, which never has a guess: the grammar's is alone."""

    origin = Origin.SUFFIX

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None: ...
    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [Draft(origin=Origin.SUFFIX, kind="suffix") for _ in asks]

    def observe(self, commit: Commit) -> None: ...
    def end(self, seq: int) -> None: ...
    def reset(self) -> None: ...


def drafter(kind: str, truth: Sequence[Sequence[int]]) -> Drafter:
    match kind:
        case "grammar":
            return Silent()
        case "random":
            return RandomDrafter(dict(enumerate(map(list, truth))), seed=1)
        case "suffix":
            return suffix.drafter()
    return ModelDrafter(ScriptedModel(DRAFT_VOCAB, 4, length=400, sharpness=5.0), ENCODER, ToyRules())


def requests(
    constraint: Constraint, n: int, temperature: float, speculative: SpeculativeParams, **more: int
) -> list[Request]:
    return [
        Request(
            (START, *TARGET_VOCAB.tokenize((SCRIPT * 2)[: 20 + 37 * i])),
            SamplingParams(temperature=temperature, seed=7 + i),
            speculative,
            max_tokens=N_TOKENS,
            constraint=constraint,
            **more,
        )
        for i in range(n)
    ]


def target(n: int) -> ScriptedModel:
    return ScriptedModel(TARGET_VOCAB, n, length=90)


def auto() -> AutoPolicy:
    return AutoPolicy(Machine(CostCurve([CostSample(n, 0, 10 + 0.3 * n) for n in range(1, 65)]), n_ubatch=64))


@pytest.mark.parametrize(("n", "temperature"), [(1, 0.0), (4, 0.8)])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_drafted_equals_plain_under_every_constraint(name: str, temperature: float, n: int) -> None:
    constraint, judge = CONSTRAINTS[name]
    plain = run(
        make_engine(target(n), grammars=GRAMMARS),
        requests(constraint, n, temperature, SpeculativeParams(enabled=False)),
    )
    for one in plain:
        if one.done.finish is Finish.STOP:
            assert judge(one.text), one.text
    for kind in ("grammar", "random", "suffix", "model"):
        for policy in (SpecPolicy.FIXED, SpecPolicy.AUTO):
            engine = make_engine(target(n), drafter(kind, [one.ids for one in plain]), policy=auto(), grammars=GRAMMARS)
            speculative = SpeculativeParams(policy=policy, n_max=9, p_min=0.2)
            drafted = run(engine, requests(constraint, n, temperature, speculative))
            assert [one.ids for one in drafted] == [one.ids for one in plain], (kind, policy)
            assert [one.text for one in drafted] == [one.text for one in plain]


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("bound", [None, choice("jumps", "rests")])
def test_a_thought_ends_at_its_bound_drafted_or_not(bound: Constraint | None, temperature: float, n: int) -> None:
    """What closes it is forced, and behind it the constraint holds, if there is one."""
    closing = TARGET_VOCAB.tokenize(b" So: </t>")
    thoughts = ThoughtBounds("<t>", "</t>", in_thought=True, budget=11, closing=tuple(closing))
    constraint = None if bound is None else replace(bound, triggers=("</t>",), must_trigger=True)

    def asked(speculative: SpeculativeParams) -> list[Request]:
        return [
            replace(one, constraint=constraint, thoughts=thoughts, max_tokens=60)
            for one in requests(choice("a"), n, temperature, speculative)
        ]

    plain = run(make_engine(target(n), grammars=GRAMMARS), asked(SpeculativeParams(enabled=False)))
    bounded = [one for one in plain if len(one.ids) > 11]  # the script may end the text inside of a thought
    assert bounded
    for one in bounded:
        assert one.ids[11 : 11 + len(closing)] == closing
        assert one.done.usage.n_thought == 11 + len(closing) - 1
        assert bound is None or one.text.endswith(("</t>jumps", "</t>rests"))
    for kind in ("grammar", "random", "model"):
        for policy in (SpecPolicy.FIXED, SpecPolicy.AUTO):
            engine = make_engine(target(n), drafter(kind, [one.ids for one in plain]), policy=auto(), grammars=GRAMMARS)
            drafted = run(engine, asked(SpeculativeParams(policy=policy, n_max=9, p_min=0.2)))
            assert [one.ids for one in drafted] == [one.ids for one in plain], (kind, policy)
            assert [one.done.usage for one in drafted] == [one.done.usage for one in plain]


def test_constrained_answers_end_by_themselves() -> None:
    """Of the matrix above, so that its judges are asked."""
    for constraint, judge in CONSTRAINTS.values():
        ended = 0
        for one in run(
            make_engine(target(4), grammars=GRAMMARS), requests(constraint, 4, 0.8, SpeculativeParams(enabled=False))
        ):
            if one.done.finish is Finish.STOP:
                assert judge(one.text), one.text
                ended += 1
        assert ended > 0, constraint


def test_all_that_a_grammar_forces_is_accepted() -> None:
    engine = make_engine(target(1), Silent(), policy=auto(), grammars=GRAMMARS)
    bound = choice("The quick brown fox jumps over the lazy dog", "The quick brown fox rests a little while")
    (one,) = run(engine, requests(bound, 1, 0.8, SpeculativeParams()))
    stats = one.done.timings.draft.by[Origin.GRAMMAR]
    assert stats.n_accepted == stats.n_drafted > 8
    assert one.done.timings.draft.n_rounds < 0.6 * len(one.ids)


def test_a_draft_is_cut_before_what_the_grammar_forbids() -> None:
    """The target is given no row for an id that cannot be drawn."""

    class Bad(Silent):
        def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
            ids = tuple(TARGET_VOCAB.tokenize(b'{"quick_!'))
            return [
                Draft(ids[: ask.n_max], (0.9,) * len(ids[: ask.n_max]), Origin.SUFFIX, kind="suffix") for ask in asks
            ]

    model = target(1)
    (request,) = requests(schema(PERSON), 1, 0.0, SpeculativeParams(policy=SpecPolicy.FIXED, types=(Origin.SUFFIX,)))
    run(make_engine(model, Bad(), grammars=GRAMMARS), [request])
    longest = max(batch[0] for batch in model.batches[1:])
    assert longest <= 1 + len(TARGET_VOCAB.tokenize(b'{"quick_'))


def test_an_unconstrained_neighbour_is_left_alone() -> None:
    free, bound = requests(schema(PERSON), 2, 0.8, SpeculativeParams())
    free = Request(free.prompt, free.sampling, free.speculative, max_tokens=N_TOKENS)
    alone = run(make_engine(target(1)), [free])[0]
    beside = run(make_engine(target(2), Silent(), policy=auto(), grammars=GRAMMARS), [free, bound])[0]
    assert beside.ids == alone.ids


@pytest.mark.parametrize("enabled", [False, True])
def test_min_tokens_and_ignored_ends_do_not_outlast_a_grammar(enabled: bool) -> None:
    constraint = choice("jumps")
    (request,) = requests(constraint, 1, 0.0, SpeculativeParams(enabled=enabled), min_tokens=50)
    (one,) = run(make_engine(target(1), Silent(), policy=auto(), grammars=GRAMMARS), [request])
    assert (one.text, one.done.finish) == ("jumps", Finish.STOP)
    sampling = SamplingParams(temperature=0.0, ignore_eos=True)
    ignoring = Request(
        request.prompt, sampling, request.speculative, max_tokens=N_TOKENS, constraint=regex("(the|a) (quick)?")
    )
    (one,) = run(make_engine(target(1), Silent(), policy=auto(), grammars=GRAMMARS), [ignoring])
    assert one.text in ("the quick", "a quick")


def test_a_step_beyond_the_limits_ends_its_request_alone() -> None:
    """An engine whose one request fails goes on with the other."""
    bound, free = requests(schema(PERSON), 2, 0.0, SpeculativeParams(enabled=False))
    broken = make_engine(target(2), grammars=GRAMMARS)
    free = Request(free.prompt, free.sampling, free.speculative, max_tokens=N_TOKENS)
    sampler = broken.requests._samplers

    def failing(request: Request, seed: int) -> object:
        made = sampler(request, seed)
        if request.constraint is not None:
            made.matcher._native.consume_token(START)  # an error from which llguidance's matcher never comes back
        return made

    broken.requests._samplers = failing
    failed, well = run(broken, [bound, free])
    assert failed.failed.error.code == "grammar_failed"
    assert well.done.finish is not None
