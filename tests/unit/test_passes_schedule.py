"""What may the scheduler move, and what has to stay where it is?"""

from __future__ import annotations

import numpy as np
import pytest

import passes_programs as tiny
import schedule_programs as small
from heddle.ir import tile as t
from heddle.ir.warp import Access, Effect, Instruction
from heddle.machine import machine
from heddle.passes import PASSES, run_passes
from heddle.passes.draft import Draft, Operand, Value, whole
from heddle.passes.liveness import liveness
from heddle.passes.schedule import Schedule
from heddle.passes.schedule.effects import effect_order, may_overlap
from heddle.passes.schedule.matrix_groups import settled_by
from heddle.passes.schedule.regions import regions
from schedule_programs import draft, ops, registers, scheduled


def matrix(accumulator: Value, *, form: str = "ss", a: tuple[Operand, ...] = ()) -> Draft:
    row = Instruction(op="HGMMA", shape=(64, 8, 16), dtype="fp16", form=form)
    return Draft(row=row, dst=(whole(accumulator),), src=a, accumulates=True)


def wait(pending: int = 0) -> Draft:
    return draft("WARPGROUP.DEPBAR", pending=pending)


COMMIT = draft("WARPGROUP.COMMIT")


def test_independent_work_fills_the_wait_for_a_result() -> None:
    a, b, c, d = registers(4)
    code = (draft("MUFU", [b], [a]), draft("FADD", [c], [b]), *[draft("FMUL", [d], [d])] * 3)
    assert ops(scheduled(*code)) == ["MUFU", "FMUL", "FMUL", "FMUL", "FADD"]


def test_longest_way_goes_first() -> None:
    a, b, c, d = registers(4)
    chain = [draft("FADD", [a], [a]) for _ in range(4)]
    assert scheduled(draft("FMUL", [b], [c]), draft("FMUL", [d], [c]), *chain)[0].op == "FADD"


def test_exponentials_and_additions_share_the_time() -> None:
    values = registers(9)
    exponentials = [draft("MUFU", [v], [v]) for v in values[:8]]
    additions = [draft("FADD", [values[8]], [values[8], v]) for v in values[:8]]
    order = ops(scheduled(*exponentials, *additions))
    assert order[:3] == ["MUFU"] * 3  # the first result takes 23 cycles, the pipe 8
    assert "FADD" in order[: order.index("MUFU", 5)]


def test_a_write_stays_behind_the_reads_before_it() -> None:
    a, b, c, d = registers(4)
    code = (draft("MUFU", [d], [c]), draft("FADD", [d], [d, a]), draft("MOV", [a], [b]), draft("MUFU", [a], [a]))
    order = scheduled(*code)
    assert order.index(code[1]) < order.index(code[2])


def test_memory_instructions_keep_their_order() -> None:
    a, b, c, d, e = registers(5)
    code = (draft("MUFU", [a], [b]), draft("STS", [], [c, a], bytes=128), draft("LDS", [d], [c], bytes=128))
    order = scheduled(*code, draft("FADD", [e], [d]))
    assert order.index(code[1]) < order.index(code[2])


@pytest.mark.parametrize("border", ["BAR.SYNC", "SYNCS.TRYWAIT", "UCGABAR", "USETMAXREG", "DEPBAR", "BRA"])
def test_nothing_crosses_a_border(border: str) -> None:
    a, b, c = registers(3)
    code = (draft("MUFU", [a], [a]), draft("FADD", [a], [a]), draft(border), draft("FADD", [b], [c]))
    assert scheduled(*code) == code


def test_a_block_with_copies_keeps_its_order() -> None:
    a, b, c = registers(3)
    code = (
        draft("MUFU", [a], [a]),
        draft("FADD", [a], [a]),
        draft("FADD", [b], [c]),
        draft("LDGSTS", [], [b], bytes=512),
    )
    assert scheduled(*code) == code


def test_regions_cover_the_code_once() -> None:
    code = (draft("FADD"), draft("FADD"), draft("BAR.SYNC"), draft("FADD"), small.EXIT)
    assert list(regions(code)) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_ring_steps_keep_their_place_among_the_instructions_that_use_the_ring() -> None:
    a, b = registers(2)
    slow = [draft("MUFU", [a], [a]) for _ in range(3)]
    code = (*slow, draft("STS", [], [b, a], bytes=128), draft("ULOP3", advance=("ring",)))
    assert scheduled(*code) == code


# wgmma


def test_a_wait_gives_back_the_groups_that_it_waits_for() -> None:
    s, o = Value(1, "s", 4), Value(2, "o", 4)
    code = (matrix(s), COMMIT, matrix(o), COMMIT, wait(1), wait(0), small.EXIT)
    settled = settled_by(code)
    assert {v for v, _ in settled[4]} == {1}
    assert {v for v, _ in settled[5]} == {2}


def test_what_is_under_way_at_the_end_of_a_loop_is_under_way_at_its_start() -> None:
    o = Value(1, "o", 4)
    label, loop = Draft(row=Instruction(op="#label"), label="L"), Draft(row=Instruction(op="LOOP"), target="L")
    settled = settled_by((label, matrix(o), COMMIT, wait(1), loop, small.EXIT))
    assert {v for v, _ in settled[3]} == {1}  # the group of the iteration before


def test_accumulators_are_not_touched_before_the_wait() -> None:
    o = Value(1, "o", 4)
    code = (matrix(o), COMMIT, wait(), draft("FMUL", [Operand(o)], [Operand(o)]), draft("FADD", [Operand(o, 1)]))
    assert ops(scheduled(*code))[:3] == ["HGMMA", "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR"]


def test_operands_in_registers_are_not_overwritten_before_the_wait() -> None:
    o, p = Value(1, "o", 4), Value(2, "p", 4)
    code = (matrix(o, form="rs", a=(whole(p),)), COMMIT, wait(), draft("MOV", [Operand(p)]))
    assert ops(scheduled(*code)) == ["HGMMA", "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR", "MOV"]


def test_operands_are_ready_before_arrive() -> None:
    o, p, q = Value(1, "o", 4), Value(2, "p", 4), Value(9, "q")
    chain = [draft("FADD", [Operand(q)], [Operand(q)]) for _ in range(3)]
    moves = [draft("MOV", [Operand(p, i)]) for i in range(4)]
    order = ops(scheduled(*moves, *chain, draft("WARPGROUP.ARRIVE"), matrix(o, form="rs", a=(whole(p),))))
    assert order.index("WARPGROUP.ARRIVE") > max(i for i, op in enumerate(order) if op == "MOV")


def early(**options: bool) -> list[str]:
    """A long chain in front of a wait, and much work behind it."""
    o = Value(1, "o", 32)
    x, y = Value(40, "x"), Value(41, "y")
    chain = [draft("MUFU", [Operand(x)], [Operand(x)]) for _ in range(4)]
    behind = [draft("FMUL", [Operand(o, i)], [Operand(o, i), Operand(y)]) for i in range(32)]
    return ops(scheduled(matrix(o), COMMIT, draft("BAR.ARV"), *chain, wait(), *behind, **options))[3:]


def test_a_wait_moves_up_when_what_depends_on_it_is_the_longest_way() -> None:
    order = early()
    assert 0 < order.index("WARPGROUP.DEPBAR") < 4


def test_a_wait_stays_where_it_is_without_the_option() -> None:
    assert early(early_waits=False).index("WARPGROUP.DEPBAR") == 4


def test_a_wait_does_not_pass_what_is_longer_than_its_dependents() -> None:
    o, x = Value(1, "o", 4), Value(40, "x")
    chain = [draft("MUFU", [Operand(x)], [Operand(x)]) for _ in range(4)]
    code = (matrix(o), COMMIT, draft("BAR.ARV"), *chain, wait(), draft("FMUL", [Operand(o)], [Operand(o)]))
    assert ops(scheduled(*code))[3:6] == ["MUFU"] * 3  # the last one's result is not needed here


# effects


def access(name: str, row: int = 0, **more: int) -> Access:
    return Access(object=name, row=row, rows=16, cols=8, **more)


def test_boxes_that_move_alike_are_compared() -> None:
    assert not may_overlap(access("x", 0, rank_row=32), access("x", 16, rank_row=32))


def test_boxes_that_move_differently_may_overlap() -> None:
    assert may_overlap(access("x", 0, rank_row=32), access("x", 16, rank_row=64))


def test_effects_on_the_same_elements_keep_their_order() -> None:
    effects = (
        Effect(kind="fill", writes=(access("x"),)),
        Effect(kind="fill", writes=(access("y"),)),
        Effect(kind="copy", reads=(access("x"),), writes=(access("z"),)),
    )
    block = [draft("MOV", effect=i, source=i) for i in range(3)]
    assert list(effect_order(block, effects)) == [(0, 2)]


def test_the_instruction_with_the_effect_is_the_last_of_its_operation() -> None:
    effects = (Effect(kind="fill", writes=(access("x"),)),)
    block = [draft("MOV", source=7), draft("MOV", source=8), draft("MOV", source=8, effect=0)]
    assert list(effect_order(block, effects)) == [(1, 2)]


def test_numbers_are_those_of_the_source_order_where_registers_alone_would_not_keep_it() -> None:
    """The doubling may issue between the shuffles of the sum, but the sum takes the elements before it."""
    program = small.arithmetic(
        16,
        t.RowReduce(function="sum", dst="a", src="x", where=tiny.at(10)),
        t.Elementwise(function="add", dst="x", sources=("x", "x"), where=tiny.at(11)),
        t.Elementwise(function="add", dst="x", sources=("x", "a"), where=tiny.at(12)),
        columns=("a",),
    )
    inputs = small.numbers(16)
    tensors, hazards, _ = small.result_of(small.compiled(program, enabled=True), inputs)
    x = inputs["X"]
    assert np.allclose(tensors["Y"], 2 * x + x.sum(axis=1, keepdims=True), atol=1e-5)
    assert hazards == 0


# registers


def test_orders_that_need_more_registers_than_the_budget_are_not_taken() -> None:
    """Three results are on their way while one is added; with a budget of four fewer can be."""
    base, *values = registers(9)
    total = Operand(Value(50, "total"))
    code = [d for v in values for d in (draft("MUFU", [v], [base]), draft("FADD", [total], [total, v]))]
    wide, narrow = scheduled(*code, budget=64), scheduled(*code, budget=4)
    assert liveness_peak(wide) == 5
    assert liveness_peak(narrow) <= 4


def liveness_peak(code: tuple[Draft, ...]) -> int:
    live = liveness((*code, small.EXIT))
    return max(live.pressure(mask) for mask in live.after)


def test_a_block_that_gains_less_than_asked_keeps_its_order() -> None:
    a, b, c, d = registers(4)
    code = (draft("MUFU", [b], [a]), draft("FADD", [c], [b]), *[draft("FMUL", [d], [d])] * 3)
    assert scheduled(*code, least_gain=0.5) == code


def test_off_leaves_the_program_alone() -> None:
    program = small.straight(*[draft("MUFU", [v], [v]) for v in registers(4)])
    assert Schedule(enabled=False).run(program, small.H100) is program


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_every_instruction_is_still_there_once(gpu: str) -> None:
    program = {"a100": tiny.ampere, "h100": tiny.hopper, "b200": tiny.blackwell}[gpu]()
    passes = dict(PASSES)
    current: object = program
    for name in ("pipeline_fragments", "layout_to_warps", "select_instructions"):
        current = passes[name].run(current, machine(gpu))
    after = Schedule(least_gain=0.0).run(current, machine(gpu))  # type: ignore[arg-type]
    for old, new in zip(current.roles, after.roles, strict=True):  # type: ignore[attr-defined]
        assert sorted(map(id, old.code)) == sorted(map(id, new.code))


def test_the_pass_can_be_shown() -> None:
    shown: list[str] = []
    run_passes(tiny.hopper(), small.H100, print_after=["schedule"], show=shown.append)
    assert shown[0].startswith("// after schedule\nrole consumer")


def test_a_role_that_cannot_be_allocated_in_the_new_order_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.passes.schedule._fits", lambda *_: False)
    a, b, c, d = registers(4)
    code = (draft("MUFU", [b], [a]), draft("FADD", [c], [b]), *[draft("FMUL", [d], [d])] * 3)
    assert scheduled(*code) == code


def test_values_of_a_tile_count_as_a_whole() -> None:
    tile = Value(1, "tile", 8)
    code = (*[draft("MOV", [Operand(tile, i)]) for i in range(8)], draft("FADD", [], [Operand(tile, 7)]), small.EXIT)
    assert liveness(code).peaks()["vector"] == 8
