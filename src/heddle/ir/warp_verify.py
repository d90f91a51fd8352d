"""Check a warp program before it runs: every rule that can be checked without simulating.

`verify` raises one UserError that lists what is wrong, each line with program counter, opcode and source line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from heddle.errors import SourceLocation, UserError
from heddle.ir.verify_declarations import declaration_problems
from heddle.ir.verify_fiber import Features, feature_problems, fiber_problems
from heddle.ir.verify_fields import field_problems
from heddle.ir.verify_flow import flow_problems
from heddle.ir.verify_problem import Problem
from heddle.ir.warp import WarpProgram

__all__ = ["Limits", "Problem", "problems", "verify"]

_SHOWN = 10  # problems in one message


class Limits(Features, Protocol):
    """What a machine allows; `heddle.machine.Machine` has these fields."""

    @property
    def max_registers_per_thread(self) -> int: ...
    @property
    def max_warps_per_sm(self) -> int: ...
    @property
    def max_cluster_size(self) -> int: ...
    @property
    def shared_memory_bytes_per_cta(self) -> int: ...
    @property
    def tensor_memory_columns(self) -> int: ...


def verify(program: WarpProgram, machine: Limits | None = None) -> None:
    """Raise UserError if the program breaks a rule, or a limit of `machine` if one is given."""
    found = list(problems(program, machine))
    if not found:
        return
    lines = [f"  {problem.text(program)}" for problem in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"  and {len(found) - _SHOWN} more")
    count = "a problem" if len(found) == 1 else f"{len(found)} problems"
    error = UserError("\n".join([f"warp program {program.name!r} has {count}:", *lines]))
    error.where = _place(program, found)
    raise error


def problems(program: WarpProgram, machine: Limits | None = None) -> Iterator[Problem]:
    """Yield every broken rule: declarations first, then instructions, control flow, FIBER, limits."""
    yield from declaration_problems(program)
    for pc, instruction in enumerate(program.instructions):
        yield from (Problem(message, pc) for message in field_problems(instruction, pc, program))
    yield from flow_problems(program)
    yield from fiber_problems(program)
    if machine is not None:
        yield from _limits(program, machine)
        yield from feature_problems(program, machine)


def _limits(program: WarpProgram, machine: Limits) -> Iterator[Problem]:
    for role in program.roles if program.mode != "fiber" else ():
        if role.registers_per_thread > machine.max_registers_per_thread:
            yield Problem(
                f"role {role.name!r} has {role.registers_per_thread} registers a thread; "
                f"{machine.name} allows {machine.max_registers_per_thread}"
            )
    needs = [
        ("warps a CTA", program.warps_per_cta if program.mode != "fiber" else 0, machine.max_warps_per_sm),
        ("CTAs a cluster", program.cluster_size, machine.max_cluster_size),
        ("bytes of shared memory a CTA", program.shared_memory_bytes, machine.shared_memory_bytes_per_cta),
        ("columns of tensor memory", program.tensor_memory_columns, machine.tensor_memory_columns),
    ]
    for what, needed, allowed in needs:
        if needed > allowed:
            yield Problem(f"{needed} {what}; {machine.name} allows {allowed}")


def _place(program: WarpProgram, found: list[Problem]) -> SourceLocation | None:
    """Return the source line of the first problem that has one."""
    for problem in found:
        if problem.pc is not None and program.instructions[problem.pc].source < len(program.sources):
            source = program.sources[program.instructions[problem.pc].source]
            return SourceLocation(source.file, source.line)
    return None
