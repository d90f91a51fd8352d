"""Configuration, work and shared memory of the FIBER-native backward pass of B200."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.shape import AttentionProblem
from heddle.kernels.attention.sm100_backward_config import (
    ACCUMULATOR_BYTES,
    BARRIER_BYTES,
    ROWS,
    Fa4BackwardConfig,
    backward_items,
)

GROUP = 4
"""Wefts of a role that computes: one for each quarter of the 128 lanes of tensor memory."""
STEP = 64
"""Queries of a step; two make a block."""
LANES = ROWS // STEP
"""Steps of a block, whose scores have a place each in tensor memory."""
PART = 32
"""Queries of dQ, or columns of dK and dV in fp32, on their way to global memory at a time."""
WEIGHT_CHUNK, CHANGE_CHUNK = 16, 8
"""Columns of S and of dP that a thread loads at a time."""
CHANGE_STAGES, ADDED_STAGES = 2, 2
"""Steps of dS, and parts of dQ, in shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberBackward100Config:
    """A FIBER-thread keeps 128 keys of a query head; `queries`, `outputs`: steps of Q and of dO in shared memory."""

    queries: int = 4
    outputs: int = 2

    def label(self) -> str:
        """Return a short name, as in `fiber 64x128 q4 do2 launch`."""
        return f"fiber {STEP}x{ROWS} q{self.queries} do{self.outputs} launch"


def fiber_backward_items(problem: AttentionProblem) -> dict[str, list[int]]:
    """Return the items of FlashAttention 4, with what the order of the products needs to know.

    `one`, `two`: one block of queries after the first, or more; `inner`: of these all but the last two; `last`: first
    row of the last step.
    """
    items = backward_items(problem, Fa4BackwardConfig())
    more = items["more"]
    return {
        **items,
        "one": [int(count == 1) for count in more],
        "two": [int(count > 1) for count in more],
        "inner": [max(count - 2, 0) for count in more],
        "last": [first + count * ROWS + ROWS - STEP for first, count in zip(items["first"], more, strict=True)],
    }


def shared_bytes(problem: AttentionProblem, config: FiberBackward100Config) -> int:
    """Return the shared memory of a FIBER-thread: K, V, steps of Q, dO and dS, statistics, what is on its way out."""
    rows = 2 * ROWS + (config.queries + config.outputs) * STEP
    tiles = (rows * problem.head_dim + CHANGE_STAGES * STEP * ROWS) * problem.element_bytes
    statistics = (config.queries + config.outputs) * STEP
    added = ADDED_STAGES * PART * problem.head_dim
    return tiles + (statistics + added) * ACCUMULATOR_BYTES + BARRIER_BYTES
