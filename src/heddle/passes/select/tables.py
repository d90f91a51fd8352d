"""Tables of a program that all roles fill during selection: sources, effects, objects, streams, work columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle.errors import SourceLocation, UnsupportedError, UserError, unknown_name
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import GlobalRef, TileProgram
from heddle.ir.tile_walk import uses_bits
from heddle.ir.warp import Access, DataObject, Effect, Source, Stream, Tensor, Work
from heddle.passes.draft import Value


def ceil_div(a: int, b: int) -> int:
    """The quotient rounded up."""
    return -(-a // b)


@dataclass(slots=True)
class Tables:
    """What selection collects beside the code."""

    program: TileProgram
    sources: dict[Source, int] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    effect_index: dict[str, int] = field(default_factory=dict)
    objects: dict[str, DataObject] = field(default_factory=dict)
    streams: dict[tuple[object, ...], Stream] = field(default_factory=dict)
    columns: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    pool: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    bits: bool = field(init=False)  # full and empty bits order the wefts

    def __post_init__(self) -> None:
        self.bits = uses_bits(self.program)

    def pool_values(self, name: str, bands: int, registers: int, align: int) -> tuple[Value, ...]:
        """The values of a pool tensor, one a band, the same in every role; ids of roles' own values are positive."""
        if name not in self.pool:
            first = -1 - sum(map(len, self.pool.values()))
            values = (Value(first - i, f"{name}.{i}", registers, align, "pool", name) for i in range(bands))
            self.pool[name] = tuple(values)
        return self.pool[name]

    def source(self, where: SourceLocation | None, operation: str) -> int:
        """Index of a source line, added when new."""
        source = Source(
            file=where.file if where else self.program.name, line=where.line if where else 0, operation=operation
        )
        return self.sources.setdefault(source, len(self.sources))

    def effect(self, effect: Effect) -> int:
        """Index of an effect; equal effects share one entry."""
        key = repr(effect)
        if key not in self.effect_index:
            self.effect_index[key] = len(self.effects)
            self.effects.append(effect)
        return self.effect_index[key]

    def add_object(self, item: DataObject) -> str:
        """Declare an object once; returns its name."""
        self.objects.setdefault(item.name, item)
        return item.name

    def tensor(self, name: str, where: SourceLocation | None) -> Tensor:
        """The tensor called `name`."""
        for tensor in self.program.tensors:
            if tensor.name == name:
                return tensor
        raise unknown_name("tensor", name, (t.name for t in self.program.tensors), where)

    def item_values(self, attribute: str | None, where: SourceLocation | None) -> NDArray[np.int64]:
        """One attribute of all work items (zeros for None)."""
        work = self.program.work
        if attribute is None:
            return np.zeros(len(work.items), dtype=np.int64)
        if attribute not in work.attributes:
            raise unknown_name("work item attribute", attribute, work.attributes, where)
        return work.items[:, work.attributes.index(attribute)]

    def add_column(self, name: str, values: NDArray[np.int64]) -> str:
        """Add an attribute to the work table; returns its name."""
        self.columns[name] = values
        return name

    def stream(
        self, ref: GlobalRef, direction: str, level: int, where: SourceLocation | None, multicast: int = 1
    ) -> Stream:
        """The stream of a global box: blocks of the box's shape over the tensor, row by row; made once."""
        key = (
            ref.tensor, ref.rows, ref.cols, ref.row, ref.col, level if ref.loop else -1, ref.row_step, ref.col_step,
            ref.cta_row, ref.cta_col, ref.row_offset, ref.col_offset, ref.plane, direction, multicast,
        )  # fmt: skip
        if key not in self.streams:
            self.streams[key] = self._new_stream(ref, direction, level, where, multicast)
        return self.streams[key]

    def _new_stream(
        self, ref: GlobalRef, direction: str, level: int, where: SourceLocation | None, multicast: int
    ) -> Stream:
        tensor = self.tensor(ref.tensor, where)
        if len(tensor.shape) != (2 if ref.plane is None else 3):
            raise UnsupportedError(
                f"tensor {tensor.name} has {len(tensor.shape)} dimensions; boxes need two, or three and a plane",
                where=where,
            )
        rows, cols = tensor.shape[-2:]
        planes = math.prod(tensor.shape[:-2])
        block_rows, block_cols = ceil_div(rows, ref.rows), ceil_div(cols, ref.cols)
        blocks = planes * block_rows * block_cols
        name = f"{ref.tensor}.{direction}{len(self.streams)}"
        row = self.item_values(ref.row, where) + ref.row_offset
        col = self.item_values(ref.col, where) + ref.col_offset
        plane = self.item_values(ref.plane, where)
        base = (plane * block_rows + row // ref.rows) * block_cols + col // ref.cols
        steps = ref if ref.loop else GlobalRef(tensor=ref.tensor, rows=ref.rows, cols=ref.cols)
        # ragged edges: the mean over all blocks moves exactly the bytes that exist
        block_bytes = max(1, round(planes * rows * cols * dtype_bytes(tensor.dtype) / blocks))
        assert direction in ("load", "store", "reduce")
        return Stream(
            name=name,
            tensor=ref.tensor,
            direction=direction,  # type: ignore[arg-type]  # checked above
            blocks=blocks,
            block_bytes=block_bytes,
            base=self.add_column(f"{name}.base", base),
            level=level,
            step=_blocks(steps.row_step, ref.rows, where) * block_cols + _blocks(steps.col_step, ref.cols, where),
            multicast=multicast,
            cta_step=_blocks(ref.cta_row, ref.rows, where) * block_cols + _blocks(ref.cta_col, ref.cols, where),
        )

    def global_access(self, ref: GlobalRef, level: int) -> Access:
        """The access of a global box."""
        moving = ref.loop is not None
        return Access(
            object=ref.tensor,
            row=ref.row_offset,
            col=ref.col_offset,
            rows=ref.rows,
            cols=ref.cols,
            row_attribute=ref.row,
            col_attribute=ref.col,
            level=level,
            counter_offset=ref.ahead if moving else 0,
            row_step=ref.row_step if moving else 0,
            col_step=ref.col_step if moving else 0,
            cta_row=ref.cta_row,
            cta_col=ref.cta_col,
            plane_attribute=ref.plane,
        )

    def work(self) -> Work:
        """The program's work table with the columns that selection added."""
        work = self.program.work
        if not self.columns:
            return work
        items = np.column_stack([work.items, *self.columns.values()]).astype(np.int64)
        return Work(attributes=(*work.attributes, *self.columns), items=items, schedule=work.schedule, grid=work.grid)


def _blocks(step: int, extent: int, where: SourceLocation | None) -> int:
    if step % extent:
        raise UserError(
            f"a box of {extent} elements moves by {step}, which is no whole number of boxes",
            where=where,
            hint=f"step by a multiple of {extent}",
        )
    return step // extent
