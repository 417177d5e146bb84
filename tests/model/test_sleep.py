"""Models that are unloaded and loaded again: the same texts after it for every memory, what is kept, what may fail."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.head_models import FAMILIES, make_with_head
from kit.models import DRAFTS, TARGET, Waiter, exact_config, finish, settled
from kit.tiny_models import NAMES, make, make_adapter

from uad.base.config import Config, LoraConfig, ModelConfig
from uad.base.errors import UnavailableError
from uad.base.events import EngineView, SlotAction
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.context import Context
from uad.runtime import sleep
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
SECONDS = 60
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
TALK = "the river and the stone, the river and the lantern. " * 4


def config(
    target: Path = TARGET,
    draft: Path | None = DRAFTS["zephyr"],
    slots: int = 2,
    types: tuple[str, ...] = (Origin.MODEL, Origin.SUFFIX),
    folder: Path | None = None,
    **fields: Any,
) -> Config:
    return exact_config(target, draft, slots, types, folder, **fields)


def asked(runtime: Runtime, text: str = TALK, seed: int = 7, **fields: Any) -> Request:
    ids = tuple(runtime.text.tokenize(text))
    return Request(ids, SamplingParams(temperature=0.7, seed=seed), FIXED, max_tokens=16, **fields)


def say(runtime: Runtime, text: str = TALK, **fields: Any) -> Waiter:
    return finish(runtime, [asked(runtime, text, **fields)])[0]


def sent_to_sleep(runtime: Runtime) -> None:
    runtime.fall_asleep()
    settled(runtime)
    assert runtime.sleep.is_asleep
    assert runtime._sleeper.is_unloaded


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_the_same_after_sleep_whatever_the_memory(name: str, tmp_path: Path) -> None:
    with Runtime.open(config(make(name, tmp_path))) as runtime:
        before = [say(runtime, TALK + more).ids for more in ("", "again and", "")]
        sent_to_sleep(runtime)
        after = [say(runtime, TALK + more).ids for more in ("", "again and", "")]
        assert after == before
        assert runtime.sleep.n_wakes == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_drafts_again_after_sleep(family: str, tmp_path: Path) -> None:
    with Runtime.open(config(make_with_head(family, tmp_path), None, types=("draft-mtp",))) as runtime:
        before, n_before = say(runtime).ids, runtime.snapshot().drafters[-1].n_calls
        sent_to_sleep(runtime)
        assert say(runtime).ids == before
        assert runtime.snapshot().drafters[-1].n_calls > n_before > 0


def test_adapters_are_added_again_as_much_as_before(tmp_path: Path) -> None:
    target = make("llama", tmp_path)
    adapter = LoraConfig(make_adapter(target, tmp_path / "adapter.gguf"), 1.0)
    with Runtime.open(config(target, None, types=(), loras=(adapter,))) as runtime:
        runtime.set_adapters((0.25,))
        before = say(runtime).ids
        sent_to_sleep(runtime)
        assert say(runtime).ids == before
        runtime.set_adapters((1.0,))
        assert say(runtime).ids != before


def test_likeliest_ids_are_found_on_the_backend_after_sleep() -> None:
    its = Config(ModelConfig(TARGET, n_ctx=512, n_threads=1, backend_sampling=True))
    with Runtime.open(its) as runtime:
        before = say(runtime).ids
        sent_to_sleep(runtime)
        assert say(runtime).ids == before


def test_what_was_learned_and_counted_stays() -> None:
    with Runtime.open(config()) as runtime:
        say(runtime)
        policy, machine, n = (
            runtime._parts.policies.last,
            runtime._parts.policies.last.known.machine,
            runtime.snapshot(),
        )
        sent_to_sleep(runtime)
        assert runtime.snapshot().totals == n.totals
        assert runtime.snapshot().drafters == n.drafters
        say(runtime)
        assert runtime._parts.policies.last is policy
        assert policy.known.machine is machine
        assert runtime.snapshot().totals.n_requests == n.totals.n_requests + 1
        calls = sum(one.n_calls for one in runtime.snapshot().drafters)
        assert calls > sum(one.n_calls for one in n.drafters) > 0


def test_look_ups_know_earlier_texts_after_sleep() -> None:
    with Runtime.open(config(draft=None, slots=1, types=("suffix",))) as runtime:
        text = "A walnut garden has twelve lanterns, and a mirror in the middle of its engine."
        say(runtime, text)
        sent_to_sleep(runtime)
        done = say(runtime, text).done
        assert done.timings.draft.by[Origin.SUFFIX].n_accepted > 0, "it had nothing else to draft from"
        assert done.usage.n_cached == 0, "slots hold nothing after sleep"


def test_requests_that_come_at_once_load_the_models_once() -> None:
    with Runtime.open(config()) as runtime:
        sent_to_sleep(runtime)
        woken = [runtime.wake() for _ in range(3)]
        for one in woken:
            one.result(SECONDS)
        finish(runtime, [asked(runtime, seed=seed) for seed in range(4)])
        assert runtime.sleep.n_wakes == 1
        assert not runtime.sleep.is_asleep


def test_a_request_that_is_there_first_keeps_the_models_loaded() -> None:
    with Runtime.open(config()) as runtime:
        waiter = Waiter()
        runtime.submit(asked(runtime), waiter)
        runtime.fall_asleep()
        assert waiter.over.wait(SECONDS)
        settled(runtime)
        assert waiter.done
        assert not runtime.sleep.is_asleep
        assert runtime.sleep.n_wakes == 0


def test_a_slot_in_a_file_is_restored_after_sleep(tmp_path: Path) -> None:
    with Runtime.open(config(folder=tmp_path)) as runtime:
        say(runtime, slot=1)
        expected = say(runtime, TALK + "and then", slot=1).ids
        say(runtime, slot=1)
        saved = runtime.slot_action(SlotAction.SAVE, 1, "a.bin").result(SECONDS)
        sent_to_sleep(runtime)
        with pytest.raises(UnavailableError, match="wake them first"):
            runtime.slot_action(SlotAction.RESTORE, 1, "a.bin")
        runtime.wake().result(SECONDS)
        assert runtime.slot_action(SlotAction.RESTORE, 1, "a.bin").result(SECONDS).n_ids == saved.n_ids
        done = say(runtime, TALK + "and then", slot=1)
        assert done.ids == expected
        assert done.done.usage.n_cached > 0


def test_a_file_that_is_gone_is_an_error_of_the_request_and_the_next_one_tries_again(tmp_path: Path) -> None:
    target, away = tmp_path / "target.gguf", tmp_path / "away.gguf"
    shutil.copy(TARGET, target)
    with Runtime.open(config(target)) as runtime:
        before = say(runtime).ids
        sent_to_sleep(runtime)
        target.rename(away)
        refused = Waiter()
        runtime.submit(asked(runtime), refused)
        assert refused.over.wait(SECONDS)
        assert isinstance(refused.failed.error, UnavailableError)
        assert f"cannot be loaded again after sleep: model {target}: cannot be read" in str(refused.failed.error)
        assert runtime.sleep.n_failed == 1
        assert runtime.error is None
        away.rename(target)
        assert say(runtime).ids == before


def test_another_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    shutil.copy(TARGET, target)
    with Runtime.open(config(target)) as runtime:
        sent_to_sleep(runtime)
        target.unlink()
        shutil.copy(DRAFTS["gemma"], target)
        with pytest.raises(
            UnavailableError, match="is another file than the one that was unloaded; restart the server"
        ):
            runtime.wake().result(SECONDS)
        assert runtime.sleep.is_asleep


def test_a_context_that_cannot_be_made_leaves_nothing_loaded_and_works_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime.open(config()) as runtime:
        before = say(runtime).ids
        sent_to_sleep(runtime)
        draft = runtime._parts.contexts[-1]
        with monkeypatch.context() as patch:
            patch.setattr(draft, "_open", lambda *_: 1 // 0)
            with pytest.raises(UnavailableError, match="ZeroDivisionError"):
                runtime.wake().result(SECONDS)
        for one in runtime._parts.contexts:
            with pytest.raises(ValueError, match="closed"):
                _ = one.model.handle
        with pytest.raises(ValueError, match="closed"):
            runtime.text.vocab.tokenize(b"walnut " * 999)
        assert say(runtime).ids == before


def test_a_wake_that_nobody_waits_for_any_more_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime.open(config()) as runtime:
        sent_to_sleep(runtime)
        go, reached = threading.Event(), threading.Event()

        def hold(view: EngineView) -> None:
            reached.set()
            go.wait(SECONDS)

        runtime.look(hold)
        assert reached.wait(SECONDS)
        assert runtime.wake().cancel()
        go.set()
        settled(runtime)
        assert runtime.sleep.is_asleep
        assert runtime.sleep.n_wakes == 0


def test_what_is_closed_asleep_ends_at_once() -> None:
    with Runtime.open(config()) as runtime:
        sent_to_sleep(runtime)
    assert not runtime._thread.is_alive()
    with pytest.raises(UnavailableError, match="shutting down"):
        runtime.wake().result(SECONDS)


def test_what_is_closed_while_it_wakes_stops_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, seen = threading.Event(), list[Context]()
    real = sleep.fingerprint

    def slow(path: Path, role: str = "model") -> str:
        """The first file is read only when the runtime is to be closed."""
        loading.set()
        runtime._commands.hurry.wait(SECONDS)
        return real(path, role)

    runtime = Runtime.open(config())
    sent_to_sleep(runtime)
    runtime._commands.hurry.clear()
    monkeypatch.setattr(sleep, "fingerprint", slow)
    monkeypatch.setattr(Context, "reopen", seen.append)
    woken = runtime.wake()
    assert loading.wait(SECONDS)
    runtime.close()
    with pytest.raises(UnavailableError, match="shutting down"):
        woken.result(SECONDS)
    assert not seen, "the load of the first model was broken off"


def test_nothing_is_measured_while_the_models_are_unloaded() -> None:
    with Runtime.open(config()) as runtime:
        measured = list[object]()

        class Again:
            wait = 0.0

            def __call__(self, *_: object) -> None:
                measured.append(runtime._sleeper.is_unloaded)
                self.wait = 0.01

        sent_to_sleep(runtime)
        thread_again = Again()
        assert runtime._model._due(thread_again) is None
        runtime.wake().result(SECONDS)
        assert runtime._model._due(thread_again) is thread_again
        assert not measured
