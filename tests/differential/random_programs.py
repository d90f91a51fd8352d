"""Random well-formed warp programs.

A program is a sequence of *steps* that all roles see in the same order, inside the same loops. A step appends code to
one role (arithmetic, loads, asynchronous copies) or to several that synchronise in it (rings, barriers). Because each
step only waits for what its partners do in the same or an earlier step, no program gets stuck.
"""

from __future__ import annotations

import random

import numpy as np
from random_machines import random_machine
from random_roles import RoleBuilder
from random_steps import LOCAL_STEPS, SHARED_STEPS, Context, pair_exchange

from heddle.ir.warp import (
    Barrier,
    Count,
    Instruction,
    Ring,
    Role,
    Source,
    Tensor,
    WarpProgram,
    Work,
)
from heddle.machine import Machine

ATTRIBUTES = ("base", "other_base", "k_tiles", "flag", "semaphore", "previous", "has_previous")


def random_case(seed: int, exchanges: int = 0) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a program, a machine that it fits, and options of `simulate`, all from one seed.

    `exchanges`: so many times in an item, the CTAs of pairs copy into each other's shared memory.
    """
    rng = random.Random(seed)
    cluster_size = rng.choice([2, 4] if exchanges else [1, 1, 1, 2, 2, 4])
    machine = random_machine(rng, cluster_size)
    program = random_program(rng, cluster_size, name=f"random_{seed}", exchanges=exchanges)
    options = {
        "scheduler": rng.choice(["gty", "gty", "gto", "lrr"]),
        "l2_state": rng.choice(["cold", "flushed"]),
        "mode": "chip",
    }
    return program, machine, options


def random_program(rng: random.Random, cluster_size: int, name: str, exchanges: int = 0) -> WarpProgram:
    """Return a random program for clusters of `cluster_size` CTAs."""
    context = Context(rng, cluster_size, _roles(rng, cluster_size))
    _prologue(context)
    for builder in context.builders:
        builder.mark("item")
    _body(context)
    for _ in range(exchanges):
        pair_exchange(context)
    for builder in context.builders:
        builder.branch("NEXT", "item")
        builder.add("EXIT")
    if rng.random() < 0.5 and cluster_size > 1:
        for builder in context.builders:
            builder.instructions.insert(-1, context.cluster_sync())
    return _assemble(context, name)


def _roles(rng: random.Random, cluster_size: int) -> list[RoleBuilder]:
    """One to four roles; some are whole warp groups, some run on the leader only."""
    builders = []
    first_warp = 0
    for index in range(rng.choice([1, 2, 2, 3, 4])):
        warps = rng.choice([1, 1, 2, 4, 4, 8])
        if warps % 4 == 0:
            first_warp = -(-first_warp // 4) * 4
        leader_only = cluster_size > 1 and index > 0 and rng.random() < 0.25
        builders.append(RoleBuilder(rng, f"role{index}", first_warp, warps, leader_only))
        first_warp += warps
    covered = {b.first_warp + warp for b in builders for warp in range(b.warps)}
    gaps = sorted(set(range(first_warp)) - covered)  # every warp of a CTA has a role
    builders += [RoleBuilder(rng, f"filler{warp}", warp, 1, False) for warp in gaps]
    return builders


def _prologue(context: Context) -> None:
    for builder in context.builders:
        if context.rng.random() < 0.3:
            builder.add("USETMAXREG")
        builder.arithmetic(context.rng.randrange(0, 3))


def _body(context: Context) -> None:
    """Steps in a row, some of them inside loops of one or two levels."""
    rng = context.rng
    for _ in range(rng.randrange(1, 4)):
        looped = rng.random() < 0.7
        if looped:
            context.open_loop(
                0, rng.choice([Count(rng.randrange(1, 5)), Count(attribute="k_tiles", offset=rng.choice([-1, 0, 1]))])
            )
        for _ in range(rng.randrange(1, 4)):
            _step(context)
        if rng.random() < 0.2:
            context.open_loop(1, Count(rng.randrange(1, 4)))
            _step(context)
            context.close_loop()
        if looped:
            context.close_loop()


def _step(context: Context) -> None:
    rng = context.rng
    if rng.random() < 0.45:
        rng.choice(SHARED_STEPS)(context)
    for builder in context.builders:
        for _ in range(rng.randrange(0, 3)):
            rng.choice(LOCAL_STEPS)(context, builder)


def _assemble(context: Context, name: str) -> WarpProgram:
    rng = context.rng
    instructions: list[Instruction] = []
    roles = []
    order = list(context.builders)
    rng.shuffle(order)
    for builder in order:
        entry = len(instructions)
        instructions += builder.resolved(entry)
        roles.append(
            Role(
                name=builder.name,
                first_warp=builder.first_warp,
                warps=builder.warps,
                entry=entry,
                registers_per_thread=builder.registers,
                leader_only=builder.leader_only,
            )
        )
    roles.sort(key=lambda role: role.first_warp)
    return WarpProgram(
        name=name,
        architecture="sm_100",
        instructions=tuple(instructions),
        roles=tuple(roles),
        rings=tuple(Ring(name=ring, depth=depth) for ring, depth in context.rings.items()),
        barriers=tuple(
            Barrier(name=b, count=count, arrivals=arrivals) for b, (count, arrivals) in context.barriers.items()
        ),
        tensors=(
            Tensor(name="a", shape=(1024, 1024), dtype="fp16"),
            Tensor(name="b", shape=(1024, 1024), dtype="fp16"),
            Tensor(name="c", shape=(1024, 1024), dtype="fp16", role="output"),
        ),
        streams=tuple(context.streams),
        work=_work(rng),
        sources=(Source(file="random.py", line=1, operation="random"),),
        shared_memory_bytes=rng.choice([1024, 50_000]),
        tensor_memory_columns=rng.choice([0, 128]),
        cluster_size=context.cluster_size,
    )


def _work(rng: random.Random) -> Work:
    rows = rng.choice([1, 1, 2, 3, 5])
    items = [
        [rng.randrange(0, 12), rng.randrange(-1, 6), rng.randrange(1, 4), rng.randrange(0, 2), i, i - 1, int(i > 0)]
        for i in range(rows)
    ]
    schedule = rng.choice(["static", "launch", "dynamic"])
    return Work(
        attributes=ATTRIBUTES, items=np.array(items, dtype=np.int64), schedule=schedule, grid=rng.randrange(1, 6)
    )
