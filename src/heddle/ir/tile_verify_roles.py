"""Rules on roles, on who may use a register tile, and on what an architecture has."""

from __future__ import annotations

from typing import Any

from heddle.errors import UserError
from heddle.ir import tile
from heddle.ir.tile_walk import body_of, register_reads, register_writes, uses_bits, walk

GROUP_WARPS = 4
"""wgmma is issued by four consecutive warps that begin at a multiple of four (PTX ISA)."""

SINCE: dict[type[tile.Op], str] = {
    tile.TmaLoad: "sm_90",
    tile.TmaStore: "sm_90",
    tile.TmaStoreWait: "sm_90",
    tile.CopyToPeer: "sm_90",
    tile.TmaAddFolded: "sm_100",
    tile.ClusterSync: "sm_90",
    tile.LoadTensorMemory: "sm_100",
    tile.StoreTensorMemory: "sm_100",
}
"""The first architecture that has an operation; others are everywhere."""
ORDER = ("sm_80", "sm_90", "sm_100")
TURNED_LOADS = ("sm_100", "fiber")
"""Architecture and mode whose first operands in registers have a row in each lane."""
COPYING_LOADS = ("sm_80", "fiber")
"""Those whose wefts copy rows of their own, and load second operands from shared memory into each subpartition."""


def verify_architecture(program: tile.TileProgram) -> None:
    """Operations exist on the architecture."""
    if program.architecture not in ORDER:
        raise UserError(f"unknown architecture {program.architecture!r}; allowed: {', '.join(ORDER)}")
    level = ORDER.index(program.architecture)
    for op, _ in walk(program):
        since = SINCE.get(type(op), ORDER[0])
        if ORDER.index(since) > level:
            raise UserError(
                f"{type(op).__name__} needs {since} or later, this kernel is for {program.architecture}", where=op.where
            )
        if isinstance(op, tile.MmaWait) and program.architecture != "sm_90":
            raise UserError(f"MmaWait waits for wgmma, which {program.architecture} does not have", where=op.where)
        if isinstance(op, tile.Mma) and op.a_transposed:
            _transposable(program, op)
        _turned_load(program, op)
        _own_parts(program, op)
        if isinstance(op, tile.StoreShared) and op.transposed and program.architecture == "sm_80":
            raise UserError("a transposed store needs stmatrix, which sm_80 does not have", where=op.where)
        if isinstance(op, tile.Mma) and isinstance(op.acc, tile.TmemRef) != (program.architecture == "sm_100"):
            place = "tensor memory" if program.architecture == "sm_100" else "registers"
            raise UserError(f"on {program.architecture} accumulators are in {place}", where=op.where)
        for count in _cluster_sizes(op):
            if count > program.cluster_size:
                raise UserError(
                    f"{count} CTAs take part, but the cluster has {program.cluster_size}",
                    where=op.where,
                    hint="set k.cluster_size",
                )


def _own_parts(program: tile.TileProgram, op: tile.Op) -> None:
    """Elsewhere wefts of other subpartitions read a tensor where it lies, or take it from shared memory."""
    if isinstance(op, tile.CpAsync) and op.own_rows and (program.architecture, program.mode) != COPYING_LOADS:
        raise UserError(
            f"copies of own rows are for {COPYING_LOADS[0]} in mode {COPYING_LOADS[1]}; elsewhere warps take turns",
            where=op.where,
        )
    if not isinstance(op, tile.LoadShared) or not op.each:
        return
    pool = {tensor.name for tensor in program.pool if tensor.read_by == "own"}
    if (program.architecture, program.mode) != COPYING_LOADS or op.dst not in pool:
        raise UserError(
            f"a load of the whole box by each weft is for {COPYING_LOADS[0]} in mode {COPYING_LOADS[1]}, into a pool "
            f"tensor that wefts read in their own subpartition; {op.dst!r} is none",
            where=op.where,
        )


def _turned_load(program: tile.TileProgram, op: tile.Op) -> None:
    """Elsewhere ldmatrix turns what it loads, or descriptors do."""
    if isinstance(op, tile.LoadShared) and op.transposed and (program.architecture, program.mode) != TURNED_LOADS:
        raise UserError(
            f"a transposed load is for {TURNED_LOADS[0]} in mode {TURNED_LOADS[1]}, where a lane holds a row",
            where=op.where,
        )


def _transposable(program: tile.TileProgram, op: tile.Mma) -> None:
    """ldmatrix, wgmma and tcgen05.mma read shared memory across its rows; wefts take what ldmatrix has turned."""
    if program.mode != "fiber":
        return
    if isinstance(op.a, tile.SharedRef) and (program.architecture == "sm_100" or not uses_bits(program)):
        return
    turned = {pool.name for pool in program.pool if pool.read_by == "own" and pool.warp_grid == (1, GROUP_WARPS)}
    if program.architecture != "sm_80" or op.a not in turned:
        raise UserError(
            "a transposed first operand of mode fiber is a pool tensor of sm_80 that is divided along its columns, or "
            "lies in shared memory of sm_100; in a kernel without bits it may lie there",
            where=op.where,
            hint=f"declare it with k.pool(..., wefts=(1, {GROUP_WARPS})) and load it from shared memory",
        )


def _cluster_sizes(op: tile.Op) -> tuple[int, ...]:
    if isinstance(op, tile.TmaLoad):
        return (op.multicast,)
    if isinstance(op, tile.CopyToPeer):
        return (2,)
    return (op.ctas,) if isinstance(op, tile.Mma) else ()


def verify_roles(program: tile.TileProgram) -> None:
    """Roles that issue wgmma are whole warp groups; a register tile belongs to one role and matches its warps."""
    registers = {register.name: register for register in (*program.registers, *program.pool)}
    pool = {register.name for register in program.pool}
    everywhere = {register.name for register in program.pool if register.read_by == "all"}
    for register in registers.values():
        rows, cols = register.warp_grid
        vector = register.spread == "second" or (register.spread != "fragments" and register.rows == 1)
        if (register.rows % rows and not vector) or (register.cols % cols and register.cols != 1):
            raise UserError(
                f"register tile {register.name!r} of {register.rows} x {register.cols} cannot be divided among "
                f"{rows} x {cols} warps"
            )
    owner: dict[str, str] = {}
    first_warp = _first_warps(program)
    for op, place in walk(program):
        for name in (*register_reads(op), *register_writes(op)):
            grid = registers[name].warp_grid
            anywhere = name in everywhere and name not in register_writes(op)
            if grid[0] * grid[1] != place.role.warps and not anywhere:
                raise UserError(
                    f"register tile {name!r} is spread over {grid[0]} x {grid[1]} warps, role {place.role.name!r} has "
                    f"{place.role.warps}",
                    where=op.where,
                )
            if name not in pool and owner.setdefault(name, place.role.name) != place.role.name:
                raise UserError(
                    f"register tile {name!r} belongs to role {owner[name]!r}; {place.role.name!r} needs one of its own",
                    where=op.where,
                )
        if isinstance(op, tile.Mma) and program.architecture == "sm_90":
            _whole_groups(place.role, first_warp[place.role.name], op)


def _first_warps(program: tile.TileProgram) -> dict[str, int]:
    first, result = 0, {}
    for role in program.roles:
        result[role.name] = first
        first += role.warps
    return result


def _whole_groups(role: tile.RoleBody, first: int, op: tile.Op) -> None:
    if role.warps % GROUP_WARPS or first % GROUP_WARPS:
        raise UserError(
            f"role {role.name!r} has warps {first} to {first + role.warps - 1}; wgmma is issued by groups of "
            f"{GROUP_WARPS} warps that begin at a multiple of {GROUP_WARPS}",
            where=op.where,
            hint="declare the roles that multiply before the others",
        )


def verify_register_flow(program: tile.TileProgram) -> None:
    """A register tile is written, in program order, before it is read; a pool tensor by whoever produces it."""
    for role in program.roles:
        _flow(role.body, {pool.name for pool in program.pool})


def _flow(body: tuple[tile.Op, ...], written: set[str]) -> None:
    paths: list[set[str]] = []
    for op in body:
        for name in register_reads(op):
            if name not in written:
                raise UserError(
                    f"register tile {name!r} is read before anything is written to it",
                    where=op.where,
                    hint=_flow_hint(op),
                )
        written |= set(register_writes(op))
        if isinstance(op, tile.Fibers | tile.OtherFibers):
            _flow_of_path(op, written, paths)
        else:
            _flow(body_of(op), written)


def _flow_of_path(op: tile.Fibers | tile.OtherFibers, written: set[str], paths: list[set[str]]) -> None:
    """What both paths write is written; `paths` has what the first one did."""
    here = set(written)
    _flow(op.body, here)
    if isinstance(op, tile.Fibers):
        paths[:] = [here]
    elif paths:
        written |= here & paths.pop()


def _flow_hint(op: Any) -> str:
    if isinstance(op, tile.Mma):
        return "start with k.fill(acc), k.mma(..., accumulate=False) or k.mma(..., first=i)"
    return ""
