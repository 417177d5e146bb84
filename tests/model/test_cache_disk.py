"""The prompt cache on a disk: the same text after a restart, for every memory, with drafts and without; who waits for a
file, and what happens to files that are gone, damaged, of others, or cannot be written.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.disk_cache import (
    FIXED,
    OFF,
    OTHER,
    TALK,
    WARM,
    FaultyDisk,
    config,
    counts,
    ids,
    make_it_worth_it,
    say,
    texts_in,
)
from kit.models import DRAFTS, Waiter
from kit.tiny_models import NAMES, make, make_adapter

from uad.base.config import Config, LoraConfig
from uad.base.errors import ConfigError
from uad.base.types import GREEDY, Origin, Request
from uad.llama.kernels import use as kernels
from uad.runtime.runtime import Runtime
from uad.runtime.slots import disk as disk_module
from uad.runtime.slots.disk import _DiskReader, _DiskWriter

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make_it_worth_it(monkeypatch)


@pytest.mark.parametrize("change", [{"kernels": False}, {"repack": False}, {"n_threads": 2, "kernels": False}])
def test_a_text_that_other_kernels_computed_is_left_alone_with_a_line(
    change: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if kernels.started().library is None:  # before the first model, which would leave them out
        pytest.skip(kernels.started().note())
    own = replace(config(tmp_path), cache_ram=0)
    other = replace(own, target=replace(own.target, **change))
    own, other = (replace(given, drafting=replace(given.drafting, exact=False)) for given in (own, other))
    with Runtime.open(other) as runtime:
        prompt = ids(runtime)
        say(runtime, prompt)
    (file,) = texts_in(tmp_path)
    with caplog.at_level(logging.INFO), Runtime.open(own) as runtime:
        assert "cannot be used: it is of another set of kernels" in caplog.text
        waiter = say(runtime, (*prompt, *prompt[:5]))
        assert counts(runtime).n_disk_read == 0
    with Runtime.open(replace(own, cache_disk=None)) as runtime:
        assert say(runtime, (*prompt, *prompt[:5])).ids == waiter.ids
    assert file.exists()


@pytest.mark.parametrize(("name", "ram"), [(name, (0, 64)[i % 2]) for i, name in enumerate(NAMES)])
def test_conversations_go_on_after_a_restart_with_the_same_text(name: str, ram: int, tmp_path: Path) -> None:
    path = make(name, tmp_path)
    own = replace(config(tmp_path, path, path, types=(Origin.MODEL, Origin.SUFFIX)), cache_ram=ram)
    with Runtime.open(own) as runtime:
        prompts = [ids(runtime, text) for text in (TALK, OTHER)]
        longer = [(*prompt, *say(runtime, prompt, FIXED).ids, *prompts[0][:5]) for prompt in prompts]
        anew = [
            [say(runtime, prompt, sampling=sampling, cache_prompt=False).ids for sampling in (WARM, GREEDY)]
            for prompt in longer
        ]
    with Runtime.open(own) as runtime:
        again = [say(runtime, prompt, speculative) for prompt in longer for speculative in (FIXED, OFF)]
        found = counts(runtime)
    with Runtime.open(own) as runtime:
        cold = [say(runtime, prompt, FIXED, GREEDY) for prompt in longer]
    assert [one.ids for one in again] == [anew[0][0], anew[0][0], anew[1][0], anew[1][0]]
    assert [one.ids for one in cold] == [anew[0][1], anew[1][1]]
    assert [4 * again[i].done.usage.n_cached > 3 * len(longer[i // 2]) for i in (0, 2)] == [True, True]
    assert found.n_from_disk == 2 <= found.n_disk_texts
    assert found.n_disk_read > 0 < found.saved_seconds
    shares = [one.done.usage.n_cached / len(prompt) for one, prompt in zip(cold, longer, strict=True)]
    assert min(shares) > 0.75
    assert cold[0].done.timings.draft.n_drafted


def test_four_conversations_at_once_have_their_own_texts_after_a_restart(tmp_path: Path) -> None:
    own = config(tmp_path, draft=DRAFTS["zephyr"], slots=4, types=(Origin.MODEL,))
    with Runtime.open(own) as runtime:
        prompts = [ids(runtime, text) for text in (TALK, OTHER, TALK[5:], OTHER[9:])]
        first = [say(runtime, prompt, FIXED, slot=slot).ids for slot, prompt in enumerate(prompts)]
    assert len(texts_in(tmp_path)) == 4
    with Runtime.open(own) as runtime:
        waiters = []
        for prompt in prompts:
            waiters.append(Waiter())
            runtime.submit(Request(prompt, WARM, FIXED, max_tokens=16), waiters[-1])
        assert all(waiter.over.wait(120) for waiter in waiters)
        assert counts(runtime).n_from_disk == 4
    assert [waiter.ids for waiter in waiters] == first
    assert [waiter.done.usage.n_cached for waiter in waiters] == [len(prompt) - 2 for prompt in prompts]


def test_the_draft_model_goes_on_too_and_reads_nothing_again(tmp_path: Path) -> None:
    own = config(tmp_path, draft=DRAFTS["zephyr"], types=(Origin.MODEL,))
    with Runtime.open(own) as runtime:
        longer = (*ids(runtime), *say(runtime, ids(runtime), FIXED).ids, *ids(runtime, " and then"))
    rows = []
    for one in (own, replace(own, cache_disk=None)):
        with Runtime.open(one) as runtime:
            context = runtime._parts.drafts.drafters[0]._cache.context
            decode, n = context.decode, 0

            def counted(batch, decode=decode) -> None:
                nonlocal n
                n += sum(len(row.ids) for row in batch)
                decode(batch)

            context.decode = counted
            answer = say(runtime, longer, FIXED)
            rows.append((n, answer.ids, answer.done.timings.draft.n_drafted > 0))
    (n_again, again, drafted), (n_anew, anew, _) = rows
    assert (again, drafted) == (anew, True)
    assert n_again < n_anew - 40


def test_another_draft_model_reads_the_text_again(tmp_path: Path) -> None:
    with Runtime.open(config(tmp_path, draft=DRAFTS["zephyr"], types=(Origin.MODEL,))) as runtime:
        first = say(runtime, ids(runtime), FIXED)
    with Runtime.open(config(tmp_path, draft=DRAFTS["gemma"], types=(Origin.MODEL,))) as runtime:
        again = say(runtime, ids(runtime), FIXED)
    assert (again.ids, again.done.usage.n_cached) == (first.ids, first.done.usage.n_prompt - 2)
    assert again.done.timings.draft.n_drafted


def test_what_runs_when_the_server_stops_is_kept_as_far_as_it_was_written(tmp_path: Path) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        prompt, began = ids(runtime), threading.Event()
        runtime.submit(Request(prompt, WARM, OFF, max_tokens=300, min_tokens=300), lambda _: began.set())
        assert began.wait(120)
    with Runtime.open(own) as runtime:
        again = say(runtime, prompt)
        assert counts(runtime).n_from_disk == 1
        expected = say(runtime, prompt, cache_prompt=False).ids
    assert (again.ids, again.done.usage.n_cached) == (expected, len(prompt) - 2)


def test_a_growing_conversation_has_one_file(tmp_path: Path) -> None:
    own, prompt = config(tmp_path), ()
    for _ in range(3):
        with Runtime.open(own) as runtime:
            prompt = prompt or ids(runtime)
            prompt = (*prompt, *say(runtime, prompt).ids, *ids(runtime, " and"))
        assert len(texts_in(tmp_path)) == 1


OTHERS = {
    "model file": lambda own, folder: replace(own, target=replace(own.target, path=make("llama", folder))),
    "type of cached keys": lambda own, _: replace(own, target=replace(own.target, type_k="q8_0")),
    "way to compute": lambda own, _: replace(own, drafting=replace(own.drafting, exact=False)),
}


def test_files_of_others_are_left_alone_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = config(tmp_path)
    for other in OTHERS.values():
        with Runtime.open(other(own, tmp_path)) as runtime:
            say(runtime, ids(runtime))
    others = texts_in(tmp_path)
    assert len(others) == len(OTHERS)
    (tmp_path / "cache" / "notes.txt").write_text("mine")
    caplog.clear()  # of what the others said
    with caplog.at_level(logging.INFO, "uad"), Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
        say(runtime, ids(runtime, OTHER))
        runtime._parts.disk.settle()
        runtime._parts.disk._files.look()
        assert first.done.usage.n_cached == 0
        assert counts(runtime).n_disk_bytes > sum(path.stat().st_size for path in others)
    lines = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert [sum(f"of another {what} " in line for line in lines) for what in OTHERS] == [1] * len(OTHERS)
    assert set(others) < set(texts_in(tmp_path))
    assert (tmp_path / "cache" / "notes.txt").read_text() == "mine"


def flipped(path: Path) -> None:
    """One bit of a state is another; the header and the size are as they were."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def no_slot(path: Path) -> None:
    path.write_bytes(b"x" * 100)


@pytest.mark.parametrize("damage", [flipped, cut, no_slot])
def test_a_damaged_file_is_named_once_and_its_text_is_read(damage, tmp_path: Path, caplog) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
    (path,) = texts_in(tmp_path)
    damage(path)
    with caplog.at_level(logging.INFO, "uad"), Runtime.open(own) as runtime:
        again = say(runtime, ids(runtime))
        runtime._parts.disk._files.look()
        for prompt in (ids(runtime, OTHER), ids(runtime)):
            say(runtime, prompt)
        assert counts(runtime).n_from_disk == 0
    assert (again.ids, again.done.usage.n_cached) == (first.ids, 0)
    assert sum(path.name in record.getMessage() for record in caplog.records) == 1


def test_a_file_that_vanishes_is_a_miss_and_no_line_in_the_log(tmp_path: Path, caplog) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
    with Runtime.open(own) as runtime, caplog.at_level(logging.INFO, "uad"):
        texts_in(tmp_path)[0].unlink()
        again = say(runtime, ids(runtime))
    assert (again.ids, again.done.usage.n_cached) == (first.ids, 0)
    assert not [record for record in caplog.records if "cache-disk" in record.getMessage()]


def test_a_full_disk_is_a_warning_once_and_no_failed_request(tmp_path: Path, monkeypatch, caplog) -> None:
    faulty = FaultyDisk(monkeypatch)
    faulty.fault = "full"
    with Runtime.open(config(tmp_path)) as runtime:
        answers = [say(runtime, ids(runtime, text)) for text in (TALK, OTHER, TALK, OTHER)]
        runtime._parts.disk.settle()
        assert faulty.n_faults >= 2
    assert [answers[i].ids for i in (2, 3)] == [answers[i].ids for i in (0, 1)]
    warnings = [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()]
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = pytest.raises(ConfigError, match=r"--cache-disk: the directory .*file/cache cannot be made")
    with wrong:
        Runtime.open(replace(config(tmp_path), cache_disk=tmp_path / "file" / "cache"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_only_be_read_is_read(tmp_path: Path, caplog) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
    (tmp_path / "cache").chmod(0o500)
    with Runtime.open(own) as runtime:
        again = say(runtime, ids(runtime))
        say(runtime, ids(runtime, OTHER))
    (tmp_path / "cache").chmod(0o700)
    assert (again.ids, again.done.usage.n_cached) == (first.ids, first.done.usage.n_prompt - 2)
    assert sum("cannot be written" in record.getMessage() for record in caplog.records) == 1


def test_two_servers_share_a_folder(tmp_path: Path) -> None:
    if kernels.started().library is None:  # before the first model, which would leave them out
        pytest.skip(kernels.started().note())
    own = replace(config(tmp_path), cache_ram=0)
    with Runtime.open(own) as one, Runtime.open(own) as two:
        first = say(one, ids(one))
        say(one, ids(one, OTHER))  # the first text gives way, and is written
        one._parts.disk.settle()
        two._parts.disk._files.look()
        again = say(two, ids(two))
        for path in texts_in(tmp_path):
            path.unlink()
        other = say(one, ids(one))
        assert counts(two).n_from_disk == 1
    assert again.ids == first.ids == other.ids
    assert again.done.usage.n_cached == len(ids_of(first)) - 2


def ids_of(waiter: Waiter) -> range:
    return range(waiter.done.usage.n_prompt)


def test_a_folder_that_another_server_changed_is_looked_at_again(tmp_path: Path) -> None:
    if kernels.started().library is None:  # before the first model, which would leave them out
        pytest.skip(kernels.started().note())
    own = replace(config(tmp_path), cache_ram=0)
    with Runtime.open(own) as one, Runtime.open(own) as two:
        first = say(one, ids(one))
        say(one, ids(one, OTHER))
        one._parts.disk.settle()
        say(two, ids(two, OTHER))
        two._parts.disk.settle()
        again = say(two, ids(two))
    assert (again.ids, again.done.usage.n_cached) == (first.ids, first.done.usage.n_prompt - 2)


def test_other_scales_of_an_adapter_are_another_model(tmp_path: Path) -> None:
    path = make("llama", tmp_path)
    own = config(tmp_path, path, loras=(LoraConfig(make_adapter(path, tmp_path / "adapter.gguf"), 0.05),))
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
        say(runtime, ids(runtime, OTHER))
        other = say(runtime, ids(runtime), adapters=(0.5,))
    with Runtime.open(own) as runtime:
        again = say(runtime, ids(runtime))
        cached = counts(runtime).n_from_disk
        again_other = say(runtime, ids(runtime), adapters=(0.5,))
        assert counts(runtime).n_from_disk == cached + 1 == 2
    assert (again.ids, again_other.ids) == (first.ids, other.ids)


def test_a_text_that_is_too_long_for_the_slot_is_not_read(tmp_path: Path) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        say(runtime, (ids(runtime) * 9)[:400])
    with Runtime.open(replace(own, target=replace(own.target, n_ctx=256))) as runtime:
        assert say(runtime, (ids(runtime) * 9)[:200]).done.usage.n_cached == 0


def test_what_would_take_longer_to_read_from_the_disk_is_computed(tmp_path: Path, monkeypatch) -> None:
    own = config(tmp_path)
    with Runtime.open(own) as runtime:
        first = say(runtime, ids(runtime))
    monkeypatch.setattr(disk_module, "_PRICE_S_PER_BYTE", 1.0)
    with Runtime.open(own) as runtime:
        again = say(runtime, ids(runtime))
        assert runtime._parts.disk._reader._price < 1.0, "it is tried again some day"
        assert counts(runtime).n_disk_read == 0
    assert (again.ids, again.done.usage.n_cached) == (first.ids, 0)


class SlowReads:
    """Reads of the cache wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        read = _DiskReader.read

        def held(disk: _DiskReader, *args) -> object:
            self.began.set()
            self.go.wait(120)
            return read(disk, *args)

        monkeypatch.setattr(_DiskReader, "read", held)


def reopened(folder: Path, slots: int = 1) -> tuple[Config, list[int]]:
    """A server whose cache has a text, and the answer to that."""
    own = config(folder, slots=slots)
    with Runtime.open(own) as runtime:
        return own, say(runtime, ids(runtime)).ids


def test_while_a_text_is_read_others_are_answered(tmp_path: Path, monkeypatch) -> None:
    own, expected = reopened(tmp_path)
    slow = SlowReads(monkeypatch)
    with Runtime.open(own) as runtime:
        late = Waiter()
        runtime.submit(Request(ids(runtime), WARM, OFF, max_tokens=16), late)
        assert slow.began.wait(120)
        say(runtime, ids(runtime, OTHER))
        assert not late.over.is_set()
        slow.go.set()
        assert late.over.wait(120)
        assert runtime._engine.is_idle
    assert (late.ids, late.done.usage.n_cached) == (expected, late.done.usage.n_prompt - 2)


def test_two_requests_for_one_text_read_it_once(tmp_path: Path, monkeypatch) -> None:
    own, expected = reopened(tmp_path, slots=2)
    slow = SlowReads(monkeypatch)
    with Runtime.open(own) as runtime:
        waiters = [Waiter(), Waiter()]
        for waiter in waiters:
            runtime.submit(Request(ids(runtime), WARM, OFF, max_tokens=16), waiter)
        assert slow.began.wait(120)
        slow.go.set()
        assert all(waiter.over.wait(120) for waiter in waiters)
        assert counts(runtime).n_disk_read == texts_in(tmp_path)[0].stat().st_size
    assert [(one.ids, one.done.usage.n_cached) for one in waiters] == [(expected, len(ids_of(waiters[0])) - 2)] * 2


def test_who_leaves_while_its_text_is_read_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    own, expected = reopened(tmp_path)
    slow = SlowReads(monkeypatch)
    with Runtime.open(own) as runtime:
        gone = Waiter()
        number = runtime.submit(Request(ids(runtime), WARM, OFF, max_tokens=16), gone)
        assert slow.began.wait(120)
        runtime.cancel(number)
        assert say(runtime, ids(runtime, OTHER)).ids
        slow.go.set()
        runtime._parts.disk.settle()
        assert runtime._engine.texts.arrivals._coming == {}
        assert say(runtime, ids(runtime)).ids == expected
    assert not gone.over.is_set()


def test_a_server_that_stops_while_a_text_is_read_ends(tmp_path: Path, monkeypatch) -> None:
    own, _ = reopened(tmp_path)
    slow = SlowReads(monkeypatch)
    with Runtime.open(own) as runtime:
        waiter = Waiter()
        runtime.submit(Request(ids(runtime), WARM, OFF, max_tokens=16), waiter)
        assert slow.began.wait(120)
        threading.Timer(0, slow.go.set).start()
    assert waiter.over.is_set()


def test_more_than_may_wait_to_be_written_is_left_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(disk_module, "MOST_WAITING_BYTES", 1)
    go, write = threading.Event(), _DiskWriter._write

    def held(disk: _DiskWriter, text) -> None:
        go.wait(120)
        write(disk, text)

    monkeypatch.setattr(_DiskWriter, "_write", held)
    with Runtime.open(config(tmp_path)) as runtime:
        for text in (TALK, OTHER, TALK[4:], OTHER[4:]):
            say(runtime, ids(runtime, text))
        disk = runtime._parts.disk
        assert len(disk._writer.waiting) == 1
        go.set()
        disk.settle()
        assert len(texts_in(tmp_path)) == 1
    assert len(texts_in(tmp_path)) == 4, "at the end there is time"


def test_a_cache_without_size_or_memory_keeps_what_fits(tmp_path: Path) -> None:
    own = replace(config(tmp_path), cache_disk_size=0)
    with Runtime.open(own) as runtime:
        for text in (TALK, OTHER, TALK):
            say(runtime, ids(runtime, text))
    assert texts_in(tmp_path) == []
