"""The chat templates of llama-cpp-python's source distribution: derived formats, and every pair of them (a part of the
pairs by default).

Skipped where they have not been fetched. UAD_FULL_MATRIX=1 measures all pairs (about a minute).
"""

from __future__ import annotations

import os
import random
from functools import cache

import pytest
from kit.templates_matrix import Cell, derived, derived_cells, family_cells, pairs, recognised
from kit.templates_real import CONVERSATIONS, NO_FAMILY, REASONS, SYSTEM_LAST, folder, real_templates
from kit.templates_toys import sample

from uad.text.mapping.patterns import encode_parts
from uad.text.mapping.plan import Options, plan
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.mapping.rules import CompiledRules
from uad.text.templates.render import render

pytestmark = pytest.mark.skipif(folder() is None, reason="no chat templates here: make vocabs")
PARTS = 1 if os.environ.get("UAD_FULL_MATRIX") else 24
N_TYPED = 5 if os.environ.get("UAD_FULL_MATRIX") else 1
"""Why some are unequal by families alone; by derived rules only the first is."""


@cache
def rules_into_gemma(name: str) -> CompiledRules:
    return plan(real_templates()[name].side, sample("draft-gemma"), Options()).rules


def share(cells: list[Cell]) -> float:
    return sum(cell.is_equal for cell in cells) / len(cells)


def test_formats_are_derived_exactly():
    inexact = [name for name, found in derived().items() if not found.exact]
    assert len(derived()) > 60
    assert inexact == [SYSTEM_LAST]


def test_derived_formats_render_other_conversations_too():
    for name, found in derived().items():
        real = real_templates()[name]
        for conversation, messages in CONVERSATIONS.items():
            text = real.texts[conversation]
            if text is not None and name != SYSTEM_LAST:
                names = [
                    real.side.vocab.special_names[id_]
                    for id_ in (real.side.vocab.bos, real.side.vocab.eos)
                    if id_ is not None
                ]
                assert found.family.render(messages, *names, add_generation_prompt=True) == text, name


def test_every_format_but_one_is_of_a_known_family():
    assert [name for name, family in recognised().items() if family is None] == [NO_FAMILY]


def test_pairs_by_derived_rules():
    cells = list(derived_cells(pairs(0, PARTS)))
    assert share(cells) >= 0.97
    assert {cell.conversation for cell in cells if not cell.is_equal} <= {"with system"}
    assert all(SYSTEM_LAST in (cell.target, cell.draft) for cell in cells if not cell.is_equal)


def test_pairs_by_families_alone():
    cells = list(family_cells(pairs(0, PARTS)))
    assert share(cells) >= 0.9
    assert [
        (cell.target, cell.draft)
        for cell in cells
        if not cell.is_equal and not REASONS.keys() & {cell.target, cell.draft}
    ] == []


def test_a_template_of_no_known_family_is_derived_with_one_line_saying_so():
    target, draft = real_templates()[NO_FAMILY].side, real_templates()["Qwen-Qwen2.5-7B-Instruct"].side
    notes = plan(target, draft, Options()).notes
    assert notes[0] == (
        f"target {NO_FAMILY}: derived (score 1.00: its template is of no known format, so the format is derived "
        "from it)"
    )
    assert notes[2] == "rules: families derived -> chatml"


@pytest.mark.long
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_typed_specials_stay_letters_in_every_real_template(role: str):
    """As many specials in the prompt as with harmless text, and what the draft sees has as many too.

    Templates that transform their input (they take thoughts out of the assistant's messages, or switches out of the
    system's) may get fewer: where a content cannot be found again, what looks typed is letters wherever it stands.
    Never more.
    """
    rng, roles = random.Random(role), ("system", "user", "assistant")
    everyone = sorted({name for real in real_templates().values() for name in real.side.vocab.specials})
    for i, real in enumerate(real_templates().values()):
        if N_TYPED == 1 and roles[i % 3] != role:
            continue  # by default each template has one role
        vocab = real.side.vocab
        rules = rules_into_gemma(real.side.name)
        for _ in range(N_TYPED):
            names = rng.choices(sorted(vocab.specials), k=3) + rng.choices(everyone, k=3)
            counts, n_transformed = [], 0
            for content in ("x" + "".join(names) + "x", "xx"):
                messages = [
                    {"role": m.role, "content": content if m.role == role else m.content}
                    for m in CONVERSATIONS["with system"]
                ]
                messages = messages if real.texts["with system"] else messages[1:]
                rendered = render(real.side.chat_template or "", messages, bos=bos_name(vocab), eos=eos_name(vocab))
                ids = encode_parts(rendered.parts, vocab, vocab.tokenize)
                n_transformed += content != "xx" and (role == "assistant" or not rendered.exact)
                stream = rules.stream()
                seen = [*stream.feed(ids), *stream.flush()]
                counts.append((sum(map(vocab.is_special, ids)), sum(isinstance(item, int) for item in seen)))
            assert counts[0] == counts[1] or (n_transformed and counts[0] <= counts[1]), (real.side.name, names)
