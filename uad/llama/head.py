"""Owner of a head's context: ids and hidden rows in, logits and the head's own hidden rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uad.base.common.arrays import Hidden
from uad.base.config import ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.types import Rows
from uad.llama import nextn
from uad.llama.context import Context
from uad.llama.model import Model
from uad.llama.nextn import HiddenRows

_CLOSE = 1e-2  # share of the largest number of a hidden row by which two may differ that are the same


class HeadContext(Context):
    """A context of the head in `model`, for the sequences of a target's context, which hands out its hidden rows.

    `source` has these, of the last `window` positions. A decode without hidden rows takes them as zeros, as for the
    first id of a text. Raises ConfigError where the binding lacks what heads need, ModelLoadError where the rows of
    target and head differ.
    """

    def __init__(self, model: Model, config: ModelConfig, target: Context, target_model: Model, window: int) -> None:
        nextn.check()
        self.width = nextn.width(model.handle)
        self._target = target
        if (width := nextn.width(target_model.handle)) != self.width:
            raise ModelLoadError(
                f"head {model.path}: its hidden rows have {self.width} numbers, those of {target_model.path} {width}: "
                "it is of another model"
            )
        self.source = HiddenRows(target.handle, target.n_seq, self.width, window)
        super().__init__(
            model, replace(config, n_snapshots=0, n_checkpoints=0, backend_sampling=False), target.n_seq, "head"
        )
        try:
            nextn.keep_hidden(self.handle, True, outputs_only=True)
            self._outputs_only = self._gives_outputs_only()
            nextn.keep_hidden(self.handle, True, self._outputs_only)
        except BaseException:
            self.close()
            raise
        target.hidden = self.source

    def _gives_outputs_only(self) -> bool:
        """Whether llama.cpp takes the right one of several hidden rows, where one is asked for. Heads of some
        architectures have rows for all ids then, and the first of these is given out.
        """
        # three ids at once with one output: its row is the third. The same three in two decodes, of which the second
        # has one id alone: there is no other row that could be meant. Where both differ, the first decode gave row one
        ids, given = (1, 2, 3), np.random.default_rng(0).standard_normal((3, self.width), np.float32)
        self.read([Rows(0, 0, ids, 1)], [given])
        at_once = nextn.hidden(self.handle, 1, self.width).copy()
        self.clear(0)
        self.read([Rows(0, 0, ids[:2], 0)], [given[:2]])
        self.read([Rows(0, 2, ids[2:], 1)], [given[2:]])
        alone = nextn.hidden(self.handle, 1, self.width).copy()
        self.clear(0)
        return bool(np.abs(at_once - alone).max() <= _CLOSE * np.abs(alone).max())

    def _parameters(self, config: ModelConfig, n_ctx: int) -> Any:
        params = super()._parameters(config, n_ctx)
        nextn.make_head(params, self._target.handle)
        return params

    def read(self, rows: Sequence[Rows], hidden: Sequence[Hidden]) -> None:
        """Decode ids, each with the hidden row of the id before it. hidden: [n ids, width] for each of the rows. Raises
        what `decode` does."""
        given = self._batch.hidden
        assert given is not None
        at = 0
        for part in hidden:
            given[at : at + len(part)] = part
            at += len(part)
        try:
            self.decode(rows)
        finally:
            given[:at] = 0  # a decode without hidden rows takes zeros

    def outputs(self) -> Hidden:
        """The head's own hidden rows of those that wanted logits in the last decode, [n_outputs, width]; perhaps a view
        that the next decode overwrites.
        """
        if self._outputs_only:
            return nextn.hidden(self.handle, self._batch.n_outputs, self.width)
        return nextn.hidden(self.handle, self._batch.n, self.width)[self._batch.outputs]

    def reopen(self) -> None:
        """Make it again, as it was; the target's context must be open. Raises what making and decoding do."""
        super().reopen()
        try:
            nextn.keep_hidden(self.handle, True, self._outputs_only)
        except BaseException:
            self.close()
            raise
        self.source.reopen(self._target.handle)
        self._target.hidden = self.source

    def close(self) -> None:
        self._target.hidden = None
        self.source.forget()
        super().close()
