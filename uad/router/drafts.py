"""Drafts that the models of a folder get by themselves: chosen when a model is loaded, and looked at again while it is.
Whatever fails here costs a line in the log, and the model is loaded without a draft.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from uad.base.common.curves import curves_folder
from uad.base.common.once import warn_once
from uad.base.config.kinds import AUTO
from uad.base.config.load import load_config
from uad.pairs.choose import PairView, best, choices, recorded
from uad.pairs.conditions import Conditions, conditions
from uad.router.folder import FolderModel

_log = logging.getLogger("uad")
Best = Callable[[Path, Iterable[Path]], list[PairView]]


@dataclass(slots=True)
class _DraftChoice:
    """The choice for a model. basis: what it rests on; where that changes, a new choice is made."""

    basis: tuple[object, ...]
    pairs: Sequence[PairView]
    under: Conditions
    loaded: Path | None = None
    """The draft that its last process was started with."""


class FolderDrafts:
    """Which drafts are loaded, by the names of models. From any thread.

    A pair is worked out when its target is loaded, and again where the folder or stored curves changed while it is.
    Each look in between reads one file of records for each loaded model.
    """

    def __init__(self, work: Best = best) -> None:
        self._work, self._lock = work, Lock()
        self._chosen: dict[str, _DraftChoice] = {}

    def choose(self, model: FolderModel) -> tuple[Path, ...]:
        """Drafts that a process of this model may load, the best first; the others are for where that fails."""
        with self._lock:
            files = self._paying(model)
            if model.name in self._chosen:
                self._chosen[model.name].loaded = next(iter(files), None)
            return files

    def again(self, models: Mapping[str, FolderModel], loaded: Iterable[str]) -> dict[str, FolderModel]:
        """The models, of which those are another (`n_choices`) that are loaded and are to have another draft."""
        changed = dict(models)
        for name in loaded:
            model = models.get(name)
            with self._lock:
                known = self._chosen.get(name)
                if model is None or known is None or not model.drafts or model.head is not None:
                    continue
                if next(iter(self._paying(model)), None) != known.loaded:
                    _log.info("%s is to have another draft: it is loaded again after its last answer", name)
                    changed[name] = replace(model, n_choices=model.n_choices + 1)
                    del self._chosen[name]
        return changed

    def _paying(self, model: FolderModel) -> tuple[Path, ...]:
        if model.path is None or not model.drafts:
            return ()
        try:
            basis = model.files, id(model.drafts), model.words, _curves_changed()
            known = self._chosen.get(model.name)
            if known is None or known.basis != basis:
                under = conditions(load_config([*model.words, f"--draft={AUTO}"], {}))
                loaded = None if known is None else known.loaded
                known = _DraftChoice(basis, self._work(model.path, model.drafts), under, loaded)
                self._chosen[model.name] = known
            return tuple(pair.draft for pair in choices(recorded(model.path, known.pairs, known.under)))
        except Exception as error:
            warn_once(f"{model.name}: no draft can be chosen ({type(error).__name__}: {error})")
            return ()


def _curves_changed() -> int:
    """When a curve came or went last."""
    try:
        return curves_folder().stat().st_mtime_ns
    except OSError:
        return 0
