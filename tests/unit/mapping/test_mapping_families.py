"""All bundled families: each into every other, streaming in any cuts, and what users type."""

from __future__ import annotations

import itertools
import os
import random
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.pace import here
from kit.templates_toys import LETTERS, named, vocab_of

from uad.text.mapping.check import same_to_answer
from uad.text.mapping.compile import compile_rules, reader_patterns
from uad.text.mapping.families import Family, PlainMessage, bundled_mappings, load_families
from uad.text.mapping.patterns import Item, encode_parts, normalise
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.mapping.rules import CompiledRules
from uad.text.templates.render import render
from uad.text.templates.seams import Part

FAMILIES = load_families([bundled_mappings()])
VOCABS = {name: vocab_of(family) for name, family in FAMILIES.items()}
READABLE = [name for name, family in FAMILIES.items() if not family.write_only]
SAFE = [name for name in READABLE if name not in LETTERS]
STRIDE = 1 if os.environ.get("UAD_FULL_MATRIX") else 3
SYSTEM = PlainMessage("system", "Be brief.")
TALK = (PlainMessage("user", "Hello é"), PlainMessage("assistant", "Hi  there"), PlainMessage("user", "us the end"))
THOUGHT = (
    PlainMessage("user", "Hello"),
    PlainMessage("assistant", "Hi", reasoning="So a greeting."),
    PlainMessage("user", "Bye"),
)


@cache
def rules_for(read: str, write: str) -> CompiledRules:
    return compile_rules(VOCABS[read], VOCABS[write], FAMILIES[read], FAMILIES[write])


def written(name: str, messages: tuple[PlainMessage, ...], prompt: bool = False) -> str:
    vocab, family = VOCABS[name], FAMILIES[name]
    return family.render(messages, bos_name(vocab), eos_name(vocab), add_generation_prompt=prompt)


def ids_of(name: str, text: str) -> list[int]:
    return encode_parts([Part(text, True)], VOCABS[name], VOCABS[name].tokenize)


def items_of(read: str, write: str, text: str) -> list[Item]:
    stream = rules_for(read, write).stream()
    return normalise([*stream.feed(ids_of(read, text)), *stream.flush()])


def translate(read: str, write: str, text: str) -> str:
    return named(items_of(read, write, text), VOCABS[write])


def told(family: Family, messages: tuple[PlainMessage, ...]) -> tuple[PlainMessage, ...]:
    """The conversation as a format tells it that has no marker of its own for the system message."""
    if messages[0].role != "system" or family.system == "turn" or family.roles["system"].start:
        return messages
    return (PlainMessage("user", f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:])


def test_families_load_quickly():
    """The fastest of five: what else the machine does meanwhile is not theirs."""
    seconds = []
    for _ in range(5):
        start = time.process_time()
        assert len(load_families([bundled_mappings()])) >= 50
        seconds.append(time.process_time() - start)
    assert min(seconds) < here(0.15)


def agree(read: str, write: str, messages: tuple[PlainMessage, ...], wanted: tuple[PlainMessage, ...]) -> bool:
    """Whether the prompt of messages, translated, is the prompt of wanted, whichever way the answer begins."""
    got = items_of(read, write, written(read, messages, prompt=True))
    return same_to_answer(
        got, normalise(as_items(write, written(write, wanted, prompt=True))), FAMILIES[write], VOCABS[write]
    )


def as_items(name: str, text: str) -> list[Item]:
    vocab = VOCABS[name]
    return [id_ if vocab.is_special(id_) else vocab.pieces[id_] for id_ in ids_of(name, text)]


@pytest.mark.parametrize("read", READABLE)
def test_every_family_into_every_other(read: str):
    """Prompts of whole conversations, with and without a system message; every third pair unless all are asked for."""
    writers = list(FAMILIES)[READABLE.index(read) % STRIDE :: STRIDE]
    for write, messages in itertools.product(writers, (TALK, (SYSTEM, *TALK))):
        assert agree(read, write, messages, told(FAMILIES[read], messages)), (read, write)


def test_thoughts_are_wrapped_as_the_draft_wraps_them():
    thinkers = [name for name in READABLE if FAMILIES[name].reasoning]
    assert len(thinkers) > 15
    for read, write in list(itertools.permutations(thinkers, 2))[::STRIDE]:
        assert agree(read, write, THOUGHT, THOUGHT), (read, write)


def test_thoughts_pass_as_text_where_the_draft_has_none():
    got = translate("harmony", "llama-3", written("harmony", THOUGHT))
    assert "<|end_header_id|>\n\nSo a greeting.\n\nHi<|eot_id|>" in got


def test_an_answer_that_is_asked_for_goes_on_with_or_without_thoughts():
    rules = rules_for("glm-4.6", "deepseek-v3.1")
    prompt = ids_of("glm-4.6", written("glm-4.6", TALK, prompt=True))
    for text, wanted in (
        ("\n<think></think>\nYes", "<｜Assistant｜><think></think>Yes"),
        ("\n<think>Hm</think>\nYes", "<｜Assistant｜><think>Hm</think>Yes"),
    ):
        stream = rules.stream()
        stream.feed(prompt[:-1])
        got = [*stream.feed([*prompt[-1:], *ids_of("glm-4.6", text)]), *stream.flush()]
        assert named(got, rules.draft).removesuffix("<eos>") == wanted


def test_the_drafts_marks_of_thoughts_are_offered_as_the_targets():
    rules = rules_for("harmony", "glm-4.7")
    end = [VOCABS["harmony"].specials[name] for name in ("<|end|>", "<|start|>")]
    assert rules.back(rules.draft.specials["</think>"])[:2] == tuple(end)
    assert rules.back(rules.draft.specials["<think>"])[0] == VOCABS["harmony"].specials["<|channel|>"]


NOISE = st.sampled_from(
    ("\n", " ", "x", "user", "system\n", "assistant", "[INST] ", "<think>", "\n\n", "User: ", "é", "</think>")
)


@settings(max_examples=150)
@given(
    st.data(), st.sampled_from(READABLE), st.sampled_from(sorted(FAMILIES)), st.lists(NOISE, max_size=6), st.booleans()
)
def test_streaming_equals_whole(data: st.DataObject, read: str, write: str, noise: list[str], think: bool):
    """Conversations with odd contents, pieces of them left out, cut anywhere and token by token."""
    messages = (
        PlainMessage("user", "".join(noise)),
        PlainMessage("assistant", "".join(noise[2:]), reasoning="Hm" if think else ""),
        *TALK,
    )
    text = written(read, messages, prompt=True)
    start = data.draw(st.integers(0, len(text)))
    ids = ids_of(read, text[:start] + text[start + data.draw(st.integers(0, 12)) :])
    rules = rules_for(read, write)
    whole = rules.stream()
    wanted = normalise([*whole.feed(ids), *whole.flush()])
    single = rules.stream()
    assert normalise([*(item for id_ in ids for item in single.feed([id_])), *single.flush()]) == wanted
    cut = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    stream = rules.stream()
    got = [item for a, b in itertools.pairwise((0, *cut, len(ids))) for item in stream.feed(ids[a:b])]
    assert normalise([*got, *stream.flush()]) == wanted


def test_only_the_families_said_to_have_markers_of_letters_do():
    """A pattern that can match inside a user's text without any special could be typed."""
    lettered = [
        name
        for name in READABLE
        if any(not any(isinstance(item, int) for item in items) for items in user_patterns(name))
    ]
    assert sorted(lettered) == sorted(LETTERS)


def user_patterns(name: str) -> list[tuple[bytes | int, ...]]:
    states = reader_patterns(FAMILIES[name], VOCABS[name])
    whitespace = [
        items for items in states["user!"] if all(isinstance(item, bytes) and not item.strip() for item in items)
    ]
    return [items for state in ("user", "user!") for items in states[state] if items not in whitespace]


EVERY_NAME = sorted({name for vocab in VOCABS.values() for name in vocab.specials})
TYPED = st.lists(
    st.sampled_from([*EVERY_NAME, "user\n", "system\n", "assistant\n", "\n", " ", "a", "<", "|>"]),
    min_size=1,
    max_size=10,
)


@settings(max_examples=250)
@given(
    TYPED, st.sampled_from(SAFE), st.sampled_from(sorted(FAMILIES)), st.sampled_from(["system", "user", "assistant"])
)
def test_typed_specials_stay_letters(typed: list[str], read: str, write: str, role: str):
    """Names of this and other families' specials, in any message: as many specials in the prompt and for the draft as
    with harmless text, and the text arrives as it was typed.
    """
    content = "x" + "".join(typed) + "x"
    prompts = [prompt_ids(read, role, text) for text in (content, "xx")]
    specials = [[id_ for id_ in ids if VOCABS[read].is_special(id_)] for ids in prompts]
    assert specials[0] == specials[1]
    streams = []
    for ids in prompts:
        stream = rules_for(read, write).stream()
        streams.append(normalise([*stream.feed(ids), *stream.flush()]))
    assert [item for item in streams[0] if isinstance(item, int)] == [
        item for item in streams[1] if isinstance(item, int)
    ]
    if FAMILIES[write].system != "drop" or role != "system":
        assert content.encode() in b"|".join(item for item in streams[0] if isinstance(item, bytes))


def prompt_ids(name: str, role: str, content: str) -> list[int]:
    """The prompt of a conversation in which one message has this content, through the family's Jinja template as a
    server does it.
    """
    messages = [message if message.role != role else PlainMessage(role, content) for message in (SYSTEM, *TALK)]
    asked = [{"role": message.role, "content": message.content} for message in messages]
    vocab = VOCABS[name]
    parts = render(FAMILIES[name].template(), asked, bos=bos_name(vocab), eos=eos_name(vocab)).parts
    return encode_parts(parts, vocab, vocab.tokenize)


@pytest.mark.parametrize("read", LETTERS)
def test_where_markers_are_letters_the_prompt_is_still_safe(read: str):
    """The draft may be misled there, the target's prompt is not: typed names of specials are no specials."""
    rng = random.Random(read)
    for _ in range(20):
        content = "x" + "".join(rng.choices(EVERY_NAME, k=5)) + "x"
        counts = [sum(map(VOCABS[read].is_special, prompt_ids(read, "user", text))) for text in (content, "xx")]
        assert counts[0] == counts[1]
