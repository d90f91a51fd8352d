"""What is simulated: the whole chip, or the group of SMs that represents it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heddle.errors import UnsupportedError, UserError
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.launch import plan_launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Groups of the chip, which of them are simulated, clusters at the start, and items that are left for later."""

    mode: Literal["chip", "sm"]
    groups: int  # of the chip; each holds a cluster a slot
    simulated: tuple[int, ...]  # groups
    slots: int  # that hold a cluster, of a group
    cluster_size: int
    places: tuple[
        int, ...
    ]  # numbers of the clusters resident at the start: place c is group c % groups, slot c // groups
    resident: int  # such clusters on the whole chip
    later_items: tuple[int, ...]  # rows handed out one by one under launch and dynamic
    instruction_miss_cycles: int

    @property
    def sm_numbers(self) -> list[int]:
        """Chip-wide numbers of the simulated SMs."""
        return [group * self.cluster_size + rank for group in self.simulated for rank in range(self.cluster_size)]


REGISTER_ALIGNMENT = 4  # of a FIBER-thread's registers in each subpartition (docs/reference/fiber.md, section 2)


def _registers(program: WarpProgram, machine: Machine) -> int:
    """Return the vector registers of a CTA."""
    if program.fiber is not None:
        return machine.subpartitions * (-(-program.fiber.registers // REGISTER_ALIGNMENT) * REGISTER_ALIGNMENT)
    unit = machine.register_allocation_unit
    return sum(role.warps * (-(-role.registers_per_thread // unit) * unit) for role in program.roles)


def _by_contexts(program: WarpProgram, machine: Machine) -> int:
    """Return how many CTAs the warp contexts allow."""
    if program.mode != "fiber":
        return machine.max_warps_per_sm // program.warps_per_cta
    return machine.max_wefts_per_subpartition // -(-program.warps_per_cta // machine.subpartitions)


def slots_per_sm(program: WarpProgram, machine: Machine) -> int:
    """Return how many CTAs an SM holds; UserError if none fits."""
    registers = _registers(program, machine)
    shared = program.shared_memory_bytes + machine.shared_memory_reserved_bytes_per_cta
    limits = [machine.max_ctas_per_sm, _by_contexts(program, machine)]
    limits += [machine.shared_memory_bytes // shared] if shared else []
    limits += [machine.vector_registers // registers] if registers else []
    if program.tensor_memory_columns:
        limits.append(machine.tensor_memory_columns // program.tensor_memory_columns)
    if min(limits) < 1:
        raise UserError(f"no CTA of {program.name} fits an SM of {machine.name}")
    return min(limits)


def make_setup(program: WarpProgram, machine: Machine, mode: str, l2_state: str) -> Setup:
    """Place the clusters of a program (docs/reference/engine.md, sections 6 and 8)."""
    if mode not in ("chip", "sm"):
        raise UnsupportedError(f"the reference engine has no mode {mode!r}; it has chip and sm")
    groups, slots, rows = machine.sms // program.cluster_size, slots_per_sm(program, machine), len(program.work.items)
    wanted = rows if program.work.schedule == "launch" else min(program.work.grid, rows)
    resident = min(wanted, groups * slots)
    places, later = range(resident), list(range(resident, rows))
    simulated = tuple(range(min(groups, resident)))  # groups without a cluster have nothing to simulate
    if mode == "sm":
        plan = plan_launch(program, machine)
        simulated = (plan.representative,)
        places = range(plan.representative, resident, groups)
        later = sorted(int(row) for place in places for row in plan.items[place][1:])
    return Setup(
        mode="chip" if mode == "chip" else "sm",
        groups=groups,
        simulated=simulated,
        slots=-(-len(places) // len(simulated)),
        cluster_size=program.cluster_size,
        places=tuple(places),
        resident=resident,
        later_items=tuple(later),
        instruction_miss_cycles=machine.instruction_miss_cycles if l2_state == "flushed" else 0,
    )
