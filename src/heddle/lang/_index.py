"""Symbolic integers of a kernel: work item attributes, loop counters, the CTA's rank, and sums of them.

A kernel is staged: its Python code runs once, when the program is built. What is known only when the kernel runs is an
`Index`: `item.row + kb * 64 + 32`. It goes into references and loop counts; asking Python for its value is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from heddle.errors import UserError
from heddle.ir.warp import Count
from heddle.lang._where import caller


def _no_value(what: str) -> NoReturn:
    raise UserError(
        f"{what} of a symbolic value is not known while the kernel is built",
        where=caller(),
        hint="branch with `with k.when(item.flag):`, loop with `for i in k.range(count):`, "
        "or overwrite an accumulator with `k.mma(..., first=i)`",
    )


@dataclass(frozen=True, eq=False)
class Index:
    """attribute + counter(loop) * step + cta_rank * rank_step + constant; parts that are None or 0 are absent."""

    attribute: str | None = None
    loop: str | None = None
    step: int = 0
    rank_step: int = 0
    constant: int = 0

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return replace(self, constant=self.constant + other)
        if not isinstance(other, Index):
            return NotImplemented
        if self.attribute and other.attribute:
            raise UserError(
                f"an index holds one work item attribute, this one adds {self.attribute!r} and {other.attribute!r}",
                where=caller(),
                hint="put their sum into the table of work items as an attribute of its own",
            )
        if self.loop and other.loop and self.loop != other.loop:
            raise UserError(
                f"an index holds one loop counter, this one adds {self.loop!r} and {other.loop!r}", where=caller()
            )
        return Index(
            attribute=self.attribute or other.attribute,
            loop=self.loop or other.loop,
            step=self.step + other.step,
            rank_step=self.rank_step + other.rank_step,
            constant=self.constant + other.constant,
        )

    __radd__ = __add__

    def __sub__(self, other: int) -> Index:
        if not isinstance(other, int):
            return NotImplemented
        return self + (-other)

    def __mul__(self, factor: int) -> Index:
        if not isinstance(factor, int):
            return NotImplemented
        if self.attribute and factor != 1:
            raise UserError(
                f"work item attribute {self.attribute!r} cannot be multiplied by {factor}",
                where=caller(),
                hint="attributes count elements: put the product into the table of work items",
            )
        return replace(
            self, step=self.step * factor, rank_step=self.rank_step * factor, constant=self.constant * factor
        )

    __rmul__ = __mul__

    def __bool__(self) -> NoReturn:
        _no_value("the truth")

    def __eq__(self, other: object) -> NoReturn:
        _no_value("a comparison")

    def __ne__(self, other: object) -> NoReturn:
        _no_value("a comparison")

    def __lt__(self, other: object) -> NoReturn:
        _no_value("a comparison")

    __le__ = __gt__ = __ge__ = __lt__

    def __index__(self) -> NoReturn:
        _no_value("the number")

    __int__ = __index__
    __hash__ = object.__hash__

    def count(self) -> Count:
        """Return the loop count that this index stands for: an attribute plus a constant."""
        if self.loop or self.rank_step:
            raise UserError("a loop count may not depend on a loop counter or the CTA's rank", where=caller())
        if self.attribute is None:
            return Count(self.constant)
        return Count(attribute=self.attribute, offset=self.constant)


def as_index(value: Index | int) -> Index:
    """Return `value` as an Index."""
    return value if isinstance(value, Index) else Index(constant=value)
