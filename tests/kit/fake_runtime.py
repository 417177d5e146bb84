"""A scripted runtime: one thread that says a given text, a few bytes per round. No model; a token is a byte or one of
three specials.
"""

from __future__ import annotations

import math
import threading
import time
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from kit.grammar_kit import GRAMMARS, TABLE
from uad.base.common.embedding import Embeds
from uad.base.config import Config, ModelConfig
from uad.base.errors import ContextOverflowError, InvalidRequestError, UadError, UnavailableError
from uad.base.events import (
    AdapterInfo,
    Delta,
    Done,
    EngineSnapshot,
    EngineView,
    Event,
    Failed,
    ModelInfo,
    Progress,
    RuntimeInfo,
    Sink,
    SleepState,
    SlotAction,
    SlotInfo,
    SlotOutcome,
    TokenText,
    Totals,
)
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.token_ids import check_ids
from uad.base.types import (
    IMAGE_PLACE,
    Constraint,
    Crossing,
    Finish,
    Image,
    Origin,
    Request,
    SamplingParams,
    StopKind,
    TokenProb,
)
from uad.text.calls.format import AnswerFormat
from uad.text.vocab.table import VocabTable

BOS, EOS, TURN = 256, 257, 258
SPECIALS = {BOS: b"<s>", EOS: b"</s>", TURN: b"<|turn|>"}
N_VOCAB = 259
CONFIG = Config(target=ModelConfig(path=Path("toy.gguf")))
TEMPLATE = "{{ bos_token }}{% for m in messages %}…{% endfor %}"

Script = Callable[[Request], bytes]


def echo(request: Request) -> bytes:
    """Says the prompt's bytes back, in upper case, and the seed."""
    said = bytes(id_ for id_ in request.prompt if 0 <= id_ < 256).upper()
    return said + f" [{request.sampling.seed}]".encode()


def turns(messages: Sequence[Mapping[str, object]]) -> str:
    """A chat as it is rendered, without what begins the answer."""
    return "".join(f"{message['role']}:{message['content']}\n" for message in messages)


@dataclass
class Running:
    id: int
    request: Request
    sink: Sink
    answer: bytes
    n_sent: int = 0
    slot: int = -1
    decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("replace"))

    def text(self, data: bytes, final: bool = False) -> str:
        return self.decoder.decode(data, final)


REJECTED = "¿guess?"
HELD = 1
"""Ids of each prompt that the slot held."""
LONGEST = 8
"""Bytes that one id of a real vocabulary might stand for."""


@dataclass
class FakeRuntime:
    """Rounds begin when `go` is set; each says `step` bytes per sequence. every request fails with `fail` after
    `fail_after` bytes. by: who drafted the byte at a place of the answer, where a request drafts. seen: what
    `look` shows. loaded_again: when the models are loaded after sleep; None: at once.
    """

    script: Script = echo
    config: Config = CONFIG
    n_slots: int = 2
    loaded: tuple[Origin, ...] = (Origin.SUFFIX, Origin.MODEL)
    n_ctx: int = 4096
    step: int = 3
    answers: AnswerFormat = field(default_factory=AnswerFormat)
    eog: Mapping[int, str] = field(default_factory=dict)
    fail: Exception | None = None
    fail_after: int = 0
    pause: float = 0.0
    by: Callable[[int], Origin] = lambda place: Origin.TARGET
    seen: EngineView = field(default_factory=EngineView)
    error: UadError | None = None
    scales: tuple[float, ...] = ()
    sees_images: bool = False
    embeds: Embeds | None = None
    go: threading.Event = field(default_factory=threading.Event)
    requests: list[Request] = field(default_factory=list)
    chats: list[tuple[list[Mapping[str, object]], dict[str, object], bool]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why, of each that was cancelled."""
    slot_actions: list[tuple[SlotAction, int, str]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    sleep: SleepState = field(default_factory=SleepState)
    n_fell_asleep: int = 0
    loaded_again: Future[None] | None = None

    def __post_init__(self) -> None:
        model = ModelInfo("toy.gguf", "toy", 10, 20, 8192, N_VOCAB, 4, 1, "F16", TEMPLATE)
        self.info = RuntimeInfo(
            target=model,
            draft=None,
            n_ctx=self.n_ctx,
            n_slots=self.n_slots,
            build="b1-toy",
            drafters=self.loaded,
            eog=self.eog,
        )
        self.go.set()
        self._lock = threading.Condition()
        self._running: list[Running] = []
        self._n = 0
        self._is_closed = False
        self._totals = Totals()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def __enter__(self) -> FakeRuntime:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        self.go.set()
        self._thread.join(120)

    @property
    def text(self) -> FakeRuntime:
        """The double speaks for its own texts, too."""
        return self

    @property
    def vocab(self) -> VocabTable:
        return TABLE

    def template_caps(self) -> Mapping[str, bool]:
        self.threads.add(threading.current_thread().name)
        return {"supports_tools": True}

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return tuple(AdapterInfo(i, f"{i}.gguf", scale, "task") for i, scale in enumerate(self.scales))

    def set_adapters(self, scales: tuple[float, ...]) -> None:
        self.scales = scales

    def when_stopped(self, call: Callable[[], object]) -> None:
        self.told_when_stopped = call

    def submit(self, request: Request, sink: Sink) -> int:
        if self.error is not None:
            raise UnavailableError(str(self.error))
        if len(request.prompt) >= self.n_ctx:
            raise ContextOverflowError(len(request.prompt), self.n_ctx)
        check_ids(replace(request, prompt=tuple(id_ for id_ in request.prompt if id_ >= 0)), N_VOCAB)
        with self._lock:
            self._n += 1
            self.requests.append(request)
            self._running.append(Running(self._n, request, sink, self.script(request)))
            self._lock.notify()
            return self._n

    def cancel(self, request: int, why: str = "cancelled") -> None:
        with self._lock:
            self.cancelled.append(request)
            self.reasons.append(why)
            self._running = [one for one in self._running if one.id != request]

    def check_length(self, text: str) -> None:
        if len(text) > LONGEST * self.n_ctx:
            raise ContextOverflowError(len(text) // LONGEST, self.n_ctx)

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = True, images: Sequence[Image] = ()
    ) -> list[int]:
        """An image is its marker, and an id below 0."""
        self.threads.add(threading.current_thread().name)
        ids = [BOS] * add_special + list(text.encode())
        if images:
            first, *others = text.split(IMAGE_PLACE)
            ids = [BOS] * add_special + list(first.encode())
            for i, (_, other) in enumerate(zip(images, others, strict=True)):
                ids += [*IMAGE_PLACE.encode(), -7 - i, *other.encode()]
        return ids

    def detokenize(self, ids: Sequence[int]) -> bytes:
        assert min(ids, default=0) >= 0
        return b"".join(self.piece(id_) for id_ in ids)

    def piece(self, id_: int) -> bytes:
        self.threads.add(threading.current_thread().name)
        return SPECIALS.get(id_) or bytes([id_])

    def chat_text(
        self,
        messages: Sequence[Mapping[str, object]],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
    ) -> str:
        self.chats.append((list(messages), dict(kwargs), add_generation_prompt))
        return turns(messages) + "assistant:" * add_generation_prompt + prefill

    def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
        images: Sequence[Image] = (),
    ) -> list[int]:
        text = self.chat_text(messages, kwargs, add_generation_prompt, prefill)
        return self.tokenize(text, add_special, images=images)

    def check_constraint(self, constraint: Constraint) -> None:
        self.threads.add(threading.current_thread().name)
        GRAMMARS.check(constraint)

    def check_sampling(self, sampling: SamplingParams) -> None:
        self.threads.add(threading.current_thread().name)

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(self.slots(), self._totals, self.drafters(), self.adapters())

    def slots(self) -> tuple[SlotInfo, ...]:
        with self._lock:
            busy = [one.id for one in self._running[: self.n_slots]]
        ids = [*busy, *[None] * (self.n_slots - len(busy))]
        return tuple(SlotInfo(i, id_, 0, id_ is not None) for i, id_ in enumerate(ids))

    def drafters(self) -> tuple[DrafterStats, ...]:
        return (DrafterStats(Origin.MODEL, 5, 4, 12, 9, 30.0), DrafterStats(Origin.SUFFIX, 5, 1, 3, 3, 0.5))

    def slot_action(self, action: SlotAction, slot: int, name: str = "") -> Future[SlotOutcome]:
        self.slot_actions.append((action, slot, name))
        if not 0 <= slot < self.n_slots:
            raise InvalidRequestError("Invalid slot ID", "id_slot")
        outcome: Future[SlotOutcome] = Future()
        if self.fail is not None:
            outcome.set_exception(self.fail)
        else:
            outcome.set_result(SlotOutcome(84, 4096, 1.5))
        return outcome

    def fall_asleep(self) -> None:
        self.n_fell_asleep += 1
        self.sleep = replace(self.sleep, is_asleep=True)

    def wake(self) -> Future[None]:
        """Done at once, or when somebody says that of `loaded_again`, which all that wait share."""
        woken: Future[None] = Future()

        def load(done: Future[None] | None) -> None:
            if not woken.set_running_or_notify_cancel():
                return
            if done is not None and (error := done.exception()) is not None:
                woken.set_exception(error)
                return
            self.sleep = replace(self.sleep, is_asleep=False, n_wakes=self.sleep.n_wakes + 1)
            woken.set_result(None)

        if self.loaded_again is None:
            load(None)
        else:
            self.loaded_again.add_done_callback(load)
        return woken

    def look(self, show: Callable[[EngineView], None]) -> None:
        show(self.seen)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._running or self._is_closed)
                if self._is_closed:
                    return
            self.go.wait()
            time.sleep(self.pause)
            with self._lock:
                turn = self._running[: self.n_slots]
            for slot, one in enumerate(turn):
                one.slot = slot
                self._round(one)

    def _round(self, one: Running) -> None:
        if self.fail is not None and one.n_sent >= self.fail_after:
            return self._end(one, Failed(one.id, self.fail))
        data, n = one.answer, len(range(len(one.answer))[: one.request.max_tokens])
        for word in one.request.stop:
            if (at := data.find(word.encode(), 0, n)) >= 0:
                return self._end(one, *self._finale(one, data[:at], StopKind.WORD, word))
        if one.n_sent + self.step >= n:
            kind = StopKind.LIMIT if n < len(data) else StopKind.EOS
            return self._end(one, *self._finale(one, data[:n], kind, ""))
        self._emit(one, self._delta(one, data[one.n_sent : one.n_sent + self.step]))
        return None

    def _finale(self, one: Running, data: bytes, kind: StopKind, word: str) -> tuple[Event, Event]:
        rest = data[one.n_sent :]
        delta = self._delta(one, rest[:-1])
        n = one.n_sent
        finish = Finish.LENGTH if kind is StopKind.LIMIT else Finish.STOP
        stats = DraftStats(
            n_rounds=n, n_drafts=n, n_drafted=2 * n, n_accepted=n, crossing=Crossing(8 * n, 6 * n, 50.0 * n)
        )
        draft = stats if one.request.speculative.enabled else DraftStats()
        timings = Timings(1.0, 2.0, len(one.request.prompt), 0, n, draft)
        usage = Usage(len(one.request.prompt), HELD, n)
        seed = one.request.sampling.seed
        done = Done(
            one.id,
            finish,
            kind,
            usage,
            timings,
            one.text(rest[-1:], final=True),
            word,
            4242 if seed is None else seed,
            one.slot,
            False,
        )
        self._totals += Totals.of(done)
        return delta, done

    def _delta(self, one: Running, data: bytes) -> Delta:
        self._tell_progress(one)
        origins = tuple(self._origin(one, one.n_sent + i) for i in range(len(data)))
        one.n_sent += len(data)
        texts = [one.text(data[i : i + 1]) for i in range(len(data))]
        told = zip(texts, origins, strict=True) if one.request.origins else ()
        tokens = tuple(
            TokenText(text, by, REJECTED if by is Origin.TARGET and i and origins[i - 1] is not by else "")
            for i, (text, by) in enumerate(told)
        )
        probs = tuple(self._prob(id_, one.request.n_probs) for id_ in data) if one.request.logprobs else ()
        timings = Timings(1.0, 2.0, len(one.request.prompt), 0, one.n_sent) if one.request.timings else None
        return Delta(one.id, tuple(data), origins, "".join(texts), probs, tuple(texts), timings, tokens)

    def _origin(self, one: Running, place: int) -> Origin:
        return self.by(place) if one.request.speculative.enabled else Origin.TARGET

    def begin_prompts(self) -> None:
        """Say that the prompts of all requests begin to be read."""
        with self._lock:
            running = list(self._running)
        for one in running:
            self._tell_progress(one)

    def _tell_progress(self, one: Running) -> None:
        """Before the first id, in two steps."""
        request, n = one.request, len(one.request.prompt)
        if one.n_sent or not (request.progress or request.prompt_probs):
            return
        for begin, end in ((0, 0), (0, n)) if request.progress else ((0, n),):
            probs = (
                [self._prob(id_, request.n_probs) for id_ in request.prompt[begin:end]] if request.prompt_probs else []
            )
            if probs:
                probs[0] = replace(probs[0], logprob=math.nan, top=())
            timings = Timings(float(end), 0.0, end, 0, 0) if request.timings else None
            self._emit(one, Progress(one.id, n, HELD, max(end, HELD), float(end), tuple(probs), timings))

    def _prob(self, id_: int, n: int) -> TokenProb:
        top = tuple(TokenProb(i, bytes([i]), float("-inf") if i else -0.5) for i in range(n))
        return TokenProb(id_, SPECIALS.get(id_) or bytes([id_]), -0.25, top)

    def _emit(self, one: Running, event: Event) -> None:
        with self._lock:
            is_running = one in self._running
        if is_running:
            one.sink(event)

    def _end(self, one: Running, *events: Event) -> None:
        for event in events:
            self._emit(one, event)
        with self._lock:
            self._running = [other for other in self._running if other is not one]
