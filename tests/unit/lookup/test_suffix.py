"""suffix: the longest match by brute force, the vote, earlier answers, bounded memory, and the file of answers."""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import IDS, STEPS, Slot, play

from uad.base.common.sequences import common_prefix
from uad.drafts.lookup import suffix
from uad.drafts.lookup.history import BELIEFS, MAX_MATCH_IDS
from uad.drafts.lookup.suffix import LEVELS, SEPARATOR, Answers, SuffixIndex, SuffixMatch, store_file, vote


def common_suffix(text: list[int], end: int, ids: list[int]) -> int:
    n = 0
    while n < min(end, len(ids), MAX_MATCH_IDS) and text[end - n - 1] == ids[-n - 1]:
        n += 1
    return n


def scan(text: list[int], ids: list[int]) -> list[int]:
    """Lengths of all matches in a text, newest first, by comparing id by id."""
    return [common_suffix(text, end, ids) for end in range(len(text) - 1, 0, -1)]


def check(text: SuffixIndex, ids: list[int]) -> None:
    """The longest match is the brute-force longest, as far as it is among the occurrences that are looked at."""
    found = text.matches(ids)
    lengths = scan(text.ids, ids)
    longest = max(lengths, default=0)
    if longest < LEVELS[0]:
        assert not found
        return
    level = max(size for size in LEVELS if size <= longest)
    looked_at = [length for length in lengths if length >= level][: (8, 8, 4)[LEVELS.index(level)]]
    assert max(match.length for match in found) == max(looked_at)
    assert len(found) == len(looked_at)
    for match in found:
        assert match.length == common_suffix(match.text, match.end, ids)
    if len([length for length in lengths if length >= level]) == len(looked_at):
        assert max(match.length for match in found) == longest


@given(STEPS)
def test_the_longest_match_is_that_of_a_scan(steps):
    slot = Slot(suffix.drafter())
    for step in steps:
        play(slot, step)
        slot.draft(0)
        check(slot.lookup.index, slot.ids)


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=60), max_size=6),
    st.lists(st.integers(0, 30), max_size=90),
)
def test_the_longest_match_in_answers_does_not_cross_them(answers, ids):
    store = Answers(1 << 12)
    for answer in answers:
        store.add(answer)
    if answers:
        ids = [*ids, *answers[0][: len(answers[0]) // 2 + 1]]
    check(store.texts[0], ids)


def test_long_matches_count_as_64():
    ids = random.Random(7).choices(range(1000), k=100)
    text = SuffixIndex([*ids, 9, *ids])
    text.grow()
    (found,) = text.matches(text.ids)
    assert found == SuffixMatch(text.ids, 100, MAX_MATCH_IDS, True)


def match(length: int, own: bool = True) -> SuffixMatch:
    return SuffixMatch([], 0, length, own)


def test_the_vote_goes_by_frequency_and_length():
    a, b = [1, 1, 1], [2, 2, 2]
    assert vote([(match(3), a), (match(2), b)], 3)[0] == (1, 1, 1)
    assert vote([(match(3), a), (match(2), b), (match(2), b), (match(2), b)], 3)[0] == (2, 2, 2)  # 9 against 12
    assert vote([(match(12), a), *[(match(3), b)] * 4], 3)[0] == (1, 1, 1)
    assert vote([(match(4), a), (match(4), b)], 3)[0] == (1, 1, 1)  # a tie: the newest, which comes first


def test_who_was_outvoted_has_no_further_vote():
    ids, p, winner = vote([(match(4), [1, 7]), (match(4), [1, 8]), (match(4), [1, 8]), (match(5), [2, 7])], 2)
    assert ids == (1, 8)
    assert p == pytest.approx((BELIEFS[4] * 48 / 73, BELIEFS[5] * 2 / 3))
    assert winner.length == 4


def test_probabilities_grow_with_the_copy():
    _, p, _ = vote([(match(6), [1, 2, 3, 4])], 4)
    assert p == BELIEFS[6:10]
    assert list(p) == sorted(p)


def test_drafts_are_as_long_as_the_match_allows():
    text = list(range(200))
    assert len(Slot(suffix.drafter(), [*text, 900, 10, 11]).draft().ids) == 4 + 2 * 2
    assert len(Slot(suffix.drafter(), [*text, 900, *text[10:20]]).draft().ids) == 4 + 2 * 10
    assert len(Slot(suffix.drafter(), [*text, 900, *text[10:60]]).draft().ids) == 48
    assert Slot(suffix.drafter(n_max=5), [*text, 900, *text[10:60]]).draft().ids == tuple(text[60:65])
    assert Slot(suffix.drafter(n_match=3), [*text, 900, 10, 11]).draft().ids == ()
    assert Slot(suffix.drafter(n_match=3), [*text, 900, 10, 11, 12]).draft(2).ids == (13, 14)
    assert Slot(suffix.drafter(), [*text, 900, 10, 11]).draft().kind == "suffix"


def test_a_copied_text_is_followed_through_an_edit():
    rng = random.Random(4)
    text = [rng.randrange(30000) for _ in range(600)]
    target = [*text[:300], 30001, *text[301:]]
    slot = Slot(suffix.drafter(), [*text, 30002])
    slot.write(target[:2])
    at, rounds = 2, 0
    while at < len(target):
        draft = slot.draft(min(48, len(target) - at - 1))
        n = next((i for i, id_ in enumerate(draft.ids) if id_ != target[at + i]), len(draft.ids))
        slot.write(target[at : at + n + 1], draft)
        at, rounds = at + n + 1, rounds + 1
    assert slot.ids == [*text, 30002, *target]
    assert rounds < 25


def test_a_copy_keeps_its_place_among_many_alike():
    """Every line begins alike, so the newest occurrences are of other lines: the source of the last draft stays a
    candidate.
    """
    head = list(range(20))
    lines = [[*head, 100 + i, 200 + i] for i in range(30)]
    slot = Slot(suffix.drafter(), [id_ for line in lines for id_ in line])
    slot.write([500, *lines[3][-2:]])
    slot.write(head, slot.draft())
    assert slot.draft(2).ids == (104, 204)


def test_a_copy_is_resumed_behind_a_replaced_id():
    text = list(range(100))
    slot = Slot(suffix.drafter(), [*text, *text[20:40]])
    draft = slot.draft(10)
    slot.write([*draft.ids[:3], 900], draft)  # instead of 43
    resumed = slot.draft(10)
    assert (resumed.ids, resumed.kind) == (tuple(range(44, 54)), "suffix/resumed")
    slot.write([901], resumed)  # the text goes elsewhere
    assert slot.draft(10).ids == ()


def test_no_copy_is_resumed_behind_a_short_match():
    text = list(range(100))
    slot = Slot(suffix.drafter(), [*text, 20, 21, 22])
    draft = slot.draft(10)
    slot.write([23, 900], draft)
    assert slot.draft(10).ids == ()


def test_a_renamed_id_is_drafted_with_its_new_name():
    """Lines with a name in them, which the target replaces."""
    text = [id_ for i in range(12) for id_ in (100 + i, 200 + i, 300 + i, 7, 8, 400 + i, 500 + i, 600 + i, 700 + i)]
    text = [*range(1000, 1010), *text]
    target = [77 if id_ == 7 else id_ for id_ in text]
    slot = Slot(suffix.drafter(), [*text, *target[:12]])
    at, wrong = 12, []
    while at < len(target):
        draft = slot.draft(min(20, len(target) - at))
        n = common_prefix(draft.ids, target[at:])
        wrong += draft.ids[n : n + 1]
        slot.write(target[at : at + n + 1], draft)
        at += n + 1
    assert slot.ids[: len(text) + len(target)] == text + target
    assert wrong in ([7], [7, 7])  # the second one stands in the draft that was made before the first was understood
    slot.end().begin([*text, *target, 9, 9, *text[:20]])  # of the next request nothing is known
    assert slot.draft(20).ids[:2] != (77, 8)


ANSWER = [5, 6, 7, 8, 9, 10, 11, 12]


def test_earlier_answers_are_shared_as_told():
    for share, ids in (("server", (7, 8, 9, 10)), ("slot", ()), ("off", ())):
        drafter = suffix.drafter(share=share, n_slots=2)
        Slot(drafter, [1, 2, 3], seq=0).write(ANSWER).end()
        assert Slot(drafter, [4, 5, 6], seq=1).draft(4).ids == ids, share
    for share, ids in (("server", (7, 8, 9, 10)), ("slot", (7, 8, 9, 10)), ("off", ())):
        slot = Slot(suffix.drafter(share=share, n_slots=2), [1, 2, 3]).write(ANSWER).end().begin([4, 5, 6])
        draft = slot.draft(4)
        assert draft.ids == ids, share
        assert draft.kind == ("suffix/answers" if ids else "suffix")


def test_prompts_are_not_remembered():
    drafter = suffix.drafter()
    Slot(drafter, ANSWER, seq=0).write([1]).end()
    assert Slot(drafter, [4, 5, 6], seq=1).draft().ids == ()


def test_a_draft_from_an_answer_ends_with_it():
    drafter = suffix.drafter()
    Slot(drafter, [1], seq=0).write(ANSWER).end()
    Slot(drafter, [2], seq=0).write([20, 21, 22]).end()
    assert Slot(drafter, [10, 11], seq=1).draft().ids == (12,)
    assert Slot(drafter, [11, 12], seq=1).draft().ids == ()


def test_no_store_size_means_no_store():
    slot = Slot(suffix.drafter(size=0), [1, 2, 3]).write(ANSWER).end().begin([4, 5, 6])
    assert slot.draft().ids == ()


@given(st.integers(1, 60), st.lists(st.lists(IDS, max_size=40), max_size=20))
def test_answers_are_bounded_and_the_newest_stay(capacity, answers):
    store = Answers(capacity)
    for answer in answers:
        store.add(answer)
        assert sum(len(text.ids) for text in store.texts) <= capacity + 2
    if answers and answers[-1] and capacity >= 2 * len(answers[-1]) + 2:
        assert store.texts[0].ids[-len(answers[-1]) - 1 :] == [*answers[-1], SEPARATOR]
    again = Answers(capacity)
    again.load(store.rows())
    assert again.texts[0].ids[-10:] == store.texts[0].ids[-10:]


def test_memory_is_bounded_and_reported():
    drafter = suffix.drafter(size=20_000)
    rng = random.Random(6)
    sizes = []
    slot = Slot(drafter)
    for _ in range(60):
        slot.begin([1]).write([rng.randrange(30000) for _ in range(1000)]).end()
        sizes.append(drafter.memory)
    assert max(sizes) == max(sizes[:25])
    assert max(sizes) < 20_000 * 100


def test_answers_survive_a_restart_unless_the_file_is_spoilt(tmp_path, caplog):
    file = store_file(tmp_path / "answers", "0123")
    drafter = suffix.drafter(file=file)
    Slot(drafter, [1]).write(ANSWER).end()
    drafter.close()
    assert Slot(suffix.drafter(file=file), [4, 5, 6]).draft(3).ids == (7, 8, 9)
    other = suffix.drafter(file=store_file(tmp_path / "answers", "4567"))
    assert "another model's vocabulary" in caplog.text
    assert Slot(other, [4, 5, 6]).draft().ids == ()
    Slot(other, [1]).write([1, 2, 3]).end()
    before = (tmp_path / "answers").read_bytes()
    other.close()
    assert (tmp_path / "answers").read_bytes() == before
    with caplog.at_level(logging.WARNING):
        (tmp_path / "answers").write_bytes(before[: len(before) // 2])
        assert Slot(suffix.drafter(file=file), [4, 5, 6]).draft().ids == ()
