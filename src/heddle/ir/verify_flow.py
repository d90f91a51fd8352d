"""Checks that follow the control flow of each role: it ends, stays within its registers, and meets in full numbers."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.ir.opcodes import Unit
from heddle.ir.verify_paths import path_problems
from heddle.ir.verify_problem import Problem, in_range, unit_of
from heddle.ir.warp import RZ, Register, Role, WarpProgram

GROUP_WARPS = 4  # warps of a warp group
_ALIGNED = (2, 4)  # register groups of these sizes are aligned to their size
_BRANCHES = (Unit.LOOP, Unit.SKIP, Unit.NEXT_ITEM, Unit.SPLIT, Unit.REJOIN)


def flow_problems(program: WarpProgram) -> Iterator[Problem]:
    """Yield what is wrong with the way roles run through the code."""
    code = {role.name: reachable(program, role) for role in program.roles}
    for role in program.roles:
        yield from _ends(program, role, code[role.name])
        if program.mode != "fiber":  # there registers belong to no role
            yield from _registers(program, role, code[role.name])
        yield from _warp_groups(program, role, code[role.name])
    yield from _meetings(program, code)
    yield from path_problems(program)


def reachable(program: WarpProgram, role: Role) -> list[int]:
    """Return the program counters that a role can reach, ascending."""
    seen: set[int] = set()
    todo = [role.entry]
    while todo:
        pc = todo.pop()
        if pc in seen or not in_range(pc, program):
            continue
        seen.add(pc)
        instruction = program.instructions[pc]
        unit = unit_of(instruction)
        if unit is not Unit.EXIT:
            todo.append(pc + 1)
        if unit in _BRANCHES and instruction.target is not None:
            todo.append(instruction.target)
    return sorted(seen)


def _ends(program: WarpProgram, role: Role, code: list[int]) -> Iterator[Problem]:
    last = len(program.instructions) - 1
    if code and code[-1] == last and unit_of(program.instructions[last]) is not Unit.EXIT:
        yield Problem(f"role {role.name!r} runs past the end of the code; it needs an EXIT", last)


def _registers(program: WarpProgram, role: Role, code: list[int]) -> Iterator[Problem]:
    for pc in code:
        instruction = program.instructions[pc]
        for register in (instruction.dst, *instruction.src):
            text = _register(register, role) if register is not None else None
            if text is not None:
                yield Problem(text, pc)


def _register(register: Register, role: Role) -> str | None:
    if register.index == RZ and register.count == 1:
        return None
    if register.count < 1 or register.index < 0:
        return f"a group of {register.count} registers from R{register.index}; needs 1 or more from R0"
    if register.index + register.count > role.registers_per_thread:
        last = register.index + register.count - 1
        return f"register R{last}; role {role.name!r} has R0 to R{role.registers_per_thread - 1}"
    if register.count in _ALIGNED and register.index % register.count:
        size = register.count
        return f"a group of {size} registers from R{register.index}; it must start at a multiple of {size}"
    return None


def _warp_groups(program: WarpProgram, role: Role, code: list[int]) -> Iterator[Problem]:
    pc = next((pc for pc in code if unit_of(program.instructions[pc]) is Unit.WGMMA), None)
    if pc is not None and (role.first_warp % GROUP_WARPS or role.warps % GROUP_WARPS):
        yield Problem(
            f"role {role.name!r} has warps {role.first_warp} to {role.first_warp + role.warps - 1}; "
            f"{program.instructions[pc].op} needs whole warp groups (4j to 4j + 3)",
            pc,
        )


def _meetings(program: WarpProgram, code: dict[str, list[int]]) -> Iterator[Problem]:
    """Check for each named barrier, and the cluster barrier, that roles can make up its number of warps."""
    uses: dict[int | str, list[tuple[int, Role]]] = {}
    for role in program.roles:
        for pc in code[role.name]:
            unit = unit_of(program.instructions[pc])
            if unit in (Unit.BARRIER_SYNC, Unit.BARRIER_ARRIVE):
                uses.setdefault(program.instructions[pc].barrier_id, []).append((pc, role))
            elif unit is Unit.CLUSTER_SYNC:
                uses.setdefault("cluster", []).append((pc, role))
    for barrier, users in uses.items():
        units = {unit_of(program.instructions[pc]) for pc, _ in users}
        if units != {Unit.BARRIER_ARRIVE}:  # else nobody waits
            yield from _meeting(program, barrier, users)


def _meeting(program: WarpProgram, barrier: int | str, users: list[tuple[int, Role]]) -> Iterator[Problem]:
    name = f"named barrier {barrier}" if isinstance(barrier, int) else "the cluster barrier"
    roles = {role.name: role for _, role in users}
    ctas = {
        role.name: 1 if role.leader_only or isinstance(barrier, int) else program.cluster_size
        for role in roles.values()
    }
    sums = {0}
    for role in roles.values():
        sums |= {total + role.warps * ctas[role.name] for total in sums}
    reported: set[int] = set()
    for pc, _ in users:
        warps = program.instructions[pc].warps
        if warps not in sums and pc not in reported:
            reported.add(pc)
            given = ", ".join(f"{role.name} {role.warps * ctas[role.name]}" for role in roles.values())
            yield Problem(f"{name} waits for {warps} warps, which its roles cannot make up ({given})", pc)
