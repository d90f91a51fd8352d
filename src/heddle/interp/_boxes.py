"""Turn an Access of a warp at a moment into a box of an array (the rules are in `heddle.ir.warp.Access`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.errors import InternalError
from heddle.interp._arrays import Box
from heddle.ir.warp import Access, Ring, WarpProgram


class BoxMaker:
    """Resolves accesses of one program."""

    def __init__(self, program: WarpProgram) -> None:
        self.columns = {name: index for index, name in enumerate(program.work.attributes)}
        self.items = program.work.items
        self.depths = {ring.name: ring.depth for ring in program.rings}
        self.stages = {o.name: o.shape[0] if len(o.shape) > 2 else 1 for o in program.objects}

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
        """Return the box; `stages` are the warp's ring stages and `counters` its loop counters at issue."""
        place = warp_rank // access.divisor
        counter = counters[access.level] + access.counter_offset
        row = access.row + access.rank_row * (place // access.rank_cols) + access.cta_row * cta_rank
        col = access.col + access.rank_col * (place % access.rank_cols) + access.cta_col * cta_rank
        row += self._attribute(access.row_attribute, item) + counter * access.row_step
        col += self._attribute(access.col_attribute, item) + counter * access.col_step
        return Box(self._stage(access, stages), row, row + access.rows, col, col + access.cols)

    def _stage(self, access: Access, stages: Mapping[str, int]) -> int:
        if access.ring is None:
            return access.stage_offset
        if access.ring not in stages:
            raise InternalError(f"an effect on {access.object!r} names ring {access.ring!r}, which the program lacks")
        stage = stages[access.ring] + access.stage_offset
        return stage % self.depths[access.ring] if access.stage_offset else stage

    def _attribute(self, name: str | None, item: int) -> int:
        return 0 if name is None else int(self.items[item, self.columns[name]])


def advance(stages: dict[str, int], rings: Sequence[str], depths: Mapping[str, int]) -> None:
    """Step rings of a warp."""
    for name in rings:
        stages[name] = (stages[name] + 1) % depths[name]


def depths_of(rings: Sequence[Ring]) -> dict[str, int]:
    """Return the depth of each ring by name."""
    return {ring.name: ring.depth for ring in rings}
