"""Real parts for tests: the bundled models, quantized copies of the target, and a way to run requests on a runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.toys import Collector
from uad.base.config import Config, DraftingConfig, ModelConfig, ServerConfig
from uad.base.events import Delta, EngineView, Event
from uad.base.types import Request
from uad.runtime.runtime import Runtime

SAMPLES = Path(__file__).parents[2] / "samples"
TARGET = SAMPLES / "target-chatml.gguf"
DRAFTS = {"zephyr": SAMPLES / "draft-zephyr.gguf", "gemma": SAMPLES / "draft-gemma.gguf"}
HEADS = {kind: SAMPLES / "heads" / f"{kind}-target-chatml.gguf" for kind in ("dflash", "eagle3")}
FTYPES = {"f16": 1, "q4_0": 2, "q8_0": 7, "bf16": 32, "q4_k_m": 15}

TASKS = (
    "Write a Python function that adds {a} and {b}.",
    "Write a Python class named {A} with the fields {b}, {c}, {a}.",
    "Repeat the following sentence, as is:\nThe {a} and the {b} waited for the {c} before dinner.",
    "Make a bulleted list of: {a}, {b}, {c}.",
    "Tell a short story about the {a} in Oslo.",
    "Write this as JSON: {a} is 12; {b} is red; {c} is true.",
    "Count from {n} to {m} in steps of 2.",
    "Repeat the following words, as is: café 東京 привет 😀 {a}",
)
WORDS = (
    "river",
    "stone",
    "lantern",
    "cart",
    "price",
    "queue",
    "baker",
    "token",
    "mirror",
    "walnut",
    "garden",
    "engine",
)


def exact_config(
    target: Path = TARGET,
    draft: Path | None = None,
    slots: int = 1,
    types: tuple[str, ...] = (),
    folder: Path | None = None,
    **fields: Any,
) -> Config:
    """With --exact, 512 positions a slot, and one thread; slots are saved in `folder`. fields: of the target."""
    return Config(
        target=ModelConfig(target, n_ctx=512 * slots, n_threads=1, **fields),
        draft=ModelConfig(draft, n_threads=1) if draft is not None else None,
        n_parallel=slots,
        drafting=DraftingConfig(exact=True, types=types),
        server=ServerConfig(slot_save_path=folder),
    )


def settled(runtime: Runtime, seconds: float = 60.0) -> None:
    """The model thread has done all that was asked of it before."""
    reached = threading.Event()

    def tell(view: EngineView) -> None:
        reached.set()

    runtime.look(tell)
    assert reached.wait(seconds)


def chat_prompts(n: int) -> list[str]:
    """n different questions of the kinds that the bundled models know."""
    out = []
    for i in range(n):
        a, b, c = (WORDS[(i * k + k) % len(WORDS)] for k in (1, 5, 7))
        out.append(TASKS[i % len(TASKS)].format(a=a, b=b, c=c, A=a.capitalize(), n=i, m=i + 20))
    return out


def quantized(kind: str, folder: Path) -> Path:
    """The bundled target in another number type, written once."""
    import llama_cpp.llama_cpp as lib

    from uad.llama.backend import native

    out = folder / f"target-{kind}.gguf"
    if not out.exists():
        native.start()
        params = lib.llama_model_quantize_default_params()
        params.ftype, params.nthread = FTYPES[kind], 2
        assert lib.llama_model_quantize(str(TARGET).encode(), str(out).encode(), params) == 0
    return out


def config(
    target: Path = TARGET, draft: Path | None = DRAFTS["zephyr"], slots: int = 1, n_ctx: int = 2048, **drafting: Any
) -> Config:
    return Config(
        target=ModelConfig(target, n_ctx=n_ctx * slots, n_threads=2),
        draft=None if draft is None else ModelConfig(draft, n_threads=1),
        n_parallel=slots,
        drafting=DraftingConfig(**drafting),
    )


class Waiter(Collector):
    """A sink that another thread can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if not isinstance(event, Delta):
            self.over.set()


def finish(runtime: Runtime, requests: Iterable[Request], timeout: float = 120) -> list[Waiter]:
    """All requests at once, to the end."""
    waiters = []
    for request in requests:
        waiters.append(Waiter())
        runtime.submit(request, waiters[-1])
    for waiter in waiters:
        assert waiter.over.wait(timeout), "no answer in time"
        _ = waiter.done
    assert not any(one.n_failures for one in runtime.snapshot().drafters), "a drafter failed"
    assert not runtime.snapshot().totals.n_policy_failures
    return waiters


def chat_requests(runtime: Runtime, prompts: Sequence[str], request: Request) -> list[Request]:
    return [
        replace(request, prompt=tuple(runtime.text.chat([{"role": "user", "content": prompt}], {})))
        for prompt in prompts
    ]
