"""Turn an Access of a warp at a moment into a box of an array (the rules are in `heddle.ir.warp.Access`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.errors import InternalError
from heddle.interp._arrays import Box
from heddle.ir.warp import Access, BarrierRef, WarpProgram


class BoxMaker:
    """Resolves accesses of one program."""

    def __init__(self, program: WarpProgram) -> None:
        self.columns = {name: index for index, name in enumerate(program.work.attributes)}
        self.items = program.work.items
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.made: dict[tuple[int, int, int, int], Box] = {}
        tensors = {tensor.name for tensor in program.tensors}
        self.fixed = {
            id(access)
            for effect in program.effects
            for access in (*effect.reads, *effect.writes)
            if access.object not in tensors
            and not (access.row_step or access.col_step or access.row_attribute or access.col_attribute)
            and not access.plane_attribute
        }

    def box(
        self,
        access: Access,
        *,
        warp_rank: int,
        cta_rank: int,
        stages: Mapping[str, int],
        item: int,
        counters: Sequence[int],
    ) -> Box:
        """Return the box; `stages` are the warp's ring stages and `counters` its loop counters at issue.

        Boxes that do not move with items or loops are made once for each warp and stage, and live as long as this.
        """
        stage = self._stage(access, stages) + self.attribute(access.plane_attribute, item)
        if id(access) not in self.fixed:
            return self._make(access, warp_rank, cta_rank, stage, item, counters)
        key = (id(access), warp_rank, cta_rank, stage)
        box = self.made.get(key)
        if box is None:
            box = self.made[key] = self._make(access, warp_rank, cta_rank, stage, item, counters)
        return box

    def _make(
        self, access: Access, warp_rank: int, cta_rank: int, stage: int, item: int, counters: Sequence[int]
    ) -> Box:
        down, right = divmod(warp_rank // access.divisor, access.rank_cols)
        if access.rank_swap:
            down, right = right, down
        counter = counters[access.level] + access.counter_offset
        row = access.row + access.rank_row * down + access.cta_row * cta_rank
        col = access.col + access.rank_col * right + access.cta_col * cta_rank
        row += self.attribute(access.row_attribute, item) + counter * access.row_step
        col += self.attribute(access.col_attribute, item) + counter * access.col_step
        return Box(stage, row, row + access.rows, col, col + access.cols)

    def _stage(self, access: Access, stages: Mapping[str, int]) -> int:
        if access.ring is None:
            return access.stage_offset
        if access.ring not in stages:
            raise InternalError(f"an effect on {access.object!r} names ring {access.ring!r}, which the program lacks")
        return (stages[access.ring] + access.stage_offset) % self.depths[access.ring]

    def attribute(self, name: str | None, item: int) -> int:
        """Return an attribute of a work item, 0 without a name."""
        return 0 if name is None else int(self.items[item, self.columns[name]])


def advance(stages: dict[str, int], rings: Sequence[str], depths: Mapping[str, int]) -> None:
    """Step rings of a warp."""
    for name in rings:
        stages[name] = (stages[name] + 1) % depths[name]


def element_of(ref: BarrierRef, stages: Mapping[str, int], depths: Mapping[str, int]) -> int:
    """Return which element of an mbarrier ring a reference means."""
    return ref.offset if ref.ring is None else (stages[ref.ring] + ref.offset) % depths[ref.ring]
