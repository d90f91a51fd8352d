"""Perform the effect of one instruction of one warp: touch arrays, check every touch for hazards, compute values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError, SourceLocation
from heddle.interp._arithmetic import (
    Values,
    dequantized,
    dot_products,
    elementwise,
    gated,
    kept_elements,
    looked_up,
    looked_up_rows,
    matrix_product,
)
from heddle.interp._arrays import Box, TileArray
from heddle.interp._boxes import BoxMaker
from heddle.interp._clocks import Knowledge
from heddle.interp._events import WARPS_PER_GROUP
from heddle.interp._overlay import Overlays
from heddle.interp._registers import handed_over, private_objects
from heddle.interp._warps import Cta, Warp
from heddle.interp.hazards import HazardList, History, Mode, Site, Touch
from heddle.ir.warp import Access, DataObject, Effect, WarpProgram
from heddle.ir.warp_fiber import FIBERS, SUBPARTITIONS

# Bands of rows that a history is cut into: few for boxes that span many, small ones for boxes of one warp.
_SMALLEST_BAND_ROWS, _BANDS, _GLOBAL_BAND_ROWS = 16, 4, 64
ADDEND = 2  # index of the read that a matrix product is added to, where that is not what it writes
_OVERWRITE_FIRST = 2  # params["accumulate"]: overwrite when the loop counter is zero


@dataclass(slots=True, eq=False)
class Doing:
    """An effect under way: who does it, what it knew at issue, its span, and what makes its end known."""

    warp: Warp
    pc: int
    effect: Effect
    item: int
    counters: tuple[int, ...]
    stages: Mapping[str, int]
    knowledge: Knowledge
    begin: int
    end: int
    component: int
    value: int
    chain: bool = False
    proxy: bool = False
    values: Values | None = None  # of a store whose registers were read at issue
    landed: int = 0  # CTAs that a multicast has reached
    visible: int = 0  # of a matrix instruction: when its result may be read (0: at `end`)


class Effects:
    """Performs effects on the arrays of CTAs and on the global tensors."""

    def __init__(self, program: WarpProgram, tensors: Mapping[str, TileArray], hazards: HazardList) -> None:
        self.program, self.tensors, self.hazards = program, tensors, hazards
        self.objects = {o.name: o for o in program.objects}
        self.boxes = BoxMaker(program)
        self.overlays = Overlays(program.objects)
        self.inputs = {t.name for t in program.tensors if t.role == "input"}
        self.histories: dict[tuple[str, int], History] = {}
        self.handed_over = handed_over(program)
        self.private = private_objects(program) - self.handed_over
        self.kinds: Mapping[str, Callable[[Doing], None]] = {
            "copy": self._copy,
            "copy_async": self._copy,
            "cast": self._copy,
            "store": self._copy,
            "reduce": self._reduce,
            "add": self._elementwise,
            "mma": self._mma,
            "fill": self._fill,
            "elementwise": self._elementwise,
            "row_reduce": self._row_reduce,
            "gate": self._gate,
            "dequantize": self._dequantize,
            "look_up": self._look_up,
            "look_up_rows": self._look_up_rows,
            "dot": self._dot,
            "mask": self._mask,
        }

    def perform(self, doing: Doing) -> None:
        """Perform an effect within its own CTA. Raises InternalError for an unknown kind."""
        kind = self.kinds.get(doing.effect.kind)
        if kind is None:
            raise InternalError(f"unknown effect {doing.effect.kind!r}; known: {', '.join(sorted(self.kinds))}")
        kind(doing)

    def take(self, doing: Doing) -> None:
        """Read the registers of a store at its issue: packed copies of them are what the store reads later."""
        doing.values = self._read(doing, doing.effect.reads[0], doing.warp.cta).copy()

    def land(self, doing: Doing, receiver: Cta) -> None:
        """Perform a copy whose destination is in another CTA of the cluster (multicast)."""
        values = self._read(doing, doing.effect.reads[0], doing.warp.cta)
        self._write(doing, doing.effect.writes[0], receiver, values, exact=self._same_type(doing.effect))

    # kinds

    def _copy(self, doing: Doing) -> None:
        values = self._source(doing)
        values = values.T if doing.effect.params.get("transposed", 0) else values
        self._write(doing, doing.effect.writes[0], doing.warp.cta, values, exact=self._same_type(doing.effect))

    def _source(self, doing: Doing) -> Values:
        if doing.values is not None:
            return doing.values
        return self._read(doing, doing.effect.reads[0], doing.warp.cta)

    def _reduce(self, doing: Doing) -> None:
        values = self._source(doing)
        values = values.T if doing.effect.params.get("transposed", 0) else values
        for access, part in zip(doing.effect.writes, np.split(values, len(doing.effect.writes)), strict=True):
            self._write(doing, access, doing.warp.cta, part, mode="reduce")

    def _fill(self, doing: Doing) -> None:
        access = doing.effect.writes[0]
        value = np.float32(doing.effect.params.get("value", 0.0))
        self._write(doing, access, doing.warp.cta, np.full((access.rows, access.cols), value, np.float32))

    def _elementwise(self, doing: Doing) -> None:
        params = doing.effect.params
        function = str(params.get("function", doing.effect.kind))
        operands = [self._read(doing, access, doing.warp.cta) for access in doing.effect.reads]
        index = 0
        while (scalar := params.get(f"scalar{index}")) is not None:
            operands.append(np.full((1, 1), scalar, np.float32))
            index += 1
        access = doing.effect.writes[0]
        values = np.broadcast_to(elementwise(function, operands, self._where(doing)), (access.rows, access.cols))
        self._write(doing, access, doing.warp.cta, values)

    def _row_reduce(self, doing: Doing) -> None:
        function, access = str(doing.effect.params["function"]), doing.effect.writes[0]
        source = self._read(doing, doing.effect.reads[0], doing.warp.cta)
        values = source.max(axis=1, keepdims=True) if function == "max" else source.sum(axis=1, keepdims=True)
        if doing.effect.params.get("accumulate", 0):
            old = self._read(doing, access, doing.warp.cta)
            values = np.maximum(old, values) if function == "max" else old + values
        self._write(doing, access, doing.warp.cta, values)

    def _gate(self, doing: Doing) -> None:
        values = gated(self._read(doing, doing.effect.reads[0], doing.warp.cta))
        self._write(doing, doing.effect.writes[0], doing.warp.cta, values)

    def _dequantize(self, doing: Doing) -> None:
        codes, scale, zero = (self._read(doing, access, doing.warp.cta) for access in doing.effect.reads)
        values = dequantized(codes, scale, zero)
        values = values.T if doing.effect.params.get("transposed", 0) else values
        self._write(doing, doing.effect.writes[0], doing.warp.cta, values)

    def _look_up(self, doing: Doing) -> None:
        codes, scale, book = (self._read(doing, access, doing.warp.cta) for access in doing.effect.reads)
        values = looked_up(codes, scale, book, int(doing.effect.params["books"]))
        if doing.effect.params.get("transposed", 0):
            self._write(doing, doing.effect.writes[0], doing.warp.cta, values.T)
            return
        for access, part in zip(doing.effect.writes, np.split(values, 2), strict=True):
            self._write(doing, access, doing.warp.cta, part)

    def _look_up_rows(self, doing: Doing) -> None:
        codes, book = (self._read(doing, access, doing.warp.cta) for access in doing.effect.reads)
        values = looked_up_rows(codes, book, int(doing.effect.params["books"]))
        self._write(doing, doing.effect.writes[0], doing.warp.cta, values)

    def _dot(self, doing: Doing) -> None:
        access = doing.effect.writes[0]
        a, b = (self._read(doing, each, doing.warp.cta) for each in doing.effect.reads)
        old = self._read(doing, access, doing.warp.cta)
        self._write(doing, access, doing.warp.cta, old + dot_products(a, b))

    def _mask(self, doing: Doing) -> None:
        params, access = doing.effect.params, doing.effect.writes[0]
        values = self._read(doing, access, doing.warp.cta)
        box = self._resolve(doing, access, doing.warp.cta, doing.warp.cta.rank)[1]
        row, col = (self._position(doing, params, name) for name in ("row", "col"))
        places = np.arange(box.row, box.row_end) + row, np.arange(box.col, box.col_end) + col
        transposed = bool(params.get("transposed", 0))
        keep = kept_elements(
            *(places[::-1] if transposed else places),
            causal=bool(params["causal"]),
            limit=int(params["limit"]),
            diagonal=int(params["diagonal"]),
            row_divisor=int(params["row_divisor"]),
        )
        keep = keep.T if transposed else keep
        self._write(doing, access, doing.warp.cta, np.where(keep, values, np.float32(params["value"])))

    def _position(self, doing: Doing, params: Mapping[str, float | int | str], name: str) -> int:
        """Row or column number of a masked tile's corner."""
        attribute = str(params[f"{name}_attribute"]) or None
        counter = doing.counters[int(params[f"{name}_level"])]
        base = self.boxes.attribute(attribute, doing.item)
        of_warp = doing.warp.rank * int(params.get(f"{name}_rank_step", 0))
        of_warp += doing.warp.cta.rank * int(params.get(f"{name}_cta_step", 0))
        return base + of_warp + counter * int(params[f"{name}_step"]) + int(params[f"{name}_constant"])

    def _mma(self, doing: Doing) -> None:
        params, warp = doing.effect.params, doing.warp
        ctas = [warp.cta]
        if int(params.get("ctas", 1)) > 1:  # a pair is ranks 2i and 2i + 1
            first = warp.cta.rank // 2 * 2
            ctas = warp.cta.cluster.ctas[first : first + 2]
        a_access, b_access = doing.effect.reads[:2]
        transposed = bool(params.get("transposed", 0))
        b = np.concatenate([self._read(doing, b_access, cta) for cta in ctas], axis=1 if transposed else 0)
        a_transposed = bool(params.get("a_transposed", 0))
        for cta in ctas:
            a = self._read(doing, a_access, cta)
            product = matrix_product(a.T if a_transposed else a, b.T if transposed else b)
            if params.get("folded", 0):
                product = np.concatenate(np.split(product, 2, axis=1))
            self._accumulate(doing, cta, product)

    def _accumulate(self, doing: Doing, cta: Cta, product: Values) -> None:
        params, access = doing.effect.params, doing.effect.writes[0]
        mode = int(params.get("accumulate", 1))
        first = mode == _OVERWRITE_FIRST and doing.counters[int(params.get("level", 0))] == 0
        if len(doing.effect.reads) > ADDEND:
            product = self._read(doing, doing.effect.reads[ADDEND], cta) + product
        elif mode != 0 and not first:
            product = self._read(doing, access, cta) + product
        self._write(doing, access, cta, product)

    # touches

    def _read(self, doing: Doing, access: Access, cta: Cta) -> Values:
        array, box, history = self._resolve(doing, access, cta, cta.rank)
        if history is not None:
            touch = self._touch(doing, "read", array, box)
            if doing.proxy:
                self._check_fence(array, history, touch, cta)
            self._enter(array, history, touch, doing.knowledge)
        rows = self._rows(doing, box)
        if not array.is_written(box, rows):
            self.hazards.uninitialised(array, self._touch(doing, "read", array, box))
        return array.read(box)

    def _write(
        self, doing: Doing, access: Access, cta: Cta, values: Values, *, exact: bool = False, mode: Mode = "write"
    ) -> None:
        # A multicast writes the issuer's part in every CTA; a pair's accumulators are each CTA's own.
        rank = cta.rank if doing.chain else doing.warp.cta.rank
        array, box, history = self._resolve(doing, access, cta, rank)
        if values.shape != (access.rows, access.cols):
            raise InternalError(
                f"effect {doing.effect.kind!r} of pc {doing.pc} writes {values.shape} into a box of"
                f" {access.rows} x {access.cols} of {access.object!r}"
            )
        if history is not None:
            touch = self._touch(doing, mode, array, box)
            touch.end = max(touch.end, doing.visible)
            self._enter(array, history, touch, doing.knowledge)
        array.write(box, values, add=mode == "reduce", exact=exact, rows=self._rows(doing, box))
        for name, part in self.overlays.overwritten(access.object, box):
            self._array(doing.warp, self.objects[name], cta).forget(part)

    def _rows(self, doing: Doing, box: Box) -> NDArray[np.bool_] | None:
        """Return which rows of a box belong to fibers that take part; None: all (see `heddle.ir.warp.Effect`)."""
        params = doing.effect.params
        if "row_lanes" not in params:
            return None
        first = int(params["fibers"]) + self.boxes.attribute(str(params["fibers_attribute"]) or None, doing.item)
        lanes = int(params["row_lanes"])
        lane = np.arange(box.row_end - box.row) % (FIBERS // lanes) * lanes
        taken: NDArray[np.bool_] = (lane + FIBERS * doing.warp.rank < first) != bool(params["fibers_others"])
        return taken

    def _touch(self, doing: Doing, mode: Mode, array: TileArray, box: Box) -> Touch:
        warp = doing.warp
        if array.is_global:
            box = array.clipped(box)
        touch = Touch(
            mode,
            self.overlays.box(array.description.name, box),
            doing.begin,
            doing.end,
            warp.cta.cluster.number,
            doing.component,
            doing.value,
            Site(doing.pc, warp.cta.sm, warp.cta.slot, warp.index),
            doing.chain,
            doing.proxy,
        )
        if not (array.is_global or box.inside or array.contains(box)):
            self.hazards.out_of_bounds(array, touch)
        return touch

    def _enter(self, array: TileArray, history: History, touch: Touch, knowledge: Knowledge) -> None:
        for old in history.enter(touch, knowledge):
            self.hazards.race(array, old, touch)

    def _check_fence(self, array: TileArray, history: History, touch: Touch, cta: Cta) -> None:
        """Stores of warps reach the asynchronous proxy only through a fence of the storing warp."""
        if array.description.space != "shared":
            return
        for old in history.overlapping(touch.box):
            if old.mode == "write" and not old.proxy:
                writer = cta.warps.get(old.site.warp)
                if writer is not None and not writer.fenced(old.begin, touch.begin):
                    self.hazards.missing_fence(array, old, touch)

    def _resolve(self, doing: Doing, access: Access, cta: Cta, rank: int) -> tuple[TileArray, Box, History | None]:
        box = self.boxes.box(
            access,
            warp_rank=doing.warp.rank,
            cta_rank=rank,
            stages=doing.stages,
            item=doing.item,
            counters=doing.counters,
        )
        if (tensor := self.tensors.get(access.object)) is not None:
            return tensor, box, None if access.object in self.inputs else self._global_history(access.object, box.stage)
        description = self.objects.get(access.object)
        if description is None:
            raise InternalError(f"an effect names object {access.object!r}, which the program does not declare")
        if description.scope == "cluster":
            cta = cta.cluster.ctas[0]
        array = self._array(doing.warp, description, cta)
        if access.object in self.private:
            return array, box, None
        own = description.space == "register" and access.object not in self.handed_over
        owner = doing.warp.index if own else -1
        if description.scope == "subpartition" and not own:
            owner = doing.warp.index % SUBPARTITIONS
        key = (self.overlays.base(access.object), box.stage, owner)
        history = cta.histories.get(key)
        if history is None:
            rows = description.shape[-2]
            history = cta.histories[key] = History(max(_SMALLEST_BAND_ROWS, rows // _BANDS))
        return array, box, history

    def _global_history(self, name: str, plane: int) -> History:
        return self.histories.setdefault((name, plane), History(_GLOBAL_BAND_ROWS))

    def _array(self, warp: Warp, description: DataObject, cta: Cta) -> TileArray:
        """Return the copy of an object that this warp sees in a CTA, made when first touched."""
        key = description.name
        if description.scope == "warp":
            key = f"{key}@{warp.index}"
        elif description.scope == "subpartition":
            key = f"{key}@{warp.index % SUBPARTITIONS}"
        elif description.scope == "group":
            key = f"{key}@{warp.index // WARPS_PER_GROUP}"
        array = cta.arrays.get(key)
        if array is None:
            array = cta.arrays[key] = TileArray(description, description.name)
        return array

    def _same_type(self, effect: Effect) -> bool:
        return self._dtype(effect.reads[0].object) == self._dtype(effect.writes[0].object)

    def _dtype(self, name: str) -> str:
        return self.tensors[name].description.dtype if name in self.tensors else self.objects[name].dtype

    def _where(self, doing: Doing) -> SourceLocation | None:
        source = self.program.instructions[doing.pc].source
        if source >= len(self.program.sources):
            return None
        place = self.program.sources[source]
        return SourceLocation(place.file, place.line)
