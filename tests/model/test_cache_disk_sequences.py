"""The prompt cache on a disk in any sequence of events: no wrong text, no crash, no file that is half-written."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kit.disk_cache import FIXED, OFF, OTHER, TALK, WARM, FaultyDisk, config, ids, make_it_worth_it, say, texts_in
from kit.models import Waiter, finish
from kit.tiny_models import make

from uad.base.errors import UadError
from uad.base.events import SlotAction
from uad.base.types import GREEDY, Origin, Request, SamplingParams
from uad.runtime.runtime import Runtime
from uad.runtime.slots.file import read_slot

pytestmark = pytest.mark.model
USUAL = ("ask", "ask", "ask", "several", "save", "restore", "erase", "cancel", "settle", "damage", "vanish")
RARE = ("restart", "neighbour", "full", "killed", "other model")


class World:
    """A server with two slots whose cache is on a disk, now and then a second one that shares its folder, and what
    happens to both. `alone` has no cache: its texts are the right ones.
    """

    def __init__(self, folder: Path, name: str, faulty: FaultyDisk) -> None:
        self.folder, self.faulty = folder, faulty
        path = make(name, folder)
        self.own = replace(config(folder, path, path, slots=2, types=(Origin.MODEL, Origin.SUFFIX)), cache_disk_size=1)
        self.other = replace(self.own, target=replace(self.own.target, path=make(name, folder, seed=1)))
        self.open = ExitStack()
        self.alone = self.open.enter_context(Runtime.open(config_alone(self.own)))
        self.alone_other = self.open.enter_context(Runtime.open(config_alone(self.other)))
        self.server = Runtime.open(self.own)
        self.expected: dict[tuple[Runtime, tuple[int, ...], SamplingParams], list[int]] = {}
        self.damaged: set[str] = set()
        self.n_asked = self.n_from_disk = 0
        texts = [ids(self.alone, text) for text in (TALK, OTHER)]
        self.prompts = [(*text[:n], *end[:5]) for text in texts for n in (40, 60, 80) for end in texts]

    def close(self) -> None:
        self.server.close()
        self.open.close()

    def step(self, rng: random.Random, action: str) -> None:
        """One event."""
        server, disk = self.server, self.server._parts.disk
        slot, file = rng.randrange(2), f"{rng.randrange(3)}"
        if action == "ask":
            self.ask(rng, server, self.alone, 1)
        elif action == "several":
            self.ask(rng, server, self.alone, 3)
        elif action in ("save", "restore", "erase"):
            with suppress(UadError):
                server.slot_action(SlotAction(action), slot, file).result(60)
        elif action == "cancel":
            waiter = Waiter()
            number = server.submit(Request(rng.choice(self.prompts), WARM, FIXED, max_tokens=64), waiter)
            if rng.random() < 0.5:
                assert waiter.over.wait(120)
            server.cancel(number)
        elif action == "settle":
            disk.settle()
        elif action == "restart":
            self.restart(rng)
        elif action == "neighbour":
            with Runtime.open(replace(self.own, cache_ram=0)) as other:
                for _ in range(3):
                    self.ask(rng, other, self.alone, 1)
                    self.ask(rng, server, self.alone, 1)
        elif action == "other model":
            with Runtime.open(self.other) as other:
                self.ask(rng, other, self.alone_other, 1)
        elif action in ("full", "killed"):
            self.faulty.fault = action
            for _ in range(3):
                self.ask(rng, server, self.alone, 1)
            disk.settle()
            self.faulty.fault = ""
        elif texts := texts_in(self.folder):
            path = rng.choice(texts)
            with suppress(FileNotFoundError):
                if action == "vanish":
                    path.unlink()
                else:
                    self.damage(rng, path)

    def damage(self, rng: random.Random, path: Path) -> None:
        """A bit is another, or the end is missing. A server may write the file anew meanwhile."""
        data = bytearray(path.read_bytes())
        if not data:
            return
        if rng.random() < 0.5:
            data = data[: rng.randrange(len(data))]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        self.damaged.add(path.name)

    def restart(self, rng: random.Random) -> None:
        self.n_from_disk += self.server.snapshot().totals.cache.n_from_disk
        self.server.close()
        self.server = Runtime.open(replace(self.own, cache_ram=rng.choice([0, 1, 64])))

    def ask(self, rng: random.Random, server: Runtime, alone: Runtime, n: int) -> None:
        """Some prompts at once; each answer must be the right one."""
        asked = [(rng.choice(self.prompts), rng.choice([WARM, GREEDY])) for _ in range(n)]
        requests = [
            Request(prompt, sampling, rng.choice([OFF, FIXED]), max_tokens=16, slot=rng.choice([-1, -1, 0, 1]))
            for prompt, sampling in asked
        ]
        for key, waiter in zip(asked, finish(server, requests), strict=True):
            if (alone, *key) not in self.expected:
                prompt, sampling = key
                self.expected[alone, prompt, sampling] = say(alone, prompt, OFF, sampling, cache_prompt=False).ids
            assert waiter.ids == self.expected[alone, *key]
            self.n_asked += 1

    def check(self) -> None:
        """What lies on the disk is whole, but for what was damaged on purpose, and is not too much."""
        looked = threading.Event()
        self.server.look(lambda _: looked.set())  # after that nothing is copied while it rests
        assert looked.wait(120)
        self.server._parts.disk.settle()
        names = {path.name for path in (self.folder / "cache").iterdir()}
        texts = texts_in(self.folder)
        left = {name for name in names if name not in {path.name for path in texts}}
        assert all(name.endswith("k") for name in left), "only what was killed is left"
        assert self.server._parts.disk._writer.waiting == {}
        assert self.server._parts.disk._writer._n_waiting == 0
        for path in texts:
            try:
                read_slot(path, {}, [])
            except UadError:
                assert path.name in self.damaged
        for name in left:
            (self.folder / "cache" / name).unlink()
        self.server._parts.disk._files.look()
        assert self.server._parts.disk.counts().n_disk_bytes <= 1 << 20


def config_alone(own):
    return replace(
        own, draft=None, drafting=replace(own.drafting, types=()), cache_disk=None, cache_ram=0, n_parallel=1
    )


def run(world: World, seed: int, n_steps: int) -> None:
    """One sequence, after which all is checked."""
    rng = random.Random(seed)
    for _ in range(n_steps):
        world.step(rng, rng.choice(RARE) if rng.random() < 0.12 else rng.choice(USUAL))
    world.check()


@pytest.mark.parametrize(("name", "seed"), [("llama", 1), ("mamba", 2)])
def test_any_sequence_of_events_leaves_the_text_as_it_is(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_it_worth_it(monkeypatch)
    world = World(tmp_path, name, FaultyDisk(monkeypatch))
    try:
        for i in range(4):
            run(world, 1000 * seed + i, 12)
        for action in RARE:
            world.step(random.Random(seed), action)
        world.check()
        world.restart(random.Random(seed))
    finally:
        world.close()
    assert world.n_asked > 20
    assert world.n_from_disk > 0
    assert world.faulty.n_faults > 0
