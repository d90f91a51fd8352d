"""The second synthetic program of `heddle bench`: `weave`, a mix of all that FIBER adds, without an algorithm.

One weft copies tiles into shared memory; four load A from there into the pool; four multiply in lockstep, A from the
pool, B from shared memory, and hand each sum over to all four subpartitions (scoped bits) when a token says that they
may; four take the sums through the crossbar, compute, and send the token; four compute on registers of their own.
"""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import (
    RZ,
    Barrier,
    BarrierRef,
    Control,
    Count,
    Instruction,
    Register,
    Ring,
    Role,
    Source,
    Stream,
    StreamRef,
    Tensor,
    WarpProgram,
    Work,
)
from heddle.ir.warp_fiber import FIBERS, OWN, SUBPARTITIONS, WINDOW, Bind, FiberNote

STAGES = 2
STEPS = 4  # products of a chain: one stage
SHAPE = (16, 32, 16)
STAGE_BYTES = (SUBPARTITIONS * SHAPE[0] + SHAPE[1]) * SHAPE[2] * STEPS * 2
RING = "stage"
FRAGMENT = 4  # registers of A
SUMS = 16  # registers of an accumulator
FRAGMENTS, TOTAL = 16, 32  # pool: two fragments, and the sum that is handed over
TAKEN, PARTIAL, FIRST_MATH, SECOND_MATH = 60, 64, 32, 128  # own registers, counted from the base of their role
TOKEN = WINDOW  # pool
ROLES = ("copy", "rest", "load", "multiply", "take", "compute")
FIRST_WEFTS = (0, 1, 4, 8, 12, 16)


def weave(iterations: int = 256) -> WarpProgram:
    """Return the program for sm_90: 17 wefts that work, about 240 instructions a subpartition and iteration."""
    codes = [_copy, _rest, _load, _multiply, _take, _compute]
    instructions: list[Instruction] = []
    roles = []
    for name, first, following, code in zip(ROLES, FIRST_WEFTS, (*FIRST_WEFTS[1:], 20), codes, strict=True):
        entry = len(instructions)
        base = WINDOW if name == "take" else 0
        wefts = following - first
        roles.append(Role(name=name, first_warp=first, warps=wefts, entry=entry, registers_per_thread=1, base=base))
        instructions += code(entry, iterations)
    return WarpProgram(
        name="weave",
        architecture="sm_90",
        instructions=tuple(instructions),
        roles=tuple(roles),
        rings=(Ring(name=RING, depth=STAGES),),
        barriers=(
            Barrier(name="full", count=STAGES, arrivals=1),
            Barrier(name="empty", count=STAGES, arrivals=2 * SUBPARTITIONS),
        ),
        tensors=(Tensor(name="A", shape=(iterations, STAGE_BYTES // 2), dtype="fp16"),),
        streams=(
            Stream(
                name="a", tensor="A", direction="load", blocks=iterations, block_bytes=STAGE_BYTES, base="first", step=1
            ),
        ),
        work=Work(attributes=("first",), items=np.zeros((1, 1), np.int64), schedule="static", grid=1),
        sources=(Source(file=__file__, line=1, operation="bench"),),
        shared_memory_bytes=STAGES * STAGE_BYTES + 64,
        mode="fiber",
        fiber=FiberNote(registers=2 * WINDOW, pool_first=FRAGMENTS, pool_limit=PARTIAL),
    )


def _barrier(name: str, *, flip: bool = False) -> BarrierRef:
    return BarrierRef(name=name, ring=RING, flip=flip)


def _own(number: int, count: int = 1) -> Register:
    return Register(number, count, False, OWN)


def _private(index: int, count: int = 1) -> Register:
    return Register(index, count)


def _end(entry: int, iterations: int) -> list[Instruction]:
    return [Instruction(op="LOOP", target=entry, count=Count(value=iterations)), Instruction(op="EXIT")]


def _bound(bind: Bind, partner: Instruction) -> list[Instruction]:
    return [Instruction(op="DEPBAR.BIND", bind=bind), partner]


def _copy(entry: int, iterations: int) -> list[Instruction]:
    """Empty the pool, start everybody; then a tile of A and B into each free stage."""
    meet = Instruction(op="SETFIBER", fibers=FIBERS * 20, all_scope=True)
    return [
        meet,
        Instruction(op="SYNCS.TRYWAIT", barrier=_barrier("empty", flip=True)),
        Instruction(op="SYNCS.EXPECT", barrier=_barrier("full"), bytes=STAGE_BYTES),
        Instruction(
            op="UTMALDG", barrier=_barrier("full"), bytes=STAGE_BYTES, stream=StreamRef(name="a"), advance=(RING,)
        ),
        *_end(entry + 1, iterations),
    ]


def _rest(entry: int, iterations: int) -> list[Instruction]:
    """Wefts that only fill up the first group of four."""
    return [Instruction(op="EXIT")]


def _load(entry: int, iterations: int) -> list[Instruction]:
    """Fragments of A: shared memory to the pool, two in flight."""
    rows = [Instruction(op="SYNCS.TRYWAIT", barrier=_barrier("full"))]
    for step in range(STEPS):
        fragment = _own(FRAGMENTS + step % 2 * FRAGMENT, FRAGMENT)
        load = Instruction(op="LDSM", dst=fragment, src=(_private(8),), bytes=128 * FRAGMENT)
        rows += _bound(Bind(hold=True), load)
    rows.append(Instruction(op="SYNCS.ARRIVE", barrier=_barrier("empty"), advance=(RING,)))
    return rows + _end(entry, iterations)


def _multiply(entry: int, iterations: int) -> list[Instruction]:
    """A chain of lockstep products; the last one hands the sum over, if the token of the one before has come."""
    rows = [Instruction(op="SYNCS.TRYWAIT", barrier=_barrier("full"))]
    partial, zero = _private(PARTIAL, SUMS), Register(RZ)
    for step in range(STEPS):
        fragment = _own(FRAGMENTS + step % 2 * FRAGMENT, FRAGMENT)
        last = step == STEPS - 1
        if last:
            rows += _bound(Bind(consume=(0,)), Instruction(op="MOV", dst=_private(TAKEN), src=(_own(TOKEN),)))
        third = (zero,) if step == 0 else (partial,) if last else ()
        product = Instruction(
            op="WMMA",
            dst=_own(TOTAL, SUMS) if last else partial,
            src=(fragment, zero, *third),
            shape=SHAPE,
            form="rs",
            dtype="fp16",
            group=True,
        )
        everyone = tuple(range(SUBPARTITIONS)) if last else ()
        rows += _bound(Bind(consume=(0,), hold=last, readers=everyone), product)
    rows.append(Instruction(op="SYNCS.ARRIVE", barrier=_barrier("empty"), advance=(RING,)))
    return rows + _end(entry, iterations)


def _take(entry: int, iterations: int) -> list[Instruction]:
    """The sums of all four subpartitions through the crossbar, with arithmetic between them; then the token."""
    rows = _bound(Bind(hold=True), Instruction(op="MOV", dst=_own(TOKEN), src=(Register(RZ),)))
    for place in range(SUBPARTITIONS):
        for first in range(0, SUMS, FRAGMENT):
            new = _private(FIRST_MATH + 4 * place + first // FRAGMENT)
            source = Register(TOTAL + first, FRAGMENT, False, place)
            rows += _arithmetic(FIRST_MATH + 32, place + first // FRAGMENT)
            rows += _bound(Bind(consume=(0,), scoped=(0,)), Instruction(op="FADD", dst=new, src=(source, new)))
    return rows + _end(entry, iterations)


def _compute(entry: int, iterations: int) -> list[Instruction]:
    """Arithmetic on own registers."""
    rows = [row for index in range(12) for row in _arithmetic(SECOND_MATH, index)]
    return rows + _end(entry, iterations)


def _arithmetic(first: int, index: int) -> list[Instruction]:
    """Six instructions on eight registers; exponentials and loads are used a round later."""
    registers = [_private(first + 8 * (index % 4) + i) for i in range(8)]
    old = [_private(first + 8 * ((index - 1) % 4) + i) for i in range(8)]
    return [
        Instruction(op="FFMA", dst=registers[2], src=(registers[2], registers[4], registers[5])),
        Instruction(op="MUFU", dst=registers[1], src=(registers[2],), control=Control(write_barrier=0)),
        Instruction(op="FADD", dst=registers[3], src=(registers[3], old[6])),
        Instruction(op="IADD3", dst=registers[6], src=(registers[6], registers[4])),
        Instruction(op="FMUL", dst=registers[7], src=(old[7], registers[5])),
        Instruction(op="FADD", dst=old[4], src=(old[1], old[5]), control=Control(wait=frozenset({0}))),
    ]
