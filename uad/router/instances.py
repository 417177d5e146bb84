"""A model of the router, its processes, and who waits for it. Only data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from uad.router.child import Child
from uad.router.folder import FolderModel


class LoadState(StrEnum):
    """The state of a model, in llama-server's words."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a model's process ended that should not have."""

    code: int
    reason: str
    again_at: float
    """When it may be loaded again, by the pool's clock."""


@dataclass(slots=True)
class PoolCounts:
    """Counts of what a model's processes have done."""

    n_requests: int = 0
    n_loads: int = 0
    n_failed: int = 0
    n_evicted: int = 0
    load_s: float = 0.0


@dataclass(eq=False, slots=True)
class Instance:
    """One process of a model, from the beginning of its load until it has ended. Each counts for --models-max."""

    owner: PooledModel
    model: FolderModel
    """The owner's when the load began."""
    n_bytes: int
    began_at: float
    last_used: int
    """The number of its last request, counted over all models."""
    child: Child | None = None
    """The process, once it is loaded."""
    n_busy: int = 0
    """Requests that it answers."""
    has_answered: bool = False
    """Whether it has answered a request to its end."""
    loaded_at: float = 0.0
    is_loaded: bool = False
    is_closed: bool = False
    """Whether it takes no new requests for now, since another model has waited long for its place."""
    is_stopping: bool = False
    is_retired: bool = False
    """Whether its model is gone or changed: it ends after its last answer."""

    @property
    def is_ready(self) -> bool:
        """Whether it is loaded and stays so for now."""
        return self.is_loaded and not self.is_stopping


@dataclass(eq=False, slots=True)
class PooledModel:
    """A model and what becomes of it."""

    model: FolderModel
    instance: Instance | None = None
    """The newest; older ones may still end."""
    waiters: dict[object, float] = field(default_factory=dict)
    """Requests that wait for it, and since when, the first one first."""
    asked_at: float | None = None
    """Since when it is to be loaded though nobody waits."""
    planned_bytes: int | None = None
    """The memory that its last process was about to take, with its context and its draft."""
    failure: Failure | None = None
    n_failures: int = 0
    """In a row."""
    counts: PoolCounts = field(default_factory=PoolCounts)

    @property
    def n_bytes(self) -> int:
        """Memory that a process of it takes: its files' size until one has said it."""
        return self.model.n_bytes if self.planned_bytes is None else self.planned_bytes

    @property
    def since(self) -> float:
        """When it was first wanted."""
        times = [next(iter(self.waiters.values()), self.asked_at), self.asked_at]
        return min(time for time in times if time is not None)

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be loaded."""
        return bool(self.waiters) or self.asked_at is not None

    @property
    def running(self) -> Instance | None:
        """The newest instance, where it is loaded."""
        return self.instance if self.instance is not None and self.instance.is_loaded else None

    @property
    def state(self) -> LoadState:
        """In llama-server's words."""
        if self.instance is None:
            return LoadState.UNLOADED
        return LoadState.LOADED if self.instance.is_loaded else LoadState.LOADING

    @property
    def is_loading(self) -> bool:
        """Whether it will be there without another load."""
        return self.instance is not None and not self.instance.is_loaded and not self.instance.is_stopping

    @property
    def is_ready(self) -> bool:
        """Whether it is loaded."""
        return self.instance is not None and self.instance.is_ready

    @property
    def is_open(self) -> bool:
        """Whether a request can go there at once."""
        return self.instance is not None and self.instance.is_ready and not self.instance.is_closed
