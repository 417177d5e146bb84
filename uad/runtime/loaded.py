"""Questions that other parts may ask a loaded target, perhaps with a draft. Runs nothing."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

from uad.base.events import AdapterInfo, EngineSnapshot, RuntimeInfo
from uad.base.token_ids import check_ids
from uad.base.types import Clock, Request
from uad.runtime.open import Parts
from uad.text.prompts import TextService
from uad.text.sight import no_sight


class Loaded:
    """The runtime of `build`, and all that may be read of it from any thread. Use with `with`, or call `close()`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._engine = parts.engine
        self.info: RuntimeInfo = parts.info
        self.text: TextService = parts.text
        """Texts to ids and back."""

    def close(self) -> None:
        """Frees the models."""
        self._parts.stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def clock(self) -> Clock:
        """The clock that requests are timed with."""
        return self._parts.timing.clock

    @property
    def sees_images(self) -> bool:
        """Whether requests may have images."""
        return self.text.sight is not None

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError or ContextOverflowError where the request cannot be answered."""
        self._checked(request)

    def _checked(self, request: Request) -> Request:
        """The request with the places of its images. Raises what `check` does."""
        if request.images:
            if self.text.sight is None:
                raise no_sight()
            request = self.text.sight.placed(request)
        check_ids(request, self.info.target.n_vocab)
        self._engine.requests.check(request)
        return request

    def snapshot(self) -> EngineSnapshot:
        """The engine's work so far, and its state now."""
        engine = self._engine
        return EngineSnapshot(engine.slots(), engine.totals(), engine.drafters(), self.adapters())

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The target's adapters, with how much of each is added for requests that do not say."""
        infos = self._parts.target.model.adapters.infos
        return tuple(replace(info, scale=scale) for info, scale in zip(infos, self._parts.turns.default, strict=True))
