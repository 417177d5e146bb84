"""Owners of a head's context: ids and hidden rows in, logits and the head's own hidden rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import llama_cpp.llama_cpp as lib
import numpy as np

from uad.base.common.arrays import Hidden
from uad.base.common.logits import Logits
from uad.base.config import ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.types import Origin, Rows
from uad.llama import nextn
from uad.llama.context import Batch, Context
from uad.llama.head_file import HeadFile
from uad.llama.hidden import HiddenRows, Tap
from uad.llama.kernels import use as kernels
from uad.llama.model import Model

_CLOSE = 1e-2  # share of the largest number of a hidden row by which two may differ that are the same
_FEW_ROWS = 32  # rows of a pass that may all have logits, where only the last ones are looked at


class HeadContext(Context):
    """A context of a head in `model`, for the sequences of a target's context, which hands out its hidden rows. file:
    what the header says of it.

    `source` has these, of the last `window` positions. Raises ConfigError where the binding lacks what heads need,
    ModelLoadError where target and head do not belong together.
    """

    behind: ClassVar[int]
    """Positions by which the hidden row that an id is read with lies before it."""
    first: ClassVar[int] = 0
    """The first position that is read."""
    n_block = 0
    """Ids that are guessed at once; 0: one by one."""

    def __init__(
        self, model: Model, file: HeadFile, config: ModelConfig, target: Context, target_model: Model, window: int
    ) -> None:
        nextn.check(file.origin, file.is_trained)
        self.origin, self._file, self._target = file.origin, file, target
        tap = self._tap(model, target_model)
        self.source = HiddenRows(target.handle, target.n_seq, tap, window)
        super().__init__(
            model, replace(config, n_snapshots=0, n_checkpoints=0, backend_sampling=False), target.n_seq, "head"
        )
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        target.hidden = self.source

    def _tap(self, model: Model, target: Model) -> Tap:
        """Where the target's rows are taken from. Raises ModelLoadError for a head of another model."""
        raise NotImplementedError

    def _start(self) -> None:
        """The context was made, or made again. Raises what decoding does."""
        raise NotImplementedError

    def _parameters(self, config: ModelConfig, n_ctx: int) -> Any:
        params = super()._parameters(config, n_ctx)
        nextn.make_head(params, self._target.handle, self._file.is_trained)
        return params

    def fused(self, hidden: Sequence[Hidden]) -> Sequence[Hidden]:
        """The target's rows as `read` takes them. Raises DecodeError."""
        return hidden

    def read(self, rows: Sequence[Rows], hidden: Sequence[Hidden]) -> None:
        """Decode ids, each with its hidden row. hidden: [n ids, width] for each of the rows. Raises what `decode`
        does.
        """
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

    def guess(self, places: Sequence[tuple[int, int, int]]) -> Logits:
        """A head of blocks guesses what follows the last id of some texts, given as sequence, position and id: logits
        of n_block ids for each, [texts * n_block, n_vocab], valid until the next decode. Raises what `decode` does.
        """
        raise NotImplementedError

    def outputs(self) -> Hidden:
        """The head's own hidden rows of those that wanted logits in the last decode, [n_outputs, width]; perhaps a view
        that the next decode overwrites.
        """
        raise NotImplementedError

    def reopen(self) -> None:
        """Make it again, as it was; the target's context must be open. Raises what making and decoding do."""
        super().reopen()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        self.source.reopen(self._target.handle)
        self._target.hidden = self.source

    def close(self) -> None:
        self._target.hidden = None
        self.source.forget()
        super().close()


class NextHead(HeadContext):
    """A head of multi-token prediction. It reads an id with the row of the end of the target at the id before; the
    first id of a text with zeros.
    """

    behind = 1
    _outputs_only: bool | None = None

    def _tap(self, model: Model, target: Model) -> Tap:
        self.width = nextn.width(model.handle)
        if (width := nextn.width(target.handle)) != self.width:
            raise ModelLoadError(
                f"head {model.path}: its hidden rows have {self.width} numbers, those of {target.path} {width}: "
                "it is of another model"
            )
        return Tap(self.width)

    def _start(self) -> None:
        nextn.keep_hidden(self.handle, True, outputs_only=self._outputs_only is not False)
        if self._outputs_only is None:
            self._outputs_only = self._gives_outputs_only()
            nextn.keep_hidden(self.handle, True, self._outputs_only)

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

    def outputs(self) -> Hidden:
        if self._outputs_only:
            return nextn.hidden(self.handle, self._batch.n_outputs, self.width)
        return nextn.hidden(self.handle, self._batch.n, self.width)[self._batch.outputs]


class EagleHead(HeadContext):
    """A head of EAGLE-3. It reads an id with the fused rows of some layers of the target at the id before; the first id
    of a text is not read.
    """

    behind = first = 1

    def _tap(self, model: Model, target: Model) -> Tap:
        self.width = model.info.n_embd
        self._encoded = Batch(_FEW_ROWS, target.info.n_embd * len(self._file.layers), has_ids=False)
        self._encoded.native.pos = (
            None  # llama.cpp wants positions after what the memory holds, and puts them in itself
        )
        return Tap(target.info.n_embd, self._file.layers)

    def _start(self) -> None:
        nextn.keep_hidden(self.handle, True, outputs_only=True)

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        """All rows want logits, or none: llama.cpp hands out the first ones of a pass, whichever were wanted."""
        at, outputs = 0, list[int]()
        for row in rows:
            at += len(row.ids)
            outputs += range(at - row.n_logits, at)
        self._outputs = outputs
        super().decode([replace(row, n_logits=len(row.ids)) for row in rows] if outputs else rows)

    def logits(self) -> Logits:
        return super().logits()[self._outputs]

    def outputs(self) -> Hidden:
        return nextn.hidden(self.handle, self._batch.n, self.width)[self._outputs]

    def fused(self, hidden: Sequence[Hidden]) -> Sequence[Hidden]:
        whole, parts, batch = np.concatenate(hidden), list[Hidden](), self._encoded
        assert batch.hidden is not None
        for at in range(0, len(whole), batch.capacity):
            part = whole[at : at + batch.capacity]
            batch.clear()
            batch.add(0, 0, range(len(part)), len(part))
            batch.hidden[: len(part)] = part
            kernels.before_pass(self._kernels)
            parts.append(nextn.fused(self.handle, batch.seal(), len(part), self.width).copy())
        return np.split(np.concatenate(parts), np.cumsum([len(rows) for rows in hidden])[:-1])

    def read(self, rows: Sequence[Rows], hidden: Sequence[Hidden]) -> None:
        """Many ids of which the last ones want logits are decoded in two passes."""
        if sum(len(row.ids) for row in rows) > _FEW_ROWS and any(row.n_logits for row in rows):
            first, then = list[tuple[Rows, Hidden]](), list[tuple[Rows, Hidden]]()
            for row, given in zip(rows, hidden, strict=True):
                n = len(row.ids) - row.n_logits
                first.append((replace(row, ids=row.ids[:n], n_logits=0), given[:n]))
                then.append((replace(row, pos=row.pos + n, ids=row.ids[n:]), given[n:]))
            super().read(*_split(first))
            rows, hidden = _split(then)
        super().read(rows, hidden)


def _split(pairs: Sequence[tuple[Rows, Hidden]]) -> tuple[list[Rows], list[Hidden]]:
    """Rows and hidden rows apart, without those that have no ids."""
    return [row for row, _ in pairs if row.ids], [given for row, given in pairs if row.ids]


class BlockHead(HeadContext):
    """A head of DFlash, DFlash2 or DSpark. It reads the rows of some layers of the target, each at its position; then
    it guesses a block of ids after the last one, which masks stand for.
    """

    behind = 0

    def _tap(self, model: Model, target: Model) -> Tap:
        tap = Tap(target.info.n_embd, self._file.layers)
        self._mask = nextn.mask_id(model.native_vocab)
        if self._mask < 0:
            raise ModelLoadError(f"head {model.path}: its vocabulary has no mask; convert it again")
        self.n_block = self._file.n_block - (not self._file.is_anchored)
        self._layers = Batch(_FEW_ROWS, tap.width, has_ids=False)
        return tap

    def _start(self) -> None:
        lib.llama_set_causal_attn(self.handle, False)
        if self._file.n_candidates:
            nextn.keep_hidden(self.handle, True, outputs_only=False)

    def read(self, rows: Sequence[Rows], hidden: Sequence[Hidden]) -> None:
        batch = self._layers
        assert batch.hidden is not None
        for row, given in zip(rows, hidden, strict=True):
            for at in range(0, len(given), batch.capacity):
                part = given[at : at + batch.capacity]
                batch.clear()
                batch.add(row.seq, row.pos + at, range(len(part)), 0)
                batch.hidden[: len(part)] = part
                kernels.before_pass(self._kernels)
                self._check(int(lib.llama_decode(self.handle, batch.seal())), len(part), (row.seq,))

    def guess(self, places: Sequence[tuple[int, int, int]]) -> Logits:
        masks = (self._mask,) * (self._file.n_block - 1)
        n, first = len(masks) + 1, len(masks) + 1 - self.n_block
        self.decode([Rows(seq, pos, (id_, *masks), n) for seq, pos, id_ in places])
        if self._file.n_candidates:
            rows = nextn.hidden(self.handle, len(places) * n, self.model.info.n_embd)
            return np.concatenate([self._chosen(rows[at + first : at + n]) for at in range(0, len(rows), n)])
        return self.logits().reshape(len(places), n, self.n_vocab)[:, first:].reshape(-1, self.n_vocab)

    def _chosen(self, rows: Hidden) -> Logits:
        """Logits of a block of DFlash2, along its best path. A row has candidates, then their scores after each of the
        candidates of the place before; those of the first place are all the same.
        """
        n, before = self._file.n_candidates, 0
        logits = np.full((len(rows), self.n_vocab), -np.inf, np.float32)
        for row, out in zip(rows, logits, strict=True):
            scores = row[n * (1 + before) : n * (2 + before)]
            out[row[:n].astype(np.int32)] = scores
            before = int(scores.argmax())
        return logits


HEADS: dict[Origin, type[HeadContext]] = {
    Origin.HEAD: NextHead,
    Origin.EAGLE3: EagleHead,
    Origin.DFLASH: BlockHead,
    Origin.DSPARK: BlockHead,
}
