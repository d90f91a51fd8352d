"""How many CTAs of a program one SM holds, and which resource decides.

Rule: docs/reference/engine.md, section 1. Used by `launch` (what runs where) and by reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of an SM: what a CTA needs of it, what there is, and how many CTAs that allows."""

    name: str
    need: int
    available: int
    unit: str
    remedy: str

    @property
    def ctas(self) -> int:
        """CTAs that fit by this resource alone; a resource that is not needed allows as many as there is of it."""
        return self.available // self.need if self.need else max(self.available, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident CTAs and warps an SM. `limits`: CTAs allowed by each resource; `limited_by` is the first that binds."""

    ctas_per_sm: int
    limited_by: str
    limits: Mapping[str, int]
    warps_per_sm: int
    registers_per_cta: int  # vector registers
    shared_memory_bytes_per_cta: int  # with the system's reserve


FIBER_REGISTER_UNIT = 4  # registers of a FIBER-thread in a subpartition are rounded up to quads


def registers_of_cta(program: WarpProgram, machine: Machine) -> int:
    """Return the vector registers (32 lanes x 32 bit) of a CTA: by role, registers a thread rounded up, times warps.

    A FIBER-thread (docs/reference/fiber.md, section 2) takes its `fiber.registers` of each subpartition, whatever its
    roles say.
    """
    if program.fiber is not None:
        quads = -(-program.fiber.registers // FIBER_REGISTER_UNIT)
        return machine.subpartitions * quads * FIBER_REGISTER_UNIT
    unit = machine.register_allocation_unit
    return sum(role.warps * (-(-role.registers_per_thread // unit) * unit) for role in program.roles)


def _contexts(program: WarpProgram, machine: Machine) -> Resource:
    """Return the warp contexts that a CTA needs; of a FIBER-thread the wefts of its fullest subpartition."""
    if program.mode == "fiber":
        wefts = -(-program.warps_per_cta // machine.subpartitions)
        available = machine.max_wefts_per_subpartition
        return Resource(
            name="warps", need=wefts, available=available, unit="wefts a subpartition", remedy="use fewer wefts"
        )
    return Resource(
        name="warps",
        need=program.warps_per_cta,
        available=machine.max_warps_per_sm,
        unit="warps",
        remedy="use fewer warps",
    )


def resources(program: WarpProgram, machine: Machine) -> tuple[Resource, ...]:
    """Return what one CTA of the program needs of an SM, resource by resource."""
    shared = program.shared_memory_bytes + machine.shared_memory_reserved_bytes_per_cta
    return (
        Resource(
            name="shared memory",
            need=shared,
            available=machine.shared_memory_bytes,
            unit="bytes",
            remedy="use smaller tiles or fewer stages",
        ),
        Resource(
            name="registers",
            need=registers_of_cta(program, machine),
            available=machine.vector_registers,
            unit="vector registers",
            remedy="give the roles fewer registers a thread or fewer warps",
        ),
        _contexts(program, machine),
        Resource(name="CTAs", need=1, available=machine.max_ctas_per_sm, unit="CTAs", remedy=""),
        Resource(
            name="tensor memory",
            need=program.tensor_memory_columns,
            available=machine.tensor_memory_columns,
            unit="columns",
            remedy="use smaller accumulators or fewer stages of them",
        ),
    )


def _check_cta(program: WarpProgram, machine: Machine, needs: tuple[Resource, ...]) -> None:
    """Raise UserError if not even one CTA fits, naming every number."""
    if program.shared_memory_bytes > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"{program.name}: a CTA needs {program.shared_memory_bytes} bytes of shared memory; "
            f"{machine.name} allows {machine.shared_memory_bytes_per_cta} a CTA",
            hint="use smaller tiles or fewer stages",
        )
    for resource in needs:
        if resource.need and not resource.ctas:
            raise UserError(
                f"{program.name}: a CTA needs {resource.need} {resource.unit}; "
                f"an SM of {machine.name} has {resource.available}",
                hint=resource.remedy,
            )
    for role in program.roles if program.mode != "fiber" else ():
        if role.registers_per_thread > machine.max_registers_per_thread:
            raise UserError(
                f"{program.name}: role {role.name!r} has {role.registers_per_thread} registers a thread; "
                f"{machine.name} allows {machine.max_registers_per_thread}",
                hint="spread the tile over more warps",
            )


def occupancy(program: WarpProgram, machine: Machine) -> Occupancy:
    """Return how many CTAs of `program` an SM of `machine` holds. Raises UserError if none fits."""
    if not program.roles or not program.warps_per_cta:
        raise UserError(f"{program.name}: the program has no warps", hint="give it at least one role with a warp")
    needs = resources(program, machine)
    _check_cta(program, machine, needs)
    limits = {resource.name: resource.ctas for resource in needs if resource.need}
    limited_by = min(limits, key=lambda name: limits[name])
    return Occupancy(
        ctas_per_sm=limits[limited_by],
        limited_by=limited_by,
        limits=limits,
        warps_per_sm=limits[limited_by] * program.warps_per_cta,
        registers_per_cta=registers_of_cta(program, machine),
        shared_memory_bytes_per_cta=program.shared_memory_bytes + machine.shared_memory_reserved_bytes_per_cta,
    )
