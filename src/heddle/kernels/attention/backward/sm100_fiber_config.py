"""Configuration, work and shared memory of the FIBER-native backward pass of B200."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels.attention.backward.sm100_fa4_config import (
    ACCUMULATOR_BYTES,
    BARRIER_BYTES,
    ROWS,
    Fa4BackwardConfig,
    backward_items,
)
from heddle.kernels.attention.shape import AttentionProblem

GROUP = 4
"""Wefts of a role that computes: one for each quarter of the 128 lanes of tensor memory."""
STEP = 64
"""Queries of a step; two make a block."""
LANES = ROWS // STEP
"""Steps of a block, whose scores have a place each in tensor memory."""
PART = 32
"""Columns of tensor memory on their way to global memory at a time: of dQ (queries where it is transposed), and of dK
and dV in fp32."""
WEIGHT_CHUNK, SHORT_CHUNK, CHANGE_CHUNK = 16, 8, 8
"""Columns that a thread loads at a time: of S, of S where two groups of wefts have registers for it, and of dP."""
CHANGE_STAGES, ADDED_STAGES = 2, 2
"""What a product for dQ takes of dS, and parts of dQ, in shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberBackward100Config:
    """A FIBER-thread keeps 128 keys of a query head; `queries`, `outputs`: steps of Q and of dO in shared memory."""

    queries: int = 4
    outputs: int = 2

    def label(self) -> str:
        """Return a short name, as in `fiber 64x128 q4 do2 launch`."""
        return f"fiber {STEP}x{ROWS} q{self.queries} do{self.outputs} launch"


def fills_lanes(problem: AttentionProblem) -> bool:
    """Return whether dQ is made transposed: elements of a head in the 128 lanes of tensor memory."""
    return problem.head_dim == ROWS


def change_steps(problem: AttentionProblem) -> int:
    """Return the steps of dS that a product for dQ takes: both of a block where queries are its rows."""
    return 1 if fills_lanes(problem) else LANES


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
    change = CHANGE_STAGES * change_steps(problem) * STEP * ROWS
    tiles = (rows * problem.head_dim + change) * problem.element_bytes
    statistics = (config.queries + config.outputs) * STEP
    added = ADDED_STAGES * PART * ROWS
    return tiles + (statistics + added) * ACCUMULATOR_BYTES + BARRIER_BYTES
