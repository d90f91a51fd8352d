"""Programs for the tests of the scheduler: drafts in a straight line, and small tile programs of arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import passes_programs as tiny
from heddle.interp import execute
from heddle.ir import tile as t
from heddle.ir.warp import Instruction, Tensor, WarpProgram
from heddle.machine import Machine, machine
from heddle.passes import PASSES, run_passes
from heddle.passes.draft import Draft, DraftProgram, Operand, RoleDraft, Value, whole
from heddle.passes.layout_to_warps import LayoutToWarps
from heddle.passes.liveness import liveness
from heddle.passes.schedule import Schedule
from heddle.passes.select import SelectInstructions
from heddle.sim import simulate

H100 = machine("h100")
EXIT = Draft(row=Instruction(op="EXIT"))
ROWS = 64


def draft(op: str, dst: Sequence[Operand] = (), src: Sequence[Operand] = (), **row: Any) -> Draft:
    """One instruction; keyword arguments are fields of `Instruction`."""
    return Draft(row=Instruction(op=op, **row), dst=tuple(dst), src=tuple(src))


def registers(count: int) -> list[Operand]:
    """Values of one register each."""
    return [Operand(Value(i + 1, f"v{i}")) for i in range(count)]


def straight(*code: Draft, budget: int = 64) -> DraftProgram:
    """A program of one role of one warp: what `code` reads is set, then a barrier, then `code` in a straight line."""
    live = liveness(code)
    setting = [draft("MOV", [whole(value)]) for value in live.live_values(live.before[0])]
    base = SelectInstructions().run(LayoutToWarps().run(tiny.hopper(), H100), H100)
    body = t.RoleBody(name="r", warps=1, registers=budget, body=())
    return replace(base, roles=(RoleDraft(body=body, first_warp=0, code=(*setting, draft("BAR.SYNC"), *code, EXIT)),))


def scheduled(*code: Draft, budget: int = 64, gpu: Machine = H100, **options: Any) -> tuple[Draft, ...]:
    """The code of `straight` after the pass, which takes every gain unless told otherwise."""
    result = Schedule(**{"least_gain": 0.0, **options}).run(straight(*code, budget=budget), gpu)
    return result.roles[0].code[-1 - len(code) : -1]


def ops(code: Sequence[Draft]) -> list[str]:
    """Opcodes in order."""
    return [d.op for d in code]


def arithmetic(cols: int, *body: t.Op, columns: Sequence[str] = ()) -> t.TileProgram:
    """One CTA of four warps that loads `x` [64, cols] in fp32, runs `body` and stores `x`; `half` is x in fp16.

    `columns` are tiles of one column each.
    """
    base = tiny.hopper()
    grid = (4, 1)
    tiles = [t.RegisterTile(name="x", rows=ROWS, cols=cols, dtype="fp32", warp_grid=grid)]
    tiles += [t.RegisterTile(name="half", rows=ROWS, cols=cols, dtype="fp16", warp_grid=grid)]
    tiles += [t.RegisterTile(name=name, rows=ROWS, cols=1, dtype="fp32", warp_grid=grid) for name in columns]
    box = t.GlobalRef(tensor="X", rows=ROWS, cols=cols, row="row")
    role = t.RoleBody(
        name="worker",
        warps=4,
        registers=128,
        where=tiny.at(1),
        body=(
            t.ForEachItem(
                body=(
                    t.LoadGlobal(dst="x", src=box, where=tiny.at(2)),
                    *(t.Fill(dst=name, value=1.0, where=tiny.at(3)) for name in columns),
                    *body,
                    t.StoreGlobal(dst=replace(box, tensor="Y"), src="x", where=tiny.at(4)),
                )
            ),
        ),
    )
    return replace(
        base,
        name="arithmetic",
        tensors=(
            Tensor(name="X", shape=(ROWS, cols), dtype="fp32"),
            Tensor(name="Y", shape=(ROWS, cols), dtype="fp32", role="output"),
        ),
        shared=(),
        registers=tuple(tiles),
        barriers=(),
        rings=(),
        roles=(role,),
        work=tiny.work(ROWS, 1, 1, ROWS, 1, "launch"),
    )


def softmax(cols: int) -> t.TileProgram:
    """x = exp2(x - max) / sum of each row, with x also rounded to fp16."""
    return arithmetic(
        cols,
        t.RowReduce(function="max", dst="max", src="x", where=tiny.at(10)),
        t.Elementwise(function="exp2_scaled_sub", dst="x", sources=("x", "max"), scalars=(1.0,), where=tiny.at(11)),
        t.RowReduce(function="sum", dst="sum", src="x", where=tiny.at(12)),
        t.Elementwise(function="cast", dst="half", sources=("x",), where=tiny.at(13)),
        t.Elementwise(function="reciprocal", dst="sum", sources=("sum",), where=tiny.at(14)),
        t.Elementwise(function="mul", dst="x", sources=("x", "sum"), where=tiny.at(15)),
        columns=("max", "sum"),
    )


def compiled(program: t.TileProgram, enabled: bool, gpu: Machine = H100) -> WarpProgram:
    """A program with the scheduler on, taking every gain, or off."""
    step = Schedule(enabled=enabled, least_gain=0.0)
    return run_passes(program, gpu, passes=[(name, step if name == "schedule" else p) for name, p in PASSES])


def result_of(program: WarpProgram, inputs: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], int, int]:
    """Output tensors, number of hazards, cycles."""
    run = simulate(program, H100, mode="chip", log="all", fast_forward=False)
    done = execute(program, run, inputs)
    return done.tensors, len(done.hazards), run.cycles


def numbers(cols: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Values for X."""
    return {"X": np.random.default_rng(seed).standard_normal((ROWS, cols), np.float32)}
