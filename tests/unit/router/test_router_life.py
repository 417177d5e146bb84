"""How a router follows its folder, and what signals do, without processes."""

import asyncio
import logging
import os
import signal
from dataclasses import replace

import pytest
from kit.router_kit import FakeLauncher, folder_config, folder_model, folder_of

from uad.base.errors import ConfigError
from uad.pairs.header import HeaderFacts
from uad.router import serving
from uad.router.pool import ModelPool
from uad.router.serving import FolderWatch


class Folder:
    """What is read from a folder, look by look; the last one again and again."""

    def __init__(self, *looks):
        self._looks = list(looks)
        self.n_left = len(looks)

    def __call__(self, config, *more):
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        self.n_left = len(self._looks)
        if isinstance(look, Exception):
            raise look
        return look


def watched(monkeypatch, first, *looks):
    """The models after each look."""

    async def main():
        folder = Folder(*looks)
        monkeypatch.setattr(serving, "read_folder", folder)
        pool, found = ModelPool(FakeLauncher(), 2, 10), []
        pool.reload(first)
        watch = FolderWatch(folder_config(), pool)

        async def look(pause):
            if len(found) == len(looks):
                raise asyncio.CancelledError
            found.append(sorted(pool.models))

        monkeypatch.setattr(serving.asyncio, "sleep", look)
        with pytest.raises(asyncio.CancelledError):
            await watch.watch(0.0)
        return [*found[1:], sorted(pool.models)]

    return asyncio.run(main())


def test_a_change_is_taken_once_it_has_settled(monkeypatch):
    growing = [{**folder_of("a"), "b": folder_model("b", files=(("b", n, 0, 0),))} for n in (1, 2, 2)]
    assert watched(monkeypatch, folder_of("a"), *growing) == [["a"], ["a"], ["a", "b"]]


def test_a_broken_preset_changes_nothing_and_is_told_once(monkeypatch, caplog):
    broken = ConfigError("p.ini:1: wrong")
    with caplog.at_level(logging.WARNING):
        found = watched(monkeypatch, folder_of("a"), broken, broken, folder_of("b"), folder_of("b"))
    assert found == [["a"], ["a"], ["a"], ["b"]]
    assert caplog.text.count("p.ini:1: wrong") == 1


@pytest.mark.parametrize("error", [ValueError("a NaN"), OSError(5, "of a cache"), MemoryError(), RecursionError()])
def test_any_exception_of_a_look_is_told_once_and_the_next_look_comes(monkeypatch, caplog, error):
    with caplog.at_level(logging.WARNING):
        found = watched(monkeypatch, folder_of("a"), error, error, folder_of("b"), folder_of("b"))
    assert found == [["a"], ["a"], ["a"], ["b"]]
    assert caplog.text.count(repr(error)) == 1


def test_a_folder_that_becomes_empty_is_an_empty_list(monkeypatch):
    assert watched(monkeypatch, folder_of("a"), {}, {}) == [["a"], []]


def reading(monkeypatch, *looks):
    """A watch of a folder of the model a, before its next looks."""
    pool = ModelPool(FakeLauncher(), 2, 10)
    pool.reload(folder_of("a"))
    monkeypatch.setattr(serving, "read_folder", Folder(*looks))
    return FolderWatch(folder_config(), pool), pool


def test_on_request_it_is_taken_at_once(monkeypatch):
    watch, pool = reading(monkeypatch, folder_of("b"))
    assert asyncio.run(watch.reload())
    assert sorted(pool.models) == ["b"]


@pytest.mark.parametrize("error", [ConfigError("p.ini:1: wrong"), ValueError("a NaN")])
def test_on_request_what_is_wrong_changes_nothing_and_is_told(monkeypatch, caplog, error):
    watch, pool = reading(monkeypatch, error)
    assert not asyncio.run(watch.reload())
    assert sorted(pool.models) == ["a"]
    assert str(error) in caplog.text


def test_at_the_start_a_wrong_preset_is_refused_and_any_other_exception_told(monkeypatch, caplog):
    watch, pool = reading(monkeypatch, ConfigError("p.ini:1: wrong"), ValueError("a NaN"))
    with pytest.raises(ConfigError):
        asyncio.run(watch.read())
    asyncio.run(watch.read())
    assert sorted(pool.models) == ["a"]
    assert "a NaN" in caplog.text


def test_a_model_that_cannot_be_loaded_has_one_line(monkeypatch, caplog):
    bad = {"x": folder_model("x", facts=HeaderFacts(problem="damaged"))}
    watch, _ = reading(monkeypatch, bad)
    for _look in range(3):
        asyncio.run(watch.reload())
    assert caplog.messages == ["x is listed, and cannot be loaded: damaged"]


@pytest.mark.parametrize(
    ("terminals", "stops"), [([True, True], False), ([True, False], True), ([False, False], False)]
)
def test_a_hangup_reads_the_folder_unless_the_terminal_is_gone(monkeypatch, terminals, stops):
    async def main():
        stop, read = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(serving, "has_terminal", iter(terminals).__next__)
        watch = FolderWatch(folder_config(), ModelPool(FakeLauncher(), 2, 10))
        monkeypatch.setattr(watch, "hang_up", read.set)
        with serving._signals(stop, watch):
            os.kill(os.getpid(), signal.SIGHUP)
            while not (stop.is_set() or read.is_set()):
                await asyncio.sleep(0)
        return stop.is_set(), read.is_set()

    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert asyncio.run(main()) == (stops, not stops)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def test_too_many_models_at_the_start_are_refused():
    pool = ModelPool(FakeLauncher(), 1, 10)
    pool.reload({name: replace(folder_model(name), loads_at_start=True) for name in "ab"})
    with pytest.raises(ConfigError, match="load-on-startup: 2 models, of which --models-max lets 1 be loaded"):
        serving._first_models(pool, 1)


def test_nothing_is_announced_where_the_models_of_the_start_are_refused(monkeypatch):
    models = {name: replace(folder_model(name), loads_at_start=True) for name in "ab"}
    monkeypatch.setattr(serving, "read_folder", lambda *args: models)
    monkeypatch.setattr(serving.Listener, "open", lambda config: pytest.fail("it opened its port"))
    announced = []
    with pytest.raises(ConfigError, match="load-on-startup: 2 models"):
        serving.serve_folder(folder_config(1), {}, print, lambda *ready: announced.append(ready))
    assert announced == []
