"""Cuts attention into work items (tiles of Q) and puts them in the orders of the open kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heddle.kernels._limits import check_item_count
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem

SECTION_BYTES = 32 << 20
"""K and V of the heads that run side by side under the dynamic order; the open kernel's share of the 50 MB L2."""


@dataclass(frozen=True, slots=True)
class Planes:
    """Q as planes of rows: one a query head, or with packed heads one a key and value head."""

    problem: AttentionProblem
    pack: int

    @property
    def count(self) -> int:
        """Planes of Q and O."""
        return self.problem.batch * self.problem.heads_q // self.pack

    @property
    def rows(self) -> int:
        """Rows of a plane; with packed heads row r is query r // pack of head r % pack."""
        return self.problem.seqlen_q * self.pack

    def kv_plane(self, plane: int) -> int:
        """Return the plane of K and V that a plane of Q reads."""
        return plane * self.pack // self.problem.group

    def visible(self, row: int) -> int:
        """Return how many keys a row sees."""
        if not self.problem.causal:
            return self.problem.seqlen_kv
        return min(max(row // self.pack + self.problem.diagonal + 1, 0), self.problem.seqlen_kv)


def check_tiles(problem: AttentionProblem, config: AttentionConfig, height: int) -> None:
    """Raise UserError if tiles of `height` rows of Q are more than are simulated."""
    layout = planes(problem, config)
    heads = f"{problem.batch} x {problem.heads_q} heads of {problem.seqlen_q} queries"
    check_item_count(f"{config.label()} cuts {heads}", layout.count * ceil_div(layout.rows, height))


def planes(problem: AttentionProblem, config: AttentionConfig) -> Planes:
    """Return how Q lies in planes."""
    return Planes(problem, problem.group if config.packed else 1)


def tiles(problem: AttentionProblem, config: AttentionConfig) -> Iterator[tuple[int, int]]:
    """Yield (plane of Q, first row) of every cluster's tile, in the order in which they are handed out."""
    layout, height = planes(problem, config), config.tile_m * config.cluster
    check_tiles(problem, config, height)
    blocks = ceil_div(layout.rows, height)
    if config.order != "dynamic" or config.release == 1:  # the first release: shortest tiles first, head by head
        for plane in range(layout.count):
            for block in range(blocks):
                yield plane, block * height
        return
    width = section_planes(problem, config)
    for first in range(0, layout.count, width):
        for block in reversed(range(blocks)):  # the longest tiles first
            for plane in range(first, min(first + width, layout.count)):
                yield plane, block * height


def section_planes(problem: AttentionProblem, config: AttentionConfig) -> int:
    """Return the planes of a section: a power of two of key and value heads that fit `SECTION_BYTES`."""
    head_bytes = 2 * problem.seqlen_kv * problem.head_dim * problem.element_bytes
    heads = 1 << max(0, (SECTION_BYTES // head_bytes).bit_length() - 1)
    return heads if config.packed else heads * problem.group


def work_items(problem: AttentionProblem, config: AttentionConfig) -> dict[str, list[int]]:
    """Return the work items in order, one list an attribute.

    q_plane, kv_plane, row: the tile; last: first row of the last block of K and V that it sees, from which it goes
    back to row 0; more: blocks after that one; masked, plain: how many of these need the causal mask, and how many not.
    """
    layout, height = planes(problem, config), config.tile_m * config.cluster
    items: dict[str, list[int]] = {
        name: [] for name in ("q_plane", "kv_plane", "row", "last", "more", "masked", "plain")
    }
    for plane, row in tiles(problem, config):
        seen = layout.visible(min(row + height, layout.rows) - 1)
        more = max(ceil_div(seen, config.tile_n), 1) - 1
        whole = layout.visible(row) // config.tile_n  # blocks that every row sees to their end
        masked = min(max(more - whole, 0), more) if problem.causal else 0
        for name, value in (
            ("q_plane", plane),
            ("kv_plane", layout.kv_plane(plane)),
            ("row", row),
            ("last", more * config.tile_n),
            ("more", more),
            ("masked", masked),
            ("plain", more - masked),
        ):
            items[name].append(value)
    return items
