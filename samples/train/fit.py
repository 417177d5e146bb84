"""The training loop: a budget of time, a learning rate that follows it, two optimizers. Knows no file and no
terminal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from model import Llama
from numpy.typing import NDArray
from torch import Tensor

MATRIX_RATE, REST_RATE = 0.02, 4e-3
WARMUP_STEPS = 30
DECAY_FROM, LOWEST = 0.55, 0.02
SMOOTHING = 0.97


class FitError(Exception):
    """Training cannot go on."""


@dataclass(frozen=True, slots=True)
class State:
    """Where training stands: `done` is the share of the time used, `loss` a smoothed mean in nats per token."""

    done: float
    step: int
    n_tokens: int
    loss: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train."""

    seconds: float
    n_ctx: int
    n_batch: int
    device: torch.device
    compiled: bool
    seed: int


def fit(model: Llama, ids: NDArray[np.int32], plan: Plan, report: Callable[[State], None]) -> State:
    """Trains `model` on the stream `ids` until the time is over; FitError if the stream is too short or the loss is
    lost.
    """
    batches = draw(ids, plan)
    loss_of: Any = torch.compile(model) if plan.compiled else model
    optimizers = make_optimizers(model)
    rest = optimizers[1][0].param_groups[0]["params"]
    # compiling and first allocations must not eat the budget
    backward(loss_of, next(batches), plan.device)
    model.zero_grad()
    start, state = time.perf_counter(), State(0.0, 0, 0, math.nan, 0.0)
    while state.done < 1:
        set_rates(optimizers, rate(state.done, state.step))
        loss = backward(loss_of, next(batches), plan.device)
        if not math.isfinite(loss):
            raise FitError(f"the loss became {loss} at step {state.step}")
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        state = advance(state, loss, time.perf_counter() - start, plan)
        report(state)
    return state


def draw(ids: NDArray[np.int32], plan: Plan) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of (ids, next ids), each (n_batch, n_ctx), cut at random places."""
    if len(ids) <= plan.n_ctx + 1:
        raise FitError(f"the corpus has {len(ids)} tokens, fewer than one sequence of {plan.n_ctx}")
    rng = np.random.default_rng(plan.seed)
    span = np.arange(plan.n_ctx + 1)
    while True:
        starts = rng.integers(0, len(ids) - plan.n_ctx - 1, plan.n_batch)
        rows = torch.from_numpy(ids[starts[:, None] + span]).long().to(plan.device)
        yield rows[:, :-1], rows[:, 1:]


def backward(loss_of: Any, batch: tuple[Tensor, Tensor], device: torch.device) -> float:
    """Adds the gradients of one batch; returns its loss."""
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = loss_of(*batch)
    loss.backward()
    return float(loss.item())


def make_optimizers(model: Llama) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms, each with its highest rate."""
    named = [
        (name, weight, weight.dim() == 2 and not name.startswith("token_embd"))
        for name, weight in model.named_parameters()
    ]
    matrices, rest = [w for _, w, matrix in named if matrix], [w for _, w, matrix in named if not matrix]
    muon = torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01, momentum=0.95, adjust_lr_fn="original")
    adam = torch.optim.AdamW(rest, lr=REST_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    return [(muon, MATRIX_RATE), (adam, REST_RATE)]


def rate(done: float, step: int) -> float:
    """The learning rate as a share of the highest: a short warm-up, a plateau, a straight line down."""
    decay = 1.0 if done < DECAY_FROM else max(LOWEST, (1 - done) / (1 - DECAY_FROM))
    return min(1.0, (step + 1) / WARMUP_STEPS) * decay


def set_rates(optimizers: list[tuple[torch.optim.Optimizer, float]], share: float) -> None:
    """Sets each optimizer to `share` of its highest rate."""
    for optimizer, highest in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = highest * share


def advance(state: State, loss: float, seconds: float, plan: Plan) -> State:
    """The state after one more step."""
    n_tokens = state.n_tokens + plan.n_batch * plan.n_ctx
    smooth = loss if state.step == 0 else SMOOTHING * state.loss + (1 - SMOOTHING) * loss
    return State(seconds / plan.seconds, state.step + 1, n_tokens, smooth, n_tokens / seconds)
