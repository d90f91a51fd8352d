"""Count the events of FIBER's units in a run: what each instruction causes, times how often it was issued.

Nothing is counted while it is simulated: what an instruction changes in the bitmap and reads through the crossbar
stands in the program. A retry of a request that the arbiter refused is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register
from heddle.ir.warp_fiber import TENSOR, Bind
from heddle.sim.prepare_fiber import is_remote


def count(program: Sequence[Instruction], issued: Sequence[int]) -> dict[str, int]:
    """Return the events by name (`heddle.cost.energies`); `issued`: issues of each instruction."""
    total: Counter[str] = Counter()
    for pc, times in enumerate(issued):
        if times:
            before = program[pc - 1].bind if pc else None
            for name, each in of_instruction(program[pc], before).items():
                total[name] += each * int(times)
    return dict(total)


def of_instruction(instruction: Instruction, bound: Bind | None = None) -> dict[str, int]:
    """Return the events of one issue; `bound`: what the DEPBAR.BIND before it named."""
    found: Counter[str] = Counter(instruction=1)
    unit = OPCODES[instruction.op].unit
    if instruction.bind is not None:
        found["bind"] = 1
    if unit is Unit.SET_FIBER_NUM:
        found["set_fiber_num"] = 1
    elif unit is Unit.BUSY_BIT:
        found[f"{instruction.bit}_{'set' if instruction.set_bit else 'clear'}"] = 1
    else:
        _plain(instruction, unit, bound, found)
    return dict(found)


def _plain(instruction: Instruction, unit: Unit, bound: Bind | None, found: Counter[str]) -> None:
    """Sources are looked up and read, the destination is empty until it is written back."""
    sources = [source for source in instruction.src if _is_register(source)]
    found["lookup_empty"] += len(sources)
    if sources:
        found["request"] += 1
    if is_remote(instruction):
        found["transfer"] += sum(source.count for source in sources)
    elif unit is Unit.WEFT_MMA:
        found["transfer"] += sum(one.count for one in sources if one.place is not None and one.place >= 0)
    if instruction.dst is not None and _is_register(instruction.dst):
        found.update(lookup_full=1, empty_set=1, empty_clear=1)
    if bound is not None:
        found["bind"] += 1  # the latch is read and cleared
        found["full_set"] += bound.hold
        found.update(empty_set=len(bound.consume), full_clear=len(bound.consume))


def _is_register(register: Register) -> bool:
    return register.place != TENSOR and not (register.place is None and register.index == RZ)
