"""Which register objects races are looked for in, and between whom."""

from __future__ import annotations

from itertools import pairwise

from heddle.interp._events import ASYNCHRONOUS_UNITS
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.sim.launch_work import role_code


def handed_over(program: WarpProgram) -> frozenset[str]:
    """Return register objects that pass between roles by barriers or tokens; bits have rules of their own."""
    registers = {o.name for o in program.objects if o.space == "register"} - _by_bits(program)
    roles: dict[str, set[str]] = {}
    for role in program.roles:
        for pc in range(*role_code(program, role)):
            number = program.instructions[pc].effect
            if number is not None:
                effect = program.effects[number]
                for access in (*effect.reads, *effect.writes):
                    roles.setdefault(access.object, set()).add(role.name)
    return frozenset(name for name in registers if len(roles.get(name, ())) > 1)


def _by_bits(program: WarpProgram) -> set[str]:
    """Return what a bound instruction reads or writes: full and empty bits order it."""
    named: set[str] = set()
    for bound, instruction in pairwise(program.instructions):
        if bound.bind is not None and instruction.effect is not None:
            effect = program.effects[instruction.effect]
            named.update(access.object for access in (*effect.reads, *effect.writes))
    return named


def private_objects(program: WarpProgram) -> frozenset[str]:
    """Return register objects that no asynchronous unit touches: the program order of their warp is all they need."""
    registers = {o.name for o in program.objects if o.space == "register" and o.scope != "cluster"}
    for instruction in program.instructions:
        unit = OPCODES[instruction.op].unit
        if instruction.effect is not None and unit in ASYNCHRONOUS_UNITS:
            effect = program.effects[instruction.effect]
            touched = effect.writes if unit is Unit.GLOBAL else (*effect.reads, *effect.writes)
            registers -= {access.object for access in touched}
    return frozenset(registers)
