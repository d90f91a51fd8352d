"""Pass 4: give every value registers, by greedy colouring of aligned groups.

Large groups come first, then values with more neighbours.

A candidate is judged by the source operands that it would put into the bank of another source of the same instruction,
then by how long ago its registers were handed out (rotation: fewer false dependences on reads still in flight).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from heddle.errors import SourceLocation, UserError
from heddle.ir.warp import RZ
from heddle.machine.spec import Machine
from heddle.passes.draft import SHARED_FILES, Draft, DraftProgram, File, RoleDraft, Value
from heddle.passes.liveness import Liveness, liveness

UNIFORM_REGISTERS = 63  # a warp has UR0..UR62 (CUDA binary utilities documentation)
LARGE_GROUP = 8  # registers; such groups (accumulators, fragments of tensor memory) are placed before all others
Partners = dict[int, list[tuple[int, int, int]]]
PREDICATES = 7  # P0..P6; P7 reads as true (same source)


@dataclass(frozen=True, slots=True)
class AllocateRegisters:
    """Allocate each role within its budget. `bank_aware`: avoid sources of one instruction in one bank."""

    bank_aware: bool = True

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Allocate all roles. Raises UserError where a role does not fit its budget (Heddle does not spill)."""
        return replace(program, roles=tuple(self._role(role, program, machine) for role in program.roles))

    def _role(self, role: RoleDraft, program: DraftProgram, machine: Machine) -> RoleDraft:
        live = liveness(role.code)
        _check_entry(role, live)
        budget = min(role.body.registers, machine.max_registers_per_thread, RZ)
        limits: dict[File, int] = {"vector": budget, "uniform": UNIFORM_REGISTERS, "predicate": PREDICATES}
        peak = max((live.pressure(mask) for mask in live.after), default=0)
        conflicts = _interference(role.code, live)
        partners = _bank_partners(role.code) if self.bank_aware else {}
        # rotation spreads temporaries over the budget; if that leaves holes that are too small, pack instead
        for rotate in (True, False):
            registers, failed = _colour(live, conflicts, limits, partners, machine, rotate)
            if failed is None:
                return replace(role, registers=registers, peak_live=peak)
        assert failed is not None
        raise _spill(role, live, program, failed, limits[failed.file])


def _colour(
    live: Liveness,
    conflicts: Mapping[int, int],
    limits: Mapping[File, int],
    partners: Partners,
    machine: Machine,
    rotate: bool,
) -> tuple[dict[int, int], Value | None]:
    """First registers by value id, and the value that found no place (or None)."""
    registers: dict[int, int] = {}
    rotation = dict.fromkeys(limits, 0)
    neighbours = {value.id: conflicts[value.id].bit_count() for value in live.values}
    position = {value.id: 1 << index for index, value in enumerate(live.values)}
    placed = 0  # the values that have registers, as a bit set
    longest = max(neighbours.values(), default=0)

    def order(value: Value) -> tuple[int, int, int]:
        large = value.count if value.count >= LARGE_GROUP or not rotate else 0
        return (-large, -neighbours[value.id], value.id)

    for value in sorted((value for value in live.values if value.file not in SHARED_FILES), key=order):
        taken = _taken(live, conflicts[value.id] & placed, registers)
        start = rotation[value.file] if rotate and 2 * neighbours[value.id] < longest else 0
        base = _choose(value, limits[value.file], taken, registers, partners, machine, start)
        if base is None:
            return registers, value
        registers[value.id] = base
        placed |= position[value.id]
        if start or 2 * neighbours[value.id] < longest:
            rotation[value.file] = base + value.count
    return registers, None


def _check_entry(role: RoleDraft, live: Liveness) -> None:
    """No register tile may be read before it is written."""
    for value in live.live_values(live.at_entry):
        if value.file in SHARED_FILES:
            continue
        raise UserError(
            f"register tile {value.tile or value.name} of role {role.body.name} is read before it is written",
            where=role.body.where,
            hint="fill or load it first",
        )


def _interference(code: tuple[Draft, ...], live: Liveness) -> dict[int, int]:
    """For each value the set (bit i = i-th value) of values of its file that are live when it is written."""
    position = {value.id: index for index, value in enumerate(live.values)}
    by_file: dict[str, int] = defaultdict(int)
    for value in live.values:
        by_file[value.file] |= 1 << position[value.id]
    conflicts: dict[int, int] = defaultdict(int)

    def together(alive: int, written: list[Value]) -> None:
        for value in written:
            alive |= 1 << position[value.id]
        for value in written:
            conflicts[value.id] |= alive & by_file[value.file] & ~(1 << position[value.id])

    entering = live.live_values(live.at_entry)
    together(sum(1 << position[value.id] for value in entering), entering)
    for draft, alive in zip(code, live.each_after(), strict=True):
        if draft.dst:
            together(alive, [operand.value for operand in draft.dst])
    for value in live.values:  # make it symmetric
        mask, own = conflicts[value.id], 1 << position[value.id]
        while mask:
            low = mask & -mask
            conflicts[live.values[low.bit_length() - 1].id] |= own
            mask ^= low
    return conflicts


def _taken(live: Liveness, placed: int, registers: Mapping[int, int]) -> int:
    """Registers (as a bit set) of a set of values that have their place."""
    taken = 0
    while placed:
        low = placed & -placed
        other = live.values[low.bit_length() - 1]
        taken |= ((1 << other.count) - 1) << registers[other.id]
        placed ^= low
    return taken


def _bank_partners(code: tuple[Draft, ...]) -> Partners:
    """For each value: (own offset, other value, other offset) of single registers read by one instruction."""
    partners: Partners = defaultdict(list)
    for draft in code:
        singles = [o for o in draft.src if o.count == 1 and o.value.file == "vector"]
        for one in singles:
            for other in singles:
                if one.value.id != other.value.id:
                    partners[one.value.id].append((one.offset, other.value.id, other.offset))
    return partners


def _choose(
    value: Value,
    limit: int,
    taken: int,
    registers: Mapping[int, int],
    partners: Partners,
    machine: Machine,
    start: int,
) -> int | None:
    group = (1 << value.count) - 1
    best: tuple[int, int] | None = None
    placed = [(own, registers[o] + offset) for own, o, offset in partners.get(value.id, ()) if o in registers]
    banks = machine.register_banks
    costs = [sum((base + own - other) % banks == 0 for own, other in placed) for base in range(banks)]
    for base in range(0, limit - value.count + 1, value.align):
        if taken >> base & group:
            continue
        rank = (costs[base % banks], (base - start) % limit)
        if best is None or rank < best:
            best = rank
    return None if best is None else (best[1] + start) % limit


def _spill(role: RoleDraft, live: Liveness, program: DraftProgram, value: Value, limit: int) -> UserError:
    """The error for a role that does not fit, at the instruction with the most live registers."""
    peak = max(range(len(live.after)), key=lambda i: live.pressure(live.after[i], value.file))
    source = program.sources[role.code[peak].row.source]
    mask = live.after[peak]
    tiles: dict[str, int] = defaultdict(int)
    for held in live.live_values(mask):
        if held.file == value.file:
            tiles[held.tile or "temporaries"] += (mask & live.masks[held.id]).bit_count()
    shares = ", ".join(f"{name} {count}" for name, count in sorted(tiles.items(), key=lambda item: -item[1]))
    return UserError(
        f"role {role.body.name} spills: {live.pressure(mask, value.file)} {value.file} registers a thread are live "
        f"({shares}) and its budget is {limit}; no room for {value.tile or value.name} ({value.count})",
        where=SourceLocation(source.file, source.line) if source.line else role.body.where,
        hint="use a smaller tile, more warps, or a larger register budget",
    )
