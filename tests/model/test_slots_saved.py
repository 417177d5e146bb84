"""Slots saved and restored by a runtime: the same text after it, for every memory; who waits, who is refused."""

from __future__ import annotations

import random
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kit.head_models import FAMILIES, make_with_head
from kit.models import DRAFTS, TARGET, Waiter, exact_config, finish
from kit.tiny_models import NAMES, make, make_adapter

from uad.base.config import Config, LoraConfig, ServerConfig
from uad.base.errors import DecodeError, InvalidRequestError, NotSupportedError, UadError, UnavailableError
from uad.base.events import Delta, Event, SlotAction, SlotOutcome
from uad.base.types import GREEDY, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.memory import SequenceCopies
from uad.runtime.runtime import Runtime
from uad.runtime.slots import actions

pytestmark = pytest.mark.model
OFF = SpeculativeParams(enabled=False)
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
SAVE, RESTORE, ERASE = SlotAction
TALK = "the river and the stone, the river and the lantern. " * 4
OTHER = '{"name": "walnut", "price": 12}, {"name": "' * 4


def config(
    folder: Path,
    target: Path = TARGET,
    draft: Path | None = None,
    slots: int = 2,
    types: tuple[str, ...] = (),
    **fields,
) -> Config:
    return exact_config(target, draft, slots, types, folder, **fields)


def do(runtime: Runtime, action: SlotAction, slot: int, name: str = "a.bin") -> SlotOutcome:
    return runtime.slot_action(action, slot, name).result(60)


def say(runtime: Runtime, prompt: tuple[int, ...], slot: int, speculative: SpeculativeParams = OFF, **fields) -> Waiter:
    request = Request(prompt, SamplingParams(temperature=0.7, seed=7), speculative, max_tokens=16, slot=slot, **fields)
    return finish(runtime, [request])[0]


def ids(runtime: Runtime, text: str = TALK) -> tuple[int, ...]:
    return tuple(runtime.text.tokenize(text))


@pytest.mark.parametrize(
    ("name", "fields"),
    [(name, {"type_k": "q8_0", "type_v": "q8_0"} if i % 2 else {}) for i, name in enumerate(NAMES)],
    ids=NAMES,
)
def test_a_conversation_goes_on_after_a_restart_with_the_same_text(name: str, fields: dict, tmp_path: Path) -> None:
    path = make(name, tmp_path)
    own = config(tmp_path, path, path, types=(Origin.MODEL, Origin.SUFFIX), **fields)
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 1, FIXED)
        saved = do(runtime, SAVE, 1)
        longer = (*ids(runtime), *first.ids, *ids(runtime, " and then"))
        kept, edited = say(runtime, longer, 1), (*ids(runtime)[:-2], *ids(runtime, OTHER))
        do(runtime, RESTORE, 1)
        from_mark = say(runtime, edited, 1)
        anew = [say(runtime, prompt, 0, cache_prompt=False).ids for prompt in (longer, edited)]
    with Runtime.open(own) as runtime:
        restored = do(runtime, RESTORE, 0)
        again = say(runtime, longer, 0, FIXED)
        do(runtime, RESTORE, 0)
        edited_again = say(runtime, edited, 0)
    assert (restored.n_ids, restored.n_bytes) == (saved.n_ids, saved.n_bytes)
    assert restored.n_bytes == (tmp_path / "a.bin").stat().st_size
    assert [again.ids, edited_again.ids] == anew
    assert again.done.usage.n_cached == kept.done.usage.n_cached >= saved.n_ids - 1
    assert edited_again.done.usage.n_cached == from_mark.done.usage.n_cached > 40, "its marks came back"
    assert again.done.timings.draft.n_drafted


@pytest.mark.parametrize(
    ("name", "is_full"), [("llama", False), ("gemma3", False), ("gemma3", True), ("lfm2", False), ("mamba", False)]
)
def test_a_copy_says_how_far_a_slot_that_holds_it_can_go_back(name: str, is_full: bool, tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path, make(name, tmp_path), swa_full=is_full)) as runtime:
        say(runtime, ids(runtime), 1)
        model = runtime._slots._keeper._copies.target
        saved = model.copies.save(1)
        assert model.copies.restore(0, saved)
        places = range(saved.end + 2)
        reached = [model.copies.reach_of(saved, n) for n in places]
        assert reached == [model.context.memory.reach(0, n) for n in places]
    assert reached[-2:] == [saved.end] * 2
    assert (reached[40:60] == [*range(40, 60)]) is (name == "llama")


def test_what_a_copy_lacks_though_the_window_s_cache_holds_all_is_read_again(tmp_path: Path) -> None:
    """llama.cpp copies only the positions that the next token sees."""
    with Runtime.open(config(tmp_path, make("gemma3", tmp_path), swa_full=True)) as runtime:
        say(runtime, ids(runtime), 1)
        do(runtime, SAVE, 1)
        edited = (*ids(runtime)[:-20], *ids(runtime, OTHER))
        kept = say(runtime, edited, 1)
        do(runtime, RESTORE, 0)
        restored = say(runtime, edited, 0)
        anew = say(runtime, edited, 0, cache_prompt=False)
    assert kept.done.usage.n_cached == len(ids(runtime)) - 20
    assert [kept.ids, restored.ids] == [anew.ids] * 2


@pytest.mark.parametrize("draft", ["zephyr", "gemma"])
def test_the_draft_model_goes_on_too_and_reads_nothing_again(draft: str, tmp_path: Path) -> None:
    own = config(tmp_path, draft=DRAFTS[draft], types=(Origin.MODEL,))
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 1, FIXED)
        do(runtime, SAVE, 1)
        longer = (*ids(runtime), *first.ids, *ids(runtime, " and then"))
        kept, n_kept = n_read_of(runtime, longer, 1)
    with Runtime.open(own) as runtime:
        do(runtime, RESTORE, 0)
        again, n_again = n_read_of(runtime, longer, 0)
    with Runtime.open(own) as runtime:
        anew, n_anew = n_read_of(runtime, longer, 0)
    assert again.ids == kept.ids == anew.ids
    assert again.done.timings.draft.n_drafted == kept.done.timings.draft.n_drafted
    assert again.done.timings.draft.n_accepted == kept.done.timings.draft.n_accepted
    assert n_again == n_kept
    assert n_again < n_anew - 40


def n_read_of(runtime: Runtime, prompt: tuple[int, ...], slot: int) -> tuple[Waiter, int]:
    """An answer, and how many rows the draft model decoded for it."""
    context, n = runtime._parts.drafts.drafters[0]._cache.context, 0
    decode = context.decode

    def counted(rows) -> None:
        nonlocal n
        n += sum(len(row.ids) for row in rows)
        decode(rows)

    context.decode = counted
    return say(runtime, prompt, slot, FIXED), n


def test_the_policy_knows_what_the_draft_has_read(tmp_path: Path) -> None:
    own = config(tmp_path, draft=DRAFTS["zephyr"], types=(Origin.MODEL,))
    with Runtime.open(own) as runtime:
        say(runtime, ids(runtime), 1, FIXED)
        saved = do(runtime, SAVE, 1)
    with Runtime.open(own) as runtime:
        do(runtime, RESTORE, 1)
        policy = runtime._engine._drafting.policy.part
        assert saved.n_ids - 8 <= policy.known.n_held[1][Origin.MODEL] <= saved.n_ids


def test_another_draft_model_reads_the_text_again(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path, draft=DRAFTS["zephyr"], types=(Origin.MODEL,))) as runtime:
        first = say(runtime, ids(runtime), 1, FIXED)
        do(runtime, SAVE, 1)
        longer = (*ids(runtime), *first.ids, *ids(runtime, " and then"))
        expected = say(runtime, longer, 1, FIXED)
    with Runtime.open(config(tmp_path, draft=DRAFTS["gemma"], types=(Origin.MODEL,))) as runtime:
        do(runtime, RESTORE, 1)
        again = say(runtime, longer, 1, FIXED)
    assert again.ids == expected.ids
    assert again.done.usage.n_cached == expected.done.usage.n_cached
    assert again.done.timings.draft.n_drafted


def test_two_slots_have_files_of_their_own_and_change_places(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        prompts = [ids(runtime, text) for text in (TALK, OTHER)]
        longer = [(*prompt, *say(runtime, prompt, slot).ids, *prompts[0][:5]) for slot, prompt in enumerate(prompts)]
        sizes = [do(runtime, SAVE, slot, f"{slot}").n_ids for slot in (0, 1)]
        for slot in (0, 1):
            assert do(runtime, RESTORE, 1 - slot, f"{slot}").n_ids == sizes[slot]
        found = [say(runtime, longer[1 - slot], slot) for slot in (0, 1)]
        anew = [say(runtime, longer[1 - slot], slot, cache_prompt=False).ids for slot in (0, 1)]
    assert [one.ids for one in found] == anew
    assert [one.done.usage.n_cached >= sizes[1 - slot] - 1 for slot, one in enumerate(found)] == [True, True]


def test_an_erased_slot_reads_its_prompt_from_the_beginning(tmp_path: Path) -> None:
    with Runtime.open(replace(config(tmp_path), cache_ram=0)) as runtime:
        first = say(runtime, ids(runtime), 1)
        assert do(runtime, ERASE, 1).n_ids == len(ids(runtime)) + len(first.ids) - 1
        again = say(runtime, ids(runtime), 1)
        assert do(runtime, ERASE, 0).n_ids == 0
    assert (again.done.usage.n_cached, again.ids) == (0, first.ids)


def test_an_empty_slot_is_saved_and_restored_as_empty(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        assert do(runtime, SAVE, 0).n_ids == 0
        say(runtime, ids(runtime), 1)
        assert do(runtime, RESTORE, 1).n_ids == 0
        assert [slot.n_past for slot in runtime.snapshot().slots] == [0, 0]


OTHERS = {
    "model file": lambda own, folder: replace(own, target=replace(own.target, path=make("llama", folder))),
    "type of cached keys": lambda own, _: replace(own, target=replace(own.target, type_k="q8_0")),
    "scaling of positions": lambda own, _: replace(own, target=replace(own.target, rope_freq_base=5000.0)),
    "way to compute": lambda own, _: replace(own, drafting=replace(own.drafting, exact=False)),
    "kind of attention": lambda own, _: replace(own, target=replace(own.target, flash_attn="off")),
}


def test_files_of_others_are_refused_by_name_and_nothing_is_changed(tmp_path: Path) -> None:
    own = config(tmp_path)
    for i, other in enumerate(OTHERS.values()):
        with Runtime.open(other(own, tmp_path)) as runtime:
            say(runtime, ids(runtime), 0)
            do(runtime, SAVE, 0, f"{i}.bin")
    (tmp_path / "damaged.bin").write_bytes((tmp_path / "0.bin").read_bytes()[:-1])
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 0)
        before = runtime.snapshot().slots
        wrong = [(f"{i}.bin", f"of another {what} ") for i, what in enumerate(OTHERS)]
        for name, message in (
            *wrong,
            ("damaged.bin", "checksum"),
            ("none.bin", "no such file"),
            ("a/b", "Invalid file"),
        ):
            with pytest.raises(InvalidRequestError, match=message):
                do(runtime, RESTORE, 0, name)
        assert runtime.snapshot().slots == before
        again = say(runtime, ids(runtime), 0)
    assert again.ids == first.ids
    assert again.done.usage.n_cached == len(ids_of(first)) - 2


def ids_of(waiter: Waiter) -> range:
    return range(waiter.done.usage.n_prompt)


def test_a_text_that_is_too_long_for_the_slot_is_refused(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        say(runtime, (ids(runtime) * 9)[:400], 0)
        n = do(runtime, SAVE, 0).n_ids
    small = config(tmp_path)
    wrong = pytest.raises(InvalidRequestError, match=f"its {n} tokens do not fit in the slot's context of 256")
    with Runtime.open(replace(small, target=replace(small.target, n_ctx=512))) as runtime, wrong:
        do(runtime, RESTORE, 0)


def test_a_state_that_llama_cpp_does_not_take_leaves_an_empty_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        first = say(runtime, ids(runtime), 0)
        do(runtime, SAVE, 0)
        restore = SequenceCopies.restore

        def cut(self: SequenceCopies, seq: int, saved) -> bool:
            return restore(self, seq, replace(saved, data=saved.data[:-100]))

        monkeypatch.setattr(SequenceCopies, "restore", cut)
        with pytest.raises(UadError, match="the slot is empty now"):
            do(runtime, RESTORE, 0)
        again = say(runtime, ids(runtime), 0)
    assert (again.ids, again.done.usage.n_cached) == (first.ids, 0)


class Held:
    """A sink that stops the model thread at its first piece, until it may go on."""

    def __init__(self) -> None:
        self.began, self.go, self.over = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Delta):
            self.over.set()
        self.began.set()
        self.go.wait(120)


def held(runtime: Runtime, slot: int) -> Held:
    sink = Held()
    runtime.submit(Request(ids(runtime), GREEDY, OFF, max_tokens=200, min_tokens=200, slot=slot), sink)
    assert sink.began.wait(120)
    return sink


def test_a_busy_slot_is_waited_for_and_holds_up_no_other(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        sink = held(runtime, 1)
        late, other = runtime.slot_action(SAVE, 1, "late"), runtime.slot_action(ERASE, 0)
        other.add_done_callback(lambda _: order.append("other"))
        late.add_done_callback(lambda _: order.append("late" if sink.over.is_set() else "too early"))
        order: list[str] = []
        sink.go.set()
        assert late.result(60).n_ids == len(ids(runtime)) + 199
        assert order == ["other", "late"]


def test_who_leaves_while_the_slot_is_busy_gets_no_file(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        sink = held(runtime, 1)
        gone, erased = runtime.slot_action(SAVE, 1, "gone"), runtime.slot_action(ERASE, 1)
        assert gone.cancel()
        sink.go.set()
        assert erased.result(60).n_ids == len(ids(runtime)) + 199
        with pytest.raises(CancelledError):
            gone.result(0)
    assert list(tmp_path.iterdir()) == []


def test_what_waits_when_the_server_stops_gets_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST", 2)
    with Runtime.open(config(tmp_path)) as runtime:
        sink = held(runtime, 1)
        waiting = [runtime.slot_action(SAVE, 1, "one"), runtime.slot_action(ERASE, 1)]
        with pytest.raises(UnavailableError, match="2 actions on slots wait already"):
            runtime.slot_action(ERASE, 0)
        closing = threading.Thread(target=runtime.close)
        closing.start()
        while not runtime._commands.is_closed:
            pass
        sink.go.set()
        closing.join(120)
        for one in waiting:
            with pytest.raises(UnavailableError, match="shutting down"):
                one.result(60)
    with pytest.raises(UnavailableError, match="shutting down"):
        runtime.slot_action(ERASE, 0).result(60)


def test_without_a_folder_nothing_can_be_saved(tmp_path: Path) -> None:
    wrong = pytest.raises(NotSupportedError, match="--slot-save-path")
    with Runtime.open(replace(config(tmp_path), server=ServerConfig())) as runtime, wrong:
        runtime.slot_action(ERASE, 0)


def test_there_are_no_other_slots(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        for slot in (-1, 2):
            with pytest.raises(InvalidRequestError, match="Invalid slot ID"):
                runtime.slot_action(ERASE, slot)


def test_other_scales_of_an_adapter_are_another_model(tmp_path: Path) -> None:
    path = make("llama", tmp_path)
    own = config(tmp_path, path, loras=(LoraConfig(make_adapter(path, tmp_path / "adapter.gguf"), 0.05),))
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 0)
        do(runtime, SAVE, 0)
        say(runtime, ids(runtime, OTHER), 0, adapters=(0.5,))
        runtime.set_adapters((0.25,))
        before = runtime.snapshot().slots
        with pytest.raises(
            InvalidRequestError, match=r"of another set of adapter scales \(\(0.05,\); now it is \(0.25,\)"
        ):
            do(runtime, RESTORE, 0)
        assert runtime.snapshot().slots == before
        runtime.set_adapters((0.05,))
        do(runtime, RESTORE, 0)
        again = say(runtime, ids(runtime), 0)
    assert again.ids == first.ids
    assert again.done.usage.n_cached == len(ids_of(first)) - 2
    wrong = pytest.raises(InvalidRequestError, match="of another set of adapters ")
    with Runtime.open(replace(own, target=replace(own.target, loras=()))) as runtime, wrong:
        do(runtime, RESTORE, 0)


def test_a_slot_comes_back_right_after_a_restart_by_the_scales_of_the_server(tmp_path: Path) -> None:
    """Not by those of the last request, of which there is none yet: the target adds what it was loaded with."""
    path = make("llama", tmp_path)
    own = config(tmp_path, path, loras=(LoraConfig(make_adapter(path, tmp_path / "adapter.gguf"), 0.05),))
    with Runtime.open(own) as runtime:
        runtime.set_adapters((1,))
        first = say(runtime, ids(runtime), 0)
        do(runtime, SAVE, 0)
    with Runtime.open(own) as runtime:
        runtime.set_adapters((1.0,))
        do(runtime, RESTORE, 0)
        again = say(runtime, ids(runtime), 0)
    assert again.ids == first.ids
    assert again.done.usage.n_cached == len(ids_of(first)) - 2


def test_a_slot_of_the_servers_scales_waits_for_requests_with_others(tmp_path: Path) -> None:
    path = make("llama", tmp_path)
    own = config(tmp_path, path, loras=(LoraConfig(make_adapter(path, tmp_path / "adapter.gguf"), 0.05),))
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 0)
        do(runtime, SAVE, 0)
        runs, go_on = threading.Event(), threading.Event()

        def sink(event: Event) -> None:
            if isinstance(event, Delta) and not runs.is_set():
                runs.set()
                go_on.wait(120)

        other = Request(ids(runtime, OTHER), GREEDY, OFF, max_tokens=16, slot=1, adapters=(0.5,))
        runtime.submit(other, sink)
        assert runs.wait(120)
        outcome = runtime.slot_action(RESTORE, 0, "a.bin")
        go_on.set()
        assert outcome.result(60).n_ids >= len(ids_of(first))
        again = say(runtime, ids(runtime), 0)
    assert again.ids == first.ids
    assert again.done.usage.n_cached == len(ids_of(first)) - 2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_reads_the_last_tokens_again_and_the_text_is_the_same(family: str, tmp_path: Path) -> None:
    path = make_with_head(family, tmp_path)
    head = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4, p_min=0.0)
    own = config(tmp_path, path, types=(Origin.HEAD,))
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime), 1, head)
        do(runtime, SAVE, 1)
        longer = (*ids(runtime), *first.ids, *ids(runtime, " and then"))
        anew = say(runtime, longer, 0, cache_prompt=False)
    with Runtime.open(own) as runtime:
        say(runtime, ids(runtime, OTHER), 0, head)
        do(runtime, RESTORE, 0)
        again = say(runtime, longer, 0, head)
    assert again.ids == anew.ids
    assert again.done.timings.draft.n_drafted


@pytest.mark.parametrize("part", ["save", "restore"])
def test_a_draft_whose_state_cannot_be_copied_reads_the_text_again(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime.open(config(tmp_path, draft=DRAFTS["zephyr"], types=(Origin.MODEL,))) as runtime:
        first = say(runtime, ids(runtime), 1, FIXED)
        longer = (*ids(runtime), *first.ids, *ids(runtime, " and then"))
        draft, real = runtime._parts.drafts.drafters[0]._cache.context.memory, getattr(SequenceCopies, part)

        def broken(self: SequenceCopies, seq: int, *saved):
            if self._memory is draft:
                raise DecodeError("injected")
            return real(self, seq, *saved)

        monkeypatch.setattr(SequenceCopies, part, broken)
        n = do(runtime, SAVE, 1).n_ids
        assert do(runtime, RESTORE, 0).n_ids == n
        again = say(runtime, longer, 0, FIXED)
        assert again.ids == say(runtime, longer, 0, cache_prompt=False).ids
    assert again.done.timings.draft.n_drafted


def test_after_a_fatal_error_slots_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime.open(config(tmp_path)) as runtime:
        sink = held(runtime, 1)
        waits = runtime.slot_action(SAVE, 1, "a")

        def broken(*_: object) -> None:
            raise UadError("injected")

        monkeypatch.setattr(runtime._engine, "step", broken)
        monkeypatch.setattr(runtime._slots._keeper, "is_ready", lambda *_: False)
        sink.go.set()
        with pytest.raises(UadError, match="injected"):
            waits.result(60)
        with pytest.raises(UadError, match="injected"):
            runtime.slot_action(ERASE, 0).result(60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "seed"), [("llama", 1), ("mamba", 2)])
def test_any_sequence_of_actions_leaves_the_text_as_it_is(name: str, seed: int, tmp_path: Path) -> None:
    """Slots go on from, and are filled with, whatever was saved at some time; some files are cut in between."""
    rng, path, n_steps = random.Random(seed), make(name, tmp_path), 60
    own = config(tmp_path, path, path, types=(Origin.MODEL, Origin.SUFFIX))
    expected: dict[tuple[int, ...], list[int]] = {}
    with Runtime.open(own) as runtime, Runtime.open(config(tmp_path, path, slots=1)) as alone:
        texts = [ids(runtime, text) for text in (TALK, OTHER)]
        prompts = [(*text[:n], *end[:5]) for text in texts for n in (40, 60, 80) for end in texts]
        for _ in range(n_steps):
            slot, file = rng.randrange(2), f"{rng.randrange(3)}"
            match rng.choice(["say", "say", "save", "save", "restore", "restore", "erase", "cut"]):
                case "say":
                    prompt = rng.choice(prompts)
                    if prompt not in expected:
                        expected[prompt] = say(alone, prompt, 0, cache_prompt=False).ids
                    assert say(runtime, prompt, slot, rng.choice([OFF, FIXED])).ids == expected[prompt]
                case "save":
                    do(runtime, SAVE, slot, file)
                case "restore":
                    with suppress(InvalidRequestError):
                        do(runtime, RESTORE, slot, file)
                case "erase":
                    do(runtime, ERASE, slot)
                case _ if (one := tmp_path / file).exists():
                    one.write_bytes(one.read_bytes()[: rng.randrange(2000)])
    assert len(expected) > 5
