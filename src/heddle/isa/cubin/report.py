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
from heddle.isa.cubin.flow import EXACT, flow_of
from heddle.isa.liveness import count_of, live_sets


@dataclass(frozen=True, slots=True)
class Pressure:
    """Live vector registers of one kernel: the most at one instruction, and how many have more than a limit.

    Both are None where the tables do not know every opcode: what the others read and write would be missing.
    """

    kernel: str
    instructions: int
    most: int | None
    above: int | None

    @property
    def share(self) -> float | None:
        """The share of the instructions that have more live registers than the limit."""
        return None if self.above is None else self.above / max(self.instructions, 1)


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
    if (decoded.form < 0).any():
        return Pressure(kernel.name, len(decoded), None, None)
    counts = [count_of(live) for live in live_sets(flow, EXACT)]
    return Pressure(kernel.name, len(counts), max(counts, default=0), sum(count > limit for count in counts))


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
        "most_live_registers": pressure.most,
        f"share_above_{limit}": pressure.share,
    }
