"""The crossbar of a bank: what a subpartition gets in the cycle after an issue, against the simulator's registers."""

from __future__ import annotations

from random import Random

from heddle.cost.stand_ins import Weft
from heddle.cost.trace import Trace, Unit, pack
from heddle.cost.units.operands import bits_of
from heddle.ir.warp import Register
from heddle.ir.warp_fiber import OWN
from heddle.machine.spec import Machine
from heddle.sim.reference.registers import registers

LANES, LANE_BITS = 32, 32  # of a vector register
WIDTH = LANES * LANE_BITS


def play(machine: Machine, random: Random, cycles: int) -> Trace:
    """Route random data to where random operands are read."""
    trace, parts = Trace(), machine.subpartitions
    before: list[int | None] = [None] * parts  # the source of each subpartition, configured in the cycle before
    for _ in range(cycles):
        sources: list[int | None] = []
        for part in range(parts):
            place = random.choice([OWN, *range(parts)])
            named = registers(Weft(part).as_warp(), Register(random.randrange(254), place=place))
            sources.append(named[0].subpartition if random.random() < 0.9 else None)
        data = [random.getrandbits(WIDTH) for _ in range(parts)]
        trace.give(
            enable=pack((source is not None for source in sources), 1),
            select=pack((source or 0 for source in sources), bits_of(parts)),
            data=pack(data, WIDTH),
        )
        trace.expect(routed=pack((0 if source is None else data[source] for source in before), WIDTH))
        before = sources
    return trace


UNIT = Unit("crossbar", play)
