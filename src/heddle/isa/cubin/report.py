"""What `heddle sass check` says of a cubin: the 13 bits, live registers, and whether a patch kept everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.errors import UserError
from heddle.isa.claims import Claims
from heddle.isa.codec import decode
from heddle.isa.cubin.cubin import Cubin, Function, read_cubin
from heddle.isa.cubin.flow import EXACT, flow_of, raw_instructions
from heddle.isa.liveness import count_of, live_sets


@dataclass(frozen=True, slots=True)
class Pressure:
    """Live vector registers of one kernel: the most at one instruction, and how many instructions have more than a
    limit.

    Both are upper bounds where the table does not know some opcodes (`raw` instructions): they are taken to read every
    register.
    """

    kernel: str
    instructions: int
    raw: int
    most: int
    above: int

    @property
    def share(self) -> float:
        """The share of the instructions that have more live registers than the limit."""
        return self.above / max(self.instructions, 1)


def claims_of(cubins: Iterable[Cubin]) -> dict[str, Claims]:
    """Return the report on the 13 bits for each architecture among some cubins."""
    found: dict[str, Claims] = {}
    for cubin in cubins:
        claims = found.setdefault(cubin.architecture, Claims(cubin.architecture))
        for section in cubin.texts:
            claims.add(decode(cubin.words(section), cubin.architecture))
    return found


def pressure_of(cubin: Cubin, kernel: Function, limit: int) -> Pressure:
    """Return the live registers of one kernel, with the functions in its section."""
    decoded, flow = flow_of(cubin, kernel.section, EXACT)
    counts = [count_of(live) for live in live_sets(flow, EXACT)]
    above, raw = sum(count > limit for count in counts), raw_instructions(decoded).size
    return Pressure(kernel.name, len(counts), raw, max(counts, default=0), above)


def cubins_below(folder: Path) -> Iterator[Cubin]:
    """Yield the cubins of a folder and the folders in it. Raises UserError where there are none."""
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is no folder")
    paths = sorted(folder.rglob("*.cubin"))
    if not paths:
        raise UserError(f"no files *.cubin below {str(folder)!r}", hint="cuobjdump -xelf all LIBRARY takes them out")
    return (read_cubin(path) for path in paths)


def pressure_row(pressure: Pressure, limit: int) -> dict[str, Any]:
    """Return the live registers of a kernel as data for JSON."""
    return {
        "kernel": pressure.kernel,
        "instructions": pressure.instructions,
        "raw": pressure.raw,
        "most_live_registers": pressure.most,
        f"share_above_{limit}": pressure.share,
    }
