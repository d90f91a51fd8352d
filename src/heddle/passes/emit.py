"""Pass 7: write the warp program: registers as numbers, labels as program counters, sizes of the memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heddle.errors import UserError
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.tile import TensorMemoryTile, TileProgram
from heddle.ir.warp import Barrier, Instruction, Register, Ring, Role, WarpProgram
from heddle.ir.warp_fiber import OWN, TENSOR, WINDOW, FiberNote
from heddle.machine.spec import Machine
from heddle.passes.draft import EMITTED, Draft, DraftProgram, Operand, RoleDraft
from heddle.passes.reuse import vector_sources
from heddle.passes.timing import is_real

MBARRIER_BYTES = 8
TILE_ALIGNMENT_BYTES = 1024  # of swizzled tiles (CUDA driver API); plain tiles need 128
PLAIN_ALIGNMENT_BYTES = 128
TMEM_COLUMN_BYTES = 4
PLACES: Mapping[str, int] = {"pool": OWN, "tensor": TENSOR}
"""Of the registers of a file that all roles share."""
TMEM_ALLOCATION_COLUMNS = 32  # tensor memory is allocated in powers of two from this on (PTX ISA, tcgen05.alloc)


@dataclass(frozen=True, slots=True)
class Emit:
    """Turn drafts into a `WarpProgram`."""

    def run(self, program: DraftProgram, machine: Machine) -> WarpProgram:
        """Emit. Raises UserError if shared or tensor memory of a CTA is too small for the tiles."""
        tile = program.tile
        rows: list[Instruction] = []
        roles = []
        for role in program.roles:
            entry = len(rows)
            rows += _role_rows(role, entry)
            roles.append(
                Role(
                    name=role.body.name,
                    first_warp=role.first_warp,
                    warps=role.body.warps,
                    entry=entry,
                    registers_per_thread=role.body.registers,
                    leader_only=role.body.leader_only,
                    base=role.body.window * WINDOW,
                )
            )
        return WarpProgram(
            name=tile.name,
            architecture=tile.architecture,
            instructions=tuple(rows),
            roles=tuple(roles),
            rings=tuple(Ring(name=ring.name, depth=ring.depth) for ring in tile.rings),
            barriers=tuple(Barrier(name=b.name, count=b.count, arrivals=b.arrivals) for b in tile.barriers),
            tensors=tile.tensors,
            streams=program.streams,
            work=program.work,
            sources=program.sources,
            effects=program.effects,
            objects=program.objects,
            shared_memory_bytes=shared_bytes(tile, machine),
            tensor_memory_columns=tensor_memory_columns(tile, machine),
            cluster_size=tile.cluster_size,
            flops=tile.flops,
            mode=tile.mode,
            fiber=fiber_note(program) if tile.mode == "fiber" else None,
            params=tile.params,
        )


def _role_rows(role: RoleDraft, entry: int) -> list[Instruction]:
    labels: dict[str, int] = {}
    count = entry
    for draft in role.code:
        if is_real(draft):
            count += 1
        elif draft.label:
            labels[draft.label] = count
    return [_row(draft, role, labels) for draft in role.code if is_real(draft)]


def _row(draft: Draft, role: RoleDraft, labels: Mapping[str, int]) -> Instruction:
    dst = [operand for operand in draft.dst if operand.value.file in EMITTED]
    return replace(
        draft.row,
        dst=_register(dst[0], role) if dst else None,
        src=tuple(_register(operand, role) for operand in vector_sources(draft)),
        control=draft.control,
        target=labels[draft.target] if draft.target else None,
    )


def _register(operand: Operand, role: RoleDraft) -> Register:
    """The register group of an operand: absolute in the pool, else relative to the role's window."""
    first = role.registers[operand.value.id] + operand.offset
    if operand.value.file in PLACES:
        place = PLACES[operand.value.file] if operand.place is None else operand.place
        return Register(first, operand.count, operand.reuse, place)
    if operand.value.file == "vector" and role.private_first:
        first += role.private_first - role.body.window * WINDOW
    return Register(first, operand.count, operand.reuse)


def fiber_note(program: DraftProgram) -> FiberNote:
    """What a FIBER-thread takes of each subpartition: registers up to the highest in use, and the range of the pool."""
    limit, pool = 0, []
    for role in program.roles:
        for operand in (o for draft in role.code for o in draft.dst + draft.src if o.value.file in ("vector", "pool")):
            first = role.registers[operand.value.id] + operand.offset
            first += role.private_first if operand.value.file == "vector" else 0
            limit = max(limit, first + operand.count)
            pool += [first, first + operand.count] if operand.value.file == "pool" else []
    return FiberNote(registers=limit, pool_first=min(pool, default=0), pool_limit=max(pool, default=0))


def shared_bytes(tile: TileProgram, machine: Machine) -> int:
    """Shared memory of a CTA: tiles, aligned for their swizzle, then the mbarriers; what overlays a tile takes none."""
    total, parts = 0, []
    for shared in (t for t in tile.shared if t.overlays is None):
        size = shared.stages * shared.rows * shared.cols * dtype_bytes(shared.dtype)
        alignment = TILE_ALIGNMENT_BYTES if shared.swizzle_bytes else PLAIN_ALIGNMENT_BYTES
        total = -(-total // alignment) * alignment + size
        parts.append(f"{shared.name} {size}")
    total += MBARRIER_BYTES * sum(barrier.count for barrier in tile.barriers)
    if total > machine.shared_memory_bytes_per_cta:
        raise UserError(
            f"kernel {tile.name} needs {total} bytes of shared memory a CTA ({', '.join(parts)}), "
            f"{machine.name} has {machine.shared_memory_bytes_per_cta}",
            hint="use fewer stages or a smaller tile",
        )
    return total


def tensor_memory_width(tile: TensorMemoryTile) -> int:
    """32-bit columns of one stage of a tensor-memory tile."""
    return -(-tile.cols * dtype_bytes(tile.dtype) // TMEM_COLUMN_BYTES)


def tensor_memory_columns(tile: TileProgram, machine: Machine) -> int:
    """Tensor-memory columns of a CTA, as the hardware allocates them; what overlays a tile takes none of its own."""
    if not tile.tensor_memory:
        return 0
    used = sum(t.stages * tensor_memory_width(t) for t in tile.tensor_memory if t.overlays is None)
    columns = max(TMEM_ALLOCATION_COLUMNS, 1 << (used - 1).bit_length())
    if columns > machine.tensor_memory_columns:
        raise UserError(
            f"kernel {tile.name} needs {used} columns of tensor memory (allocated: {columns}), "
            f"{machine.name} has {machine.tensor_memory_columns}",
            hint="use fewer accumulator stages or a narrower tile",
        )
    return columns
