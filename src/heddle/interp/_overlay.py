"""Objects in tensor or shared memory that share columns: where each lies, and what a write does to the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heddle.errors import InternalError
from heddle.interp._arrays import Box
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.warp import DataObject

COLUMN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object lies: `offset` 32-bit columns into every stage of object `base`; bytes of one element."""

    base: str
    offset: int
    size: int

    def columns(self, box: Box) -> Box:
        """Return the box in 32-bit columns of the base."""
        first, last = box.col * self.size, box.col_end * self.size
        return Box(
            box.stage,
            box.row,
            box.row_end,
            self.offset + first // COLUMN_BYTES,
            self.offset + -(-last // COLUMN_BYTES),
        )

    def elements(self, box: Box) -> Box:
        """Return the elements of this object in a box of 32-bit columns of the base."""
        first, last = (max(0, col - self.offset) * COLUMN_BYTES for col in (box.col, box.col_end))
        return Box(box.stage, box.row, box.row_end, first // self.size, last // self.size)


class Overlays:
    """The objects of a program that overlay others or are overlaid, by name."""

    def __init__(self, objects: Iterable[DataObject]) -> None:
        by_name = {o.name: o for o in objects}
        self.places: dict[str, Place] = {}
        for o in by_name.values():
            if o.overlays is None:
                continue
            base, offset = o, 0
            while base.overlays is not None:
                if base.overlays not in by_name:
                    raise InternalError(f"object {base.name!r} overlays {base.overlays!r}, which does not exist")
                offset += base.overlay_col
                base = by_name[base.overlays]
            self.places[o.name] = Place(base.name, offset, dtype_bytes(o.dtype))
            self.places[base.name] = Place(base.name, 0, dtype_bytes(base.dtype))

    def base(self, name: str) -> str:
        """Return the object whose columns an object lies in: itself, if it overlays none."""
        place = self.places.get(name)
        return place.base if place else name

    def box(self, name: str, box: Box) -> Box:
        """Return a box of an object in the common columns of all that share them."""
        place = self.places.get(name)
        return place.columns(box) if place else box

    def overwritten(self, name: str, box: Box) -> list[tuple[str, Box]]:
        """Return what else lies where a box of an object is written: objects and their boxes."""
        own = self.places.get(name)
        if own is None:
            return []
        columns = own.columns(box)
        others = [(o, place.elements(columns)) for o, place in self.places.items() if place.base == own.base]
        return [(o, part) for o, part in others if o != name and part.col < part.col_end]
