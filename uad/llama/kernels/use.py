"""Uses what is proven of the kernels: registers them before the first model of a process, and switches them by what
each model wants. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import geometric_mean

from uad.base.config import ModelConfig
from uad.base.config.kinds import FASTEST
from uad.base.errors import ConfigError
from uad.llama.backend import native
from uad.llama.backend.devices import extra_buffers, offloads
from uad.llama.backend.ggml import function
from uad.llama.backend.symbols import CPU_DEVICE
from uad.llama.kernels.library import (
    ACTIVATIONS,
    ANYWHERE,
    ATTENTION,
    BUFFER,
    IN_TILES,
    OF_PASSES,
    OFF,
    VARIABLE,
    Library,
    NoKernelsError,
    chosen,
    installed,
)
from uad.llama.kernels.proven import prove_once
from uad.llama.kernels.speed import ROWS

_SLOWER = 1.1  # times as long as llama.cpp: less is noise


@dataclass(frozen=True)
class Kernels:
    """The kernels of a process. kind: of processor, "" where llama.cpp's own kernels do; parts: what is taken over;
    wrong: why other parts are not; reason: why nothing is; times: see `Proven`.
    """

    library: Library | None = None
    kind: str = ""
    parts: tuple[str, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def fastest(self) -> Kernels:
        """The same without types that llama.cpp's own kernels multiply in less time."""
        return replace(self, parts=tuple(part for part in self.parts if not self._is_slower(part)))

    def _is_slower(self, type_: str) -> bool:
        """Whether llama.cpp takes less time in the mean of the passes that were timed."""
        times = self.times.get(type_, ())
        return bool(times) and geometric_mean(times) > 1

    def slower(self, type_: str) -> str:
        """The passes that llama.cpp computes faster with weights of this type here, in words; "" for none."""
        times = zip(ROWS, self.times.get(type_, ()), strict=False)
        passes = [f"{n} row{'s' * (n > 1)} {ratio:.1f} times" for n, ratio in times if ratio > _SLOWER]
        way_out = "; --kernels fastest leaves it to llama.cpp" if self._is_slower(type_) else ""
        return f"{type_} takes longer than in llama.cpp's own ({', '.join(passes)}{way_out})" if passes else ""

    @property
    def types(self) -> tuple[str, ...]:
        """Types of weights that are taken over."""
        return tuple(part for part in self.parts if part not in OF_PASSES)

    @property
    def facts(self) -> dict[str, str]:
        """Facts that change how long passes take, and their bits; empty where llama.cpp's kernels compute."""
        if self.library is None:
            return {}
        return {"kernels": f"{self.kind} {self.library.version} {self.library.digest}: {' '.join(self.parts)}"}

    def take_over(self, types: Collection[str]) -> None:
        """Take over these types, of those that can be, from the next model on."""
        if self.library is not None:
            for part in self.types:
                self.library.set_part(part, part in types)

    def note(self, *words: str, of_passes: Sequence[str] = OF_PASSES) -> str:
        """The line about them; words: what they are used for, beside these parts. Without any it says what there is."""
        if self.library is None:
            return f"kernels: llama.cpp's own ({self.reason})"
        of_passes = [part for part in of_passes if part in self.parts]
        types = [f"for weights of {', '.join(self.types)}"] if self.types else []
        line = f"kernels: {', '.join((self.kind, *(words or types), *of_passes))}"
        return "; ".join((line, *(f"{part} is left to llama.cpp ({why})" for part, why in self.wrong.items())))


@cache
def started() -> Kernels:
    """Registers them, once per process, where anything is proven: before the first model is loaded. Raises ConfigError
    where $UAD_KERNELS names a kind that this machine has not.
    """
    native.start()
    try:
        library = installed()
        if not (kind := chosen(library.kinds)):
            return Kernels(reason=f"{VARIABLE}={OFF}")
        result = prove_once(library, kind)
        if result.reason:
            return Kernels(wrong=result.wrong, reason=result.reason)
        library.register(kind)
    except NoKernelsError as error:
        return Kernels(reason=str(error))
    except ConfigError:
        raise
    except Exception as error:  # llama.cpp's own compute as well
        return Kernels(reason=f"they failed at start: {type(error).__name__}: {error}")
    is_late = BUFFER not in extra_buffers(function("ggml_backend_dev_by_type")(CPU_DEVICE))
    for part in library.parts:
        library.set_part(part, part in result.parts and part != ACTIVATIONS and not is_late)
    if is_late:
        return Kernels(reason="a model was loaded without them before")
    return Kernels(library, kind, result.parts, result.wrong, times=result.times)


def of(config: ModelConfig) -> Kernels:
    """The kernels that compute this model on the CPU. Raises what `started` does."""
    if not (config.kernels and config.repack):
        return Kernels(reason="--no-repack" if config.kernels else "--no-kernels")
    return started().fastest if config.kernels == FASTEST else started()


def parts_of_passes(config: ModelConfig) -> frozenset[str]:
    """The parts of this model's passes that run in the library beside products with weights, where this machine's CPU
    computes them.
    """
    return frozenset(OF_PASSES) & frozenset(of(config).parts)


def certain_parts(config: ModelConfig) -> frozenset[str]:
    """The same, where nothing else computes a part of the model: which kernels GPUs and workers have is not known."""
    return frozenset() if offloads(config) else parts_of_passes(config)


def attends(config: ModelConfig) -> bool:
    """Whether flash attention of this model runs in the library."""
    return ATTENTION in certain_parts(config)


def keep_rows(config: ModelConfig) -> bool:
    """Whether attention and products of activations run in the library, so that rows keep their bits there."""
    return certain_parts(config) == set(OF_PASSES)


def before_load(config: ModelConfig) -> None:
    """To be called right before a model is loaded: what is taken over of its weights."""
    kernels = of(config)
    if kernels.library is None and not started.cache_info().currsize:
        return  # there is nothing to switch off
    started().take_over(kernels.types)


def before_pass(wanted: Collection[str]) -> None:
    """To be called before each pass, with what `parts_of_passes` says of its model, and ANYWHERE where that holds."""
    if wanted == _switch.parts or not (wanted or started.cache_info().currsize):
        return
    kernels = started()
    if kernels.library is not None:
        for part in OF_PASSES:
            if part in kernels.parts:
                kernels.library.set_part(part, part in wanted)
        kernels.library.set_part(IN_TILES, ANYWHERE not in wanted)
    _switch.parts = wanted


def counts() -> dict[str, int]:
    """How many operations have run in the library in this process."""
    library = started().library if started.cache_info().currsize else None
    return {} if library is None else library.counts()


class _Switch:
    """The parts of passes that run in the library now; None: as `started` leaves it. A worker of RPC keeps that: where
    its clients' weights lie, llama.cpp does not say that they are weights, so they would be activations there.
    """

    parts: Collection[str] | None = None


_switch = _Switch()
