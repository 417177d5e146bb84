"""A marker on its way: shown in the answer where the target writes it, an id for a draft that has it, letters for one
that has not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.templates_toys import named, toy
from kit.toys import TARGET_VOCAB, ScriptedModel, make_engine, run

from uad.base.types import Request, SamplingParams, SpeculativeParams
from uad.drafts.model.coupling import Coupling
from uad.drafts.model.mirror import Mirror
from uad.engine.sampling.noise import Position, token_keys
from uad.text.mapping.compile import compile_rules
from uad.text.mapping.families import bundled_mappings, load_families
from uad.text.mapping.patterns import encode_parts
from uad.text.templates.seams import Part
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

FAMILIES = load_families([bundled_mappings()])
MARK = "<tool_call>"


def marked(vocab: VocabTable, name: str) -> VocabTable:
    return replace(vocab, shown={vocab.specials[name]: name.encode()})


TARGET = marked(TARGET_VOCAB, "<|im_start|>")
START = TARGET.specials["<|im_start|>"]


def side(*specials: str) -> VocabTable:
    made = toy("toy", ("<|endoftext|>", "<|im_end|>", "<|im_start|>", *specials))
    return marked(made, MARK) if MARK in specials else made


def test_a_marker_that_the_target_writes_is_text_of_the_answer_with_its_name_and_its_bytes_count() -> None:
    asked = Request(
        tuple(TARGET.tokenize(b"The quick")),
        SamplingParams(temperature=0, logit_bias=((START, 100.0),)),
        SpeculativeParams(enabled=False),
        max_tokens=3,
        logprobs=True,
        n_probs=1,
    )
    (marker,), (control,) = (run(make_engine(ScriptedModel(vocab)), [asked]) for vocab in (TARGET, TARGET_VOCAB))
    assert (marker.text, control.text) == ("<|im_start|>" * 3, "")
    assert marker.ids == control.ids == [START] * 3
    assert marker.deltas[0].probs[0].data == b"<|im_start|>"


def test_the_noise_of_a_marker_is_that_of_its_name_and_the_draft_keeps_in_step() -> None:
    assert token_keys(TARGET.texts)[START] == token_keys((b"<|im_start|>",))[0]
    coupling = Coupling(Encoder(TARGET), Encoder(TARGET), lambda special: ())
    chooser = coupling.chooser(SamplingParams(temperature=1.0, seed=1), 0)
    chooser.observe([START])
    chooser.start(b"")
    assert chooser._at == Position(len("<|im_start|>"))


@pytest.mark.parametrize(("specials", "seen"), [((MARK,), MARK), ((), MARK)])
def test_what_the_draft_gets_of_a_marker_that_the_target_wrote(specials: tuple[str, ...], seen: str) -> None:
    target, draft = side(MARK), side(*specials)
    rules = compile_rules(target, draft, FAMILIES["chatml"], FAMILIES["chatml"])
    text = f"<|im_start|>assistant\nOne {MARK} two"
    stream = rules.stream()
    items = stream.feed(encode_parts([Part(text, True)], target, target.tokenize, add_bos=False)) + stream.flush()
    assert named(items, draft).endswith(f"One {seen} two")
    assert (draft.specials.get(MARK) in items) == bool(specials)
    assert rules.back(draft.specials.get(MARK, -1)) == ((target.specials[MARK],) if specials else ())


def test_a_typed_marker_is_letters_in_the_mirror_too() -> None:
    target, draft = side(MARK), side(MARK)
    rules = compile_rules(target, draft, FAMILIES["chatml"], FAMILIES["chatml"])
    parts = [Part("<|im_start|>user\n", True), Part(f"Say {MARK}.", False), Part(f"<|im_end|>\n{MARK}", True)]
    mirror = Mirror(Encoder(draft))
    mirror.extend(rules.stream().feed(encode_parts(parts, target, Encoder(target).encode, add_bos=False)))
    mirror.sync()
    assert mirror.ids.count(draft.specials[MARK]) == 1
    assert bytes(mirror.data).count(MARK.encode()) == 1
