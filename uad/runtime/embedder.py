"""An embedding model and the thread that runs it, as the server sees it: in place of the runtime of one that writes.
There is no draft, no slot and no round; each pass embeds texts of one or several requests.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from uad.base.common.embedding import EmbeddingFacts, Embeds, Ids, Vectors
from uad.base.config import Config
from uad.base.console import Report
from uad.base.errors import DecodeError, NotSupportedError, UadError, UnavailableError
from uad.base.events import (
    EngineSnapshot,
    EngineView,
    RuntimeInfo,
    Sink,
    SleepState,
    SlotAction,
    SlotInfo,
    SlotOutcome,
    Totals,
)
from uad.base.types import Origin, Request
from uad.llama.backend import abort, native, rpc
from uad.llama.embedding import CHUNK, EmbeddingContext
from uad.llama.model import Model
from uad.runtime.commands import Commands
from uad.runtime.embedding_text import EmbeddingText
from uad.runtime.plan import device_notes
from uad.runtime.sleep import Sleeper
from uad.runtime.target import kernel_notes
from uad.runtime.text_queue import TextJob, TextQueue
from uad.runtime.timing import TIMING
from uad.text.mapping.recognise import bos_name, eos_name

_log = logging.getLogger("uad")
_GEMMA = {"query": "task: search result | query: ", "document": "title: {title} | text: "}
"""Prefixes that EmbeddingGemma was trained with; its files do not say them."""


class _EmbeddingPasses:
    """Runs passes over queued texts, on the model thread."""

    def __init__(self, config: Config, progress: Report, commands: Commands) -> None:
        native.start().verbose = config.verbose
        native.use_numa(config.numa)
        if config.rpc:
            rpc.connect(config.rpc)
        own = replace(config.target, embeds=True)
        self.model = Model(own, "target", lambda share: progress("loading target", share))
        try:
            pooling = "rank" if config.embedding.ranks and not config.embedding.pooling else config.embedding.pooling
            self.context = EmbeddingContext(self.model, own, pooling)
        except BaseException:
            self.model.close()
            raise
        self.sleeper = Sleeper(self, [self.context], TIMING.clock, None, commands)
        self.totals = Totals()
        self.n_busy = 0
        """Texts in the pass that runs."""
        self._queue, self._commands = TextQueue(CHUNK, self.context.n_together), commands

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return self._queue.is_empty

    def leave(self) -> None:
        """Nothing is kept between passes."""

    def hold(self, origin: Origin, is_held: bool) -> None:
        """Nothing drafts."""

    def add(self, job: TextJob) -> None:
        """Queue the texts, with the model loaded."""
        try:
            self.sleeper.load()
        except UadError as error:
            job.fail(error)
        else:
            self._queue.add(job)

    def run(self) -> None:
        """Make passes until the commands end; then end all requests."""
        try:
            while self._obey():
                self._pass(self._queue.take())
            self._queue.fail_all(UnavailableError("the server is shutting down"))
        except Exception as error:
            self._commands.refuse(error, self.fail_all)

    def _obey(self) -> bool:
        while True:
            try:
                command = self._commands.get(block=self._queue.is_empty)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _pass(self, taken: Sequence[tuple[TextJob, int]]) -> None:
        texts = [job.texts[place] for job, place in taken]
        began, self.n_busy = TIMING.clock(), len(texts)
        try:
            vectors = self.context.embed(texts)
        except DecodeError as error:
            for text in taken if len(taken) > 1 else ():  # those that are not at fault have their vectors
                self._pass([text])
            if len(taken) == 1:
                taken[0][0].fail(error)
                self.totals += Totals(n_failed=1)
            return
        finally:
            self.n_busy = 0
        self.totals += Totals(
            n_requests=len(texts),
            n_prompt=sum(map(len, texts)),
            n_decodes=1,
            n_busy_slots=len(texts),
            n_tokens_max=max(map(len, texts)),
            prompt_ms=1e3 * (TIMING.clock() - began),
        )
        for (job, place), rows in zip(taken, vectors, strict=True):
            job.put(place, rows)

    def fail_all(self, error: UadError) -> None:
        """End all requests that wait."""
        self._queue.fail_all(error)

    def close(self) -> None:
        """Free the model."""
        self.context.close()
        self.model.close()


class Embedder(native.Owner):
    """Texts to vectors, from any thread. Raises ModelLoadError or ConfigError."""

    def __init__(self, config: Config, progress: Report) -> None:
        self._config, self._commands = config, Commands()
        built: Future[_EmbeddingPasses] = Future()
        self._thread = threading.Thread(target=self._main, args=(built, progress), name="uad-model", daemon=True)
        self._thread.start()
        self._passes = built.result()
        context, own = self._passes.context, config.embedding
        self.text = EmbeddingText(self._passes.model, config.templates, context.n_most)
        self.ids, self.pair, self.cut = self.text.ids, self.text.pair, self.text.cut
        known = _GEMMA if self._passes.model.info.arch == "gemma-embedding" else {}
        self.facts = EmbeddingFacts(
            context.pooling, context.width, context.n_most, own.normalize, {**known, **dict(own.prefixes)}
        )
        self.sleeper = self._passes.sleeper
        self._forget = abort.listen(lambda message: self._commands.give_up(message, self._passes.fail_all))

    def _main(self, built: Future[_EmbeddingPasses], progress: Report) -> None:
        try:
            with abort.starting():
                passes = _EmbeddingPasses(self._config, progress, self._commands)
        except BaseException as error:
            built.set_exception(error)
            return
        built.set_result(passes)
        try:
            passes.run()
        finally:
            passes.close()

    @property
    def commands(self) -> Commands:
        """Requests to the model thread."""
        return self._commands

    def embed(self, texts: Sequence[Ids]) -> Future[list[Vectors]]:
        """Queue texts, of up to `facts.n_most` ids and one at least. The future has their vectors, or UadError; one
        that is cancelled takes back what is left. Raises UnavailableError.
        """
        commands, job = self._commands, TextJob(texts)
        if commands.error is not None:
            raise UnavailableError(
                f"the model stopped after an error and the server must be restarted: {commands.error}"
            )
        self.sleeper.call_off()
        if not commands.post(lambda: self._passes.add(job)):
            raise UnavailableError("the server is shutting down")
        return job.future

    def info(self) -> RuntimeInfo:
        """The model, for lists and for the lines at start."""
        model, context = self._passes.model, self._passes.context
        together = (
            f"texts of up to {CHUNK} tokens together share passes, each with the bits that it has alone"
            if context.n_together > 1
            else "each text has a pass of its own, whose bits no other text changes"
        )
        what = "ranks documents" if self.facts.ranks else f"embeds texts in {context.width} numbers"
        notes = (
            f"{what}: pooling {context.pooling}, texts of up to {context.n_most} tokens; {together}",
            *device_notes(self._config),
            *kernel_notes(replace(self._config.target, embeds=True), model),
        )
        names = bos_name(model.vocab), eos_name(model.vocab)
        info = RuntimeInfo(model.info, None, context.n_most, 1, native.build_info(), notes)
        return replace(info, bos_token=names[0], eos_token=names[1])

    def work(self) -> tuple[Totals, int]:
        """Counts since start, and how many texts the pass has that runs."""
        return self._passes.totals, self._passes.n_busy

    def close(self) -> None:
        """Ends requests with UnavailableError after the pass that runs, and frees the model."""
        with self._commands.lock:
            if self._commands.is_closed:
                return
            self._commands.is_closed = True
            self._commands.put(None)
        if self._commands.gave_up():
            return
        self._thread.join()
        self._forget()


class EmbeddingRuntime(native.Owner):
    """A server's runtime that embeds. Methods that write text raise NotSupportedError."""

    sees_images = False

    def __init__(self, config: Config, progress: Report) -> None:
        self.config = config
        self.embedder = Embedder(config, progress)
        self.embeds: Embeds | None = self.embedder
        self.info = self.embedder.info()
        self.text = self.embedder.text
        commands, sleeper = self.embedder.commands, self.embedder.sleeper
        self.fall_asleep, self.wake = sleeper.fall_asleep, sleeper.wake
        self.when_stopped = commands.when_stopped

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the model thread, if one did."""
        return self.embedder.commands.error

    @property
    def sleep(self) -> SleepState:
        """Whether the model is unloaded."""
        return self.embedder.sleeper.state

    def snapshot(self) -> EngineSnapshot:
        """The work so far: ids that were read are those of prompts. One slot stands for the passes."""
        totals, n_busy = self.embedder.work()
        return EngineSnapshot((SlotInfo(0, None, 0, n_busy > 0),), totals, (), ())

    def look(self, show: Callable[[EngineView], None]) -> None:
        """Call `show` with ids and passes so far, in place of ids written and rounds."""
        totals, _ = self.embedder.work()
        show(EngineView(n_written=totals.n_prompt, n_rounds=totals.n_decodes))

    def submit(self, request: Request, sink: Sink) -> int:
        """Raises NotSupportedError."""
        raise NotSupportedError(self.embedder.facts.instead)

    def cancel(self, request: int, why: str = "cancelled") -> None:
        """No request has a number."""

    def set_adapters(self, scales: tuple[float, ...]) -> None:
        """Raises NotSupportedError."""
        raise NotSupportedError("adapters of an embedding model are chosen at start, with --lora")

    def slot_action(self, action: SlotAction, slot: int, name: str = "") -> Future[SlotOutcome]:
        """Raises NotSupportedError."""
        raise NotSupportedError(self.embedder.facts.instead)

    def close(self) -> None:
        self.embedder.close()
