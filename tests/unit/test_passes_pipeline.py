"""Does rotating sm_80 loops keep the order of copies, waits and products, and only where it is allowed?"""

from __future__ import annotations

from dataclasses import replace

import passes_programs as tiny
from heddle.ir import tile as t
from heddle.ir.warp import Count
from heddle.machine import machine
from heddle.passes import compile_program
from heddle.passes.pipeline_fragments import FirstFragments, PipelinedMma, PipelineFragments

A100 = machine("a100")


def multistage(tail_uses_counter: bool = False) -> t.TileProgram:
    """A copy loop and a draining loop over one ring, as multistage kernels have them."""
    program = tiny.ampere()
    each = program.roles[0].body[0]
    assert isinstance(each, t.ForEachItem)
    loop = next(op for op in each.body if isinstance(op, t.For))
    _, _, *copies, mma, advance = loop.body
    assert isinstance(mma, t.Mma)
    copies = [op for op in copies if not isinstance(op, t.Advance)]
    wait, sync = t.CpAsyncWait(pending=0), t.Sync()
    main = replace(loop, count=Count(attribute="k_blocks", offset=-1), body=(wait, sync, *copies, mma, advance))
    middle = copies if tail_uses_counter else [t.CpAsyncCommit()]
    name = "kb" if tail_uses_counter else "tail"
    tail = t.For(name=name, count=Count(value=2), body=(wait, sync, *middle, mma, advance))
    first = [op for op in each.body if not isinstance(op, t.For)]
    body = (*first[:-1], main, tail, first[-1])
    role = replace(program.roles[0], body=(replace(each, body=body),))
    return replace(program, roles=(role,))


def rotated(program: t.TileProgram) -> tuple[t.Op, ...]:
    each = PipelineFragments().run(program, A100).roles[0].body[0]
    assert isinstance(each, t.ForEachItem)
    return each.body


def test_chain_of_loops_becomes_one_pipeline_with_its_last_iteration_apart() -> None:
    kinds = [type(op).__name__ for op in rotated(multistage())[-8:]]
    assert kinds == [
        "CpAsyncWait", "Sync", "FirstFragments", "For", "For", "CpAsyncCommit", "PipelinedMma", "StoreGlobal",
    ]  # fmt: skip


def test_one_iteration_of_the_last_loop_is_peeled() -> None:
    loops = [op for op in rotated(multistage()) if isinstance(op, t.For)]
    assert (loops[0].count, loops[1].count) == (Count(attribute="k_blocks", offset=-1), Count(value=1))


def test_wait_and_barrier_of_the_next_iteration_stand_before_the_last_step() -> None:
    loop = next(op for op in rotated(multistage()) if isinstance(op, t.For))
    last = loop.body[-1]
    assert isinstance(last, PipelinedMma)
    assert [type(op).__name__ for op in last.between] == ["Advance", "CpAsyncWait", "Sync"]


def test_loop_whose_last_iteration_needs_the_counter_is_left_alone() -> None:
    assert not any(isinstance(op, FirstFragments) for op in rotated(multistage(tail_uses_counter=True)))


def test_rotation_can_be_switched_off() -> None:
    program = multistage()
    assert PipelineFragments(enabled=False).run(program, A100) is program


def test_first_fragments_of_the_next_tile_are_loaded_before_this_tiles_last_products() -> None:
    rows = compile_program(multistage(), A100).instructions
    barrier = [pc for pc, row in enumerate(rows) if row.op == "BAR.SYNC"][1]
    following = [row.op for row in rows[barrier : barrier + 40] if row.op in ("LDSM", "HMMA", "LOOP")]
    assert following.index("LDSM") < following.index("HMMA") < following.index("LOOP")
