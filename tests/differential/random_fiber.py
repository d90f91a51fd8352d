"""Random FIBER programs that end by construction, and SIMT ones in mode cuda-native, for machines with FIBER."""

from __future__ import annotations

import dataclasses
import functools
import random

import numpy as np
from random_fiber_roles import WINDOW, ZONE, FiberRole
from random_fiber_steps import STEPS, TENSOR_GROUPS, FiberContext
from random_machines import random_machine

from heddle.ir.warp import Count, Instruction, Role, Source, Stream, Tensor, WarpProgram, Work
from heddle.ir.warp_fiber import FIBERS, FiberNote
from heddle.machine import Machine, machine


@functools.cache
def _base() -> Machine:
    return machine("b200+fiber")


def random_fiber_machine(rng: random.Random, cluster_size: int = 1) -> Machine:
    """Return a small machine with all FIBER features."""
    pick, base = rng.choice, _base()
    today = random_machine(rng, cluster_size)
    return dataclasses.replace(
        today,
        ops={**today.ops, **{name: base.ops[name] for name in _FIBER_OPS}},
        dynamic_parallelism=True,
        fine_scheduling=True,
        register_sharing=True,
        max_wefts_per_subpartition=64,
        tensor_memory_columns=512,
        set_fiber_num_cycles=pick([0, 1, 2, 7, 16, 33]),
        busy_bit_broadcast_cycles=pick([0, 1, 1, 2, 5]),
        matrix_queue_depth=pick([1, 2, 4]),
        operand_prefetch_steps=pick([1, 1, 4]),
    )


_FIBER_OPS = ("SETFIBER", "DEPBAR.BIND", "DEPBAR.BIT", "WMMA", "WMMA.TM")


def random_fiber_case(seed: int) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a program of mode fiber, a machine that it fits, and options of `simulate`, all from one seed."""
    rng = random.Random(seed)
    m = random_fiber_machine(rng)
    options = {"scheduler": rng.choice(["gty", "gto", "lrr"]), "l2_state": "cold", "mode": "chip"}
    return random_fiber_program(rng, name=f"random_fiber_{seed}"), m, options


def random_fiber_program(rng: random.Random, name: str) -> WarpProgram:
    """Return a program whose wefts meet up to three times: their number grows, then may shrink."""
    roles = _roles(rng)
    grouped = any(role.wefts == 4 for role in roles)
    context = FiberContext(rng, roles, grouped, mma_sync=rng.random() < 0.35)
    counts = sorted(rng.sample(range(1, len(roles) + 1), min(len(roles), rng.randint(1, 2))))
    counts[-1] = len(roles)
    if rng.random() < 0.4:
        counts.append(rng.randint(1, len(roles)))
    for phase, count in enumerate(counts):
        _meet(context, count, everything=phase == 0 or rng.random() < 0.3)
        for role in context.live:
            role.mark("item")
        _blocks(context)
    for role in context.live:
        role.branch("NEXT", "item")
        role.add("EXIT")
    return _assemble(context, name)


def _roles(rng: random.Random) -> list[FiberRole]:
    """Roles of one weft, and perhaps four neighbours; zones of private registers count up for each window."""
    roles: list[FiberRole] = []
    quad_at, first = rng.choice([None, None, 0, 1, 2]), 0
    for index in range(rng.randint(2, 8)):
        base, wefts = rng.choice([0, 0, WINDOW]), 1
        if quad_at == index and index and first % 4 == 0:
            wefts = 4
        elif quad_at is not None and index >= quad_at and first % 4 and not any(r.wefts == 4 for r in roles):
            wefts = 1  # fills up to the next group of four
        if quad_at is not None and first == 4 and not any(r.wefts == 4 for r in roles):
            wefts = 4
        zone = sum(role.base == base for role in roles)
        if (zone + 1) * ZONE > 200:
            base, zone = WINDOW - base, sum(role.base == WINDOW - base for role in roles)
        roles.append(FiberRole(rng, f"role{index}", first, wefts, base, zone))
        first += wefts
    return roles


def _meet(context: FiberContext, count: int, *, everything: bool) -> None:
    """Let the live wefts meet and become the first `count` roles' wefts."""
    rng = context.rng
    wefts = sum(role.wefts for role in context.roles[:count])
    fibers = FIBERS * wefts - rng.randrange(0, FIBERS)
    for role in context.live or context.roles[:1]:
        role.add("SETFIBER", fibers=fibers, all_scope=everything)
        if role not in context.roles[:count]:
            role.add("EXIT")  # never reached: masked here
    context.live = list(context.roles[:count])


def _blocks(context: FiberContext) -> None:
    """Add steps, some of them in a loop."""
    rng = context.rng
    for block in range(rng.randint(1, 3)):
        looped, mark = rng.random() < 0.5, f"loop{len(context.live)}_{block}_{len(context.roles[0].instructions)}"
        if looped:
            for role in context.live:
                role.mark(mark)
        for _ in range(rng.randint(1, 4)):
            _step(context)
        if looped:
            times = Count(rng.randint(1, 4))
            for role in context.live:
                role.branch("LOOP", mark, level=0, count=times)


def _step(context: FiberContext) -> None:
    rng = context.rng
    if rng.random() < 0.75:
        rng.choice(STEPS)(context)
    for role in context.live:
        for _ in range(rng.choice([0, 0, 1, 2])):
            role.arithmetic()


def _assemble(context: FiberContext, name: str) -> WarpProgram:
    rng = context.rng
    instructions: list[Instruction] = []
    roles = []
    for role in context.roles:
        entry = len(instructions)
        instructions += role.resolved(entry)
        place = {"first_warp": role.first, "warps": role.wefts, "entry": entry, "base": role.base}
        roles.append(Role(name=role.name, registers_per_thread=1, **place))
    low = ZONE * sum(role.base == 0 for role in context.roles)
    high = ZONE * sum(role.base > 0 for role in context.roles)
    limit = 252 if not high else 2 * WINDOW - 4 - high
    rows = rng.choice([1, 1, 2, 3])
    return WarpProgram(
        name=name,
        architecture="sm_100",
        instructions=tuple(instructions),
        roles=tuple(roles),
        tensors=(
            Tensor(name="a", shape=(1024, 1024), dtype="fp16"),
            Tensor(name="c", shape=(1024, 1024), dtype="fp16", role="output"),
        ),
        streams=(
            Stream(name="a", tensor="a", direction="load", blocks=8, block_bytes=4096, base="block"),
            Stream(name="c", tensor="c", direction="store", blocks=8, block_bytes=4096, base="block"),
        ),
        work=Work(
            attributes=("block",),
            items=np.arange(rows, dtype=np.int64).reshape(rows, 1),
            schedule=rng.choice(["static", "launch", "dynamic"]),
            grid=rng.randint(1, rows),
        ),
        sources=(Source(file="random.py", line=1, operation="random"),),
        shared_memory_bytes=1024,
        tensor_memory_columns=32 * TENSOR_GROUPS,
        mode="fiber",
        fiber=FiberNote(registers=2 * WINDOW if high else 256, pool_first=low, pool_limit=limit),
    )


def cuda_native(program: WarpProgram) -> WarpProgram:
    """Return a SIMT program with one SETFIBER of all its warps in front of every role; branches go behind it."""
    entries = sorted({role.entry for role in program.roles})
    instructions: list[Instruction] = []
    for pc, instruction in enumerate(program.instructions):
        if pc in entries:
            instructions.append(Instruction(op="SETFIBER", fibers=FIBERS * program.warps_per_cta))
        target = instruction.target
        moved = None if target is None else target + sum(entry <= target for entry in entries)
        instructions.append(dataclasses.replace(instruction, target=moved))
    roles = [dataclasses.replace(r, entry=r.entry + sum(entry < r.entry for entry in entries)) for r in program.roles]
    return dataclasses.replace(program, instructions=tuple(instructions), roles=tuple(roles), mode="cuda-native")
