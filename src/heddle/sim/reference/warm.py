"""The warm state of L2: what a previous run of the same kernel left there.

Exact where all that the kernel touches fits in L2 (then no order of accesses matters); otherwise the reference engine
declines, because the state would depend on the lockstep order of section 6 of docs/reference/engine.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.errors import UnsupportedError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import LOOP_LEVELS, Count, Instruction, Role, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch import plan_launch
from heddle.sim.reference.memory import MemorySystem, block_spaces


def warm_up(memory: MemorySystem, program: WarpProgram, machine: Machine) -> None:
    """Make everything resident that any cluster touches. Raises UnsupportedError if it does not fit."""
    spaces = block_spaces(program, machine.dram_interleave_bytes)
    streams = {stream.name: stream for stream in program.streams}
    for item, role, instruction, loops in _accesses(program, machine):
        assert instruction.stream is not None
        ref, stream = instruction.stream, streams[instruction.stream.name]
        base = int(program.work.items[item, program.work.attributes.index(stream.base)])
        for cta in range(1 if role.leader_only else program.cluster_size):
            block = base + (loops[stream.level] + ref.offset) * stream.step + cta * stream.cta_step
            first = ref.part + (cta * (ref.parts // stream.multicast) if stream.multicast > 1 else 0)
            for rank in _acting(role, instruction):
                part = first + (rank * ref.rank_stride if ref.part_by_rank else 0)
                memory.place(spaces[ref.name], block, part, ref.parts)
    if memory.resident_bytes > machine.l2_bytes:
        raise UnsupportedError(
            f"{program.name} touches {memory.resident_bytes} bytes, {machine.name} has {machine.l2_bytes} of L2",
            hint="the reference engine knows the warm state only where everything fits; use cold or flushed",
        )


def _acting(role: Role, instruction: Instruction) -> range:
    """Return the ranks of the warps for which an instruction acts."""
    return {"warp": range(role.warps), "group": range(0, role.warps, 4), "role": range(1)}[instruction.by]


def _accesses(program: WarpProgram, machine: Machine) -> Iterator[tuple[int, Role, Instruction, list[int]]]:
    """Yield every global access of every role and item with the loop counters at that moment."""
    for rows in plan_launch(program, machine).items:
        launches = [[int(row)] for row in rows] if program.work.schedule == "launch" else [[int(row) for row in rows]]
        for items in launches:
            for role in program.roles:
                yield from _walk(program, role, items)


def _walk(program: WarpProgram, role: Role, items: list[int]) -> Iterator[tuple[int, Role, Instruction, list[int]]]:
    """Follow the control flow of one role over its items."""
    pc, left, loops = role.entry, list(items), [0] * LOOP_LEVELS
    while True:
        instruction = program.instructions[pc]
        unit = OPCODES[instruction.op].unit
        if unit is Unit.EXIT:
            return
        if instruction.stream is not None:
            yield left[0], role, instruction, loops
        taken = False
        if unit is Unit.LOOP:
            loops[instruction.level] += 1
            taken = loops[instruction.level] < _count(program, instruction.count, left[0])
            loops[instruction.level] *= taken
        elif unit is Unit.SKIP:
            taken = _attribute(program, str(instruction.attribute), left[0]) == 0
        elif unit is Unit.NEXT_ITEM and len(left) > 1:
            left.pop(0)
            taken = True
        pc = instruction.target if taken and instruction.target is not None else pc + 1


def _attribute(program: WarpProgram, name: str, item: int) -> int:
    return int(program.work.items[item, program.work.attributes.index(name)])


def _count(program: WarpProgram, count: Count | None, item: int) -> int:
    assert count is not None
    base = count.value if count.attribute is None else _attribute(program, count.attribute, item)
    return base + count.offset
