"""Configurations of the FIBER-native backward pass of A100, and its work items."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionProblem

GROUP = 4
"""Wefts of a role: one a subpartition."""
BLOCK_KEYS = 64
"""Keys of a block: 16 for each subpartition, the rows of an accumulator."""
BLOCK_HEAD = 64
"""Elements of a head of which dQ is made at a time: 16 for each subpartition."""
SECTION_BYTES = 16 << 20
"""Q, dO and dQ of the heads that run side by side in causal problems: what L2 keeps of them beside K and V."""
ACCUMULATOR_BYTES = 4
"""Of an element of dQ on its way, and of a row statistic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberBackward80Config:
    """A FIBER-thread keeps `groups` blocks of 64 keys of a query head and goes through its queries, `tile_m` a step.

    `stages`: blocks of Q and dO in shared memory. `pace`: least cycles between instructions of the wefts that do not
    multiply. `copies`: each subpartition has all of every second operand, so that no weft reads in another one.
    """

    tile_m: int
    groups: int
    stages: int
    pace: int = 1
    copies: bool = False

    @property
    def ahead(self) -> int:
        """Blocks that are copied ahead: of two stages, one is loaded turned while the next is loaded."""
        return self.stages - 2

    @property
    def tile_n(self) -> int:
        """Keys of a FIBER-thread."""
        return self.groups * BLOCK_KEYS

    def label(self) -> str:
        """Return a short name, as in `fiber 32x64 s4 pace1`."""
        return f"fiber {self.tile_m}x{self.tile_n} s{self.stages} pace{self.pace}{' copies' if self.copies else ''}"

    @property
    def slope_stages(self) -> int:
        """Blocks of dS in shared memory: a weft turns its own at once, or others do while the next one is made."""
        return 2 if self.copies else 1


def shared_bytes(problem: AttentionProblem, config: FiberBackward80Config) -> int:
    """Return the shared memory of a FIBER-thread: K, V, a block of dS on its way, stages of Q, dO and statistics."""
    rows = 2 * config.tile_n + 2 * config.stages * config.tile_m
    statistics = 0 if config.copies else 2 * config.stages * config.tile_m * ACCUMULATOR_BYTES
    slopes = config.slope_stages * BLOCK_KEYS * config.tile_m
    return (rows * problem.head_dim + slopes) * problem.element_bytes + statistics


def fiber_backward_items(problem: AttentionProblem, config: FiberBackward80Config) -> dict[str, list[int]]:
    """Return the work items, one list an attribute: blocks of keys of a query head.

    plane, kv_plane, col: the head and its first key. It goes through `steps` blocks of queries from row `first` on:
    `masked` of them with a mask, then `plain` from row `edge` on without. one, more, middle: whether there is one step,
    whether there are more, and how many beside the first and the last; has_i: whether there is a step i; steady, tail:
    steps during which a later block is copied, and the others.
    """
    ahead = config.ahead
    names = ["plane", "kv_plane", "col", "first", "steps", "plain", "masked", "edge", "one", "more", "middle"]
    names += ["steady", "tail", *(f"has_{step}" for step in range(1, ahead))]
    items: dict[str, list[int]] = {name: [] for name in names}
    for plane, col in key_blocks(problem, config):
        begin, masked, steps = _steps(problem, config, col)
        first = begin * config.tile_m
        row = {
            "plane": plane,
            "kv_plane": plane // problem.group,
            "col": col,
            "first": first,
            "steps": steps,
            "plain": steps - masked,
            "masked": masked,
            "edge": first + masked * config.tile_m,
            "one": int(steps == 1),
            "more": int(steps > 1),
            "middle": max(steps - 2, 0),
            "steady": max(steps - ahead, 0),
            "tail": min(steps, ahead),
        } | {f"has_{step}": int(steps > step) for step in range(1, ahead)}
        for name in names:
            items[name].append(row[name])
    return items


def key_blocks(problem: AttentionProblem, config: FiberBackward80Config) -> list[tuple[int, int]]:
    """Return (query head, first key) of every item, head by head.

    In causal problems, where the first keys are seen by the most queries, block by block over the heads of a section.
    """
    planes, blocks = problem.batch * problem.heads_q, ceil_div(problem.seqlen_kv, config.tile_n)
    check_item_count(f"{config.label()} cuts {planes} heads of {problem.seqlen_kv} keys", planes * blocks)
    width = _section_planes(problem) if problem.causal else 1
    return [
        (plane, block * config.tile_n)
        for first in range(0, planes, width)
        for block in range(blocks)
        for plane in range(first, min(first + width, planes))
    ]


def _section_planes(problem: AttentionProblem) -> int:
    """Return the query heads of a section: those whose Q, dO and dQ fit `SECTION_BYTES`."""
    head_bytes = problem.seqlen_q * problem.head_dim * (2 * problem.element_bytes + ACCUMULATOR_BYTES)
    return max(1, SECTION_BYTES // head_bytes)


def _steps(problem: AttentionProblem, config: FiberBackward80Config, col: int) -> tuple[int, int, int]:
    """Return the first block of queries that sees keys from `col` on, how many need masks, and how many there are."""
    count, end = ceil_div(problem.seqlen_q, config.tile_m), col + config.tile_n
    begin = max(0, col - problem.diagonal) // config.tile_m if problem.causal else 0
    total = count - begin
    if end > problem.seqlen_kv:
        return begin, total, total
    masked = ceil_div(end - 1 - problem.diagonal, config.tile_m) - begin if problem.causal else 0
    return begin, min(max(masked, 0), total), total
