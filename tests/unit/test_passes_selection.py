"""What instructions does selection emit for each operation, generation by generation?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import passes_programs as tiny
from heddle.errors import UnsupportedError, UserError
from heddle.interp._arithmetic import elementwise
from heddle.ir import tile as t
from heddle.ir.warp import Instruction, WarpProgram
from heddle.lang._compute import ELEMENTWISE
from heddle.machine import machine
from heddle.passes import PASSES, compile_program, run_passes
from heddle.passes.select import SelectInstructions
from heddle.passes.select.elementwise import FP32_STEPS

H100, A100, B200 = machine("h100"), machine("a100"), machine("b200")


def loop_of(program: WarpProgram, op: str) -> list[Instruction]:
    """The innermost loop body that contains an opcode."""
    bodies = [
        program.instructions[row.target : pc + 1]
        for pc, row in enumerate(program.instructions)
        if row.op == "LOOP" and row.target is not None
    ]
    found = [list(body) for body in bodies if any(row.op == op for row in body)]
    return min(found, key=len)


def count(rows: list[Instruction]) -> Counter[str]:
    return Counter(row.op for row in rows)


def _with_role(program: t.TileProgram, index: int, *body: t.Op) -> t.TileProgram:
    roles = list(program.roles)
    roles[index] = replace(roles[index], body=body)
    return replace(program, roles=tuple(roles))


def test_one_wgmma_for_each_k_step() -> None:
    loop = loop_of(compile_program(tiny.hopper(), H100), "HGMMA")
    assert [row.shape for row in loop if row.op == "HGMMA"] == [(64, 64, 16)] * 4


def test_wgmma_chain_is_ordered_by_arrive_commit_wait() -> None:
    loop = loop_of(compile_program(tiny.hopper(), H100), "HGMMA")
    ops = [row.op for row in loop if row.op.startswith(("WARPGROUP", "HGMMA"))]
    assert ops == ["WARPGROUP.ARRIVE", *["HGMMA"] * 4, "WARPGROUP.COMMIT", "WARPGROUP.DEPBAR"]


def test_ring_advances_once_an_iteration_on_the_phase_flip() -> None:
    loop = loop_of(compile_program(tiny.hopper(), H100), "HGMMA")
    assert [row.op for row in loop if row.advance] == ["ULOP3"]


def test_expected_bytes_are_those_that_the_copies_bring() -> None:
    loop = loop_of(compile_program(tiny.hopper(), H100), "UTMALDG")
    expected = sum(row.bytes for row in loop if row.op == "SYNCS.EXPECT")
    assert expected == sum(row.bytes for row in loop if row.op == "UTMALDG")


def test_hoisted_descriptors_cost_five_instructions_a_wgmma_as_in_flash_attention_3() -> None:
    loop = loop_of(compile_program(tiny.hopper(), H100), "HGMMA")
    rest = [row for row in loop if row.op != "HGMMA"]
    assert len(rest) / 4 == pytest.approx(100 / 19, rel=0.35)  # there one barrier pair serves 19 wgmma, here 4


def test_computed_descriptors_have_the_size_of_a_compiled_plain_kernel() -> None:
    passes = [
        (n, SelectInstructions(hoisted_descriptors=False) if n == "select_instructions" else p) for n, p in PASSES
    ]
    loop = loop_of(run_passes(tiny.hopper(), H100, passes=passes), "HGMMA")
    assert len(loop) == pytest.approx(175 / 2, rel=0.15)  # two k-steps of four wgmma: 175 instructions


def test_epilogue_packs_stores_matrices_and_issues_one_bulk_store() -> None:
    found = count(list(compile_program(tiny.hopper(), H100).instructions))
    assert (found["F2FP"], found["STSM"], found["UTMASTG"], found["UTMACMDFLUSH"]) == (16, 4, 1, 1)


def test_bulk_store_is_issued_by_one_warp_of_the_role() -> None:
    rows = compile_program(tiny.hopper(), H100).instructions
    assert {row.by for row in rows if row.op == "UTMASTG"} == {"role"}


def test_budgets_that_differ_are_set_at_entry() -> None:
    rows = compile_program(tiny.hopper(), H100).instructions
    assert count(list(rows))["USETMAXREG"] == 2


def test_mma_sync_loop_has_the_size_of_a_compiled_kernel() -> None:
    program = tiny.ampere(m=128, n=128, k=256, tile_m=128, tile_n=128, depth=64)
    loop = loop_of(compile_program(program, A100), "HMMA")
    found = count(loop)
    assert (found["HMMA"], found["LDSM"], found["LDGSTS"]) == (128, 32, 16)
    assert len(loop) == pytest.approx(275, rel=0.15)  # Triton 3.9, 128 x 128 x 64, four warps


def test_fragments_of_the_next_step_are_loaded_between_products() -> None:
    loop = loop_of(compile_program(tiny.ampere(), A100), "HMMA")
    first = next(i for i, row in enumerate(loop) if row.op == "HMMA")
    assert any(row.op == "LDSM" for row in loop[first:])


def test_cooperative_copy_covers_its_block_exactly_once() -> None:
    program = compile_program(tiny.ampere(), A100)
    loop = [row for row in loop_of(program, "HMMA") if row.op == "LDGSTS" and row.stream]
    stream = loop[0].stream.name if loop[0].stream else ""
    parts = [row.stream.part + rank for row in loop if row.stream and row.stream.name == stream for rank in range(4)]
    assert sorted(parts) == list(range(loop[0].stream.parts if loop[0].stream else 0))


def test_tcgen05_is_issued_by_one_warp_with_the_rows_of_the_pair() -> None:
    program = compile_program(tiny.blackwell(m=256, ctas=2), B200)
    shapes = {(row.shape, row.ctas, row.by) for row in program.instructions if row.op == "UTCHMMA"}
    assert shapes == {((256, 64, 16), 2, "role")}


def test_tensor_memory_is_read_in_blocks_of_32_columns() -> None:
    rows = compile_program(tiny.blackwell(), B200).instructions
    assert [row.bytes for row in rows if row.op == "LDTM"] == [4096, 4096]


def test_tensor_memory_is_given_back_only_after_its_loads_are_complete() -> None:
    rows = list(compile_program(tiny.blackwell(), B200).instructions)
    last = max(i for i, row in enumerate(rows) if row.op == "LDTM")
    fence = next(row for row in rows[last:] if row.op == "FENCE.TM")
    loads = {row.control.write_barrier for row in rows if row.op == "LDTM"}
    assert loads <= fence.control.wait


def test_a_block_of_a_single_row_moves_only_that_row() -> None:
    program = compile_program(tiny.hopper(m=1, n=64, k=128), H100)
    stream = next(s for s in program.streams if s.tensor == "A")
    assert stream.block_bytes == 64 * 2


def test_ragged_blocks_move_the_bytes_of_the_tensor() -> None:
    program = compile_program(tiny.hopper(m=96, n=64, k=128), H100)
    stream = next(s for s in program.streams if s.tensor == "A")
    assert stream.blocks * stream.block_bytes == 96 * 128 * 2


def test_streams_walk_the_columns_of_the_items_row() -> None:
    program = compile_program(tiny.hopper(m=128, n=64, k=128), H100)
    stream = next(s for s in program.streams if s.tensor == "A")
    base = program.work.items[:, program.work.attributes.index(stream.base)]
    assert (list(base), stream.step) == ([0, 2], 1)


def test_each_instruction_names_the_line_it_came_from() -> None:
    program = compile_program(tiny.hopper(), H100)
    lines = {program.sources[row.source].line for row in program.instructions if row.op == "HGMMA"}
    assert lines == {12}


def test_loop_that_some_items_skip_is_guarded() -> None:
    program = tiny.hopper()
    items = np.column_stack([program.work.items[:, :2], [0, 2]])
    consumer = program.roles[0]
    start, each, end = consumer.body
    assert isinstance(each, t.ForEachItem)
    program = _with_role(program, 0, start, replace(each, body=(t.Fill(dst="acc"), *each.body)), end)
    rows = compile_program(replace(program, work=replace(program.work, items=items)), H100).instructions
    assert {row.attribute for row in rows if row.op == "SKIP"} == {"k_blocks"}


def test_tile_that_does_not_divide_is_refused_with_the_rule() -> None:
    program = tiny.ampere()
    bad = replace(program, registers=(replace(program.registers[0], rows=40),))
    with pytest.raises(
        UserError, match=r"(?s)tiny.py:6: register tile acc of 40 x 64 does not divide .*multiple of 32"
    ):
        _ = str(compile_program(bad, A100))


def test_bulk_copy_of_unaligned_rows_is_refused_with_the_rule() -> None:
    with pytest.raises(UserError, match=r"rows of tensor A are 250 bytes; bulk copies need a multiple of 16"):
        compile_program(tiny.hopper(k=125), H100)


def test_operation_of_another_generation_is_refused() -> None:
    program = _with_role(tiny.ampere(), 0, t.TmaStoreWait(where=tiny.at(3)))
    with pytest.raises(UnsupportedError, match=r"tiny.py:3: TmaStoreWait does not exist on sm_80"):
        compile_program(program, A100)


def test_unknown_mbarrier_is_named_with_the_nearest() -> None:
    program = _with_role(tiny.hopper(), 1, t.Wait(barrier=t.BarrierUse(name="ful"), where=tiny.at(3)))
    with pytest.raises(UserError, match=r"unknown mbarrier 'ful'.*\n.*did you mean 'full'"):
        compile_program(program, H100)


def test_program_of_another_architecture_is_refused() -> None:
    with pytest.raises(UserError, match="written for sm_90, a100 is sm_80"):
        compile_program(tiny.hopper(), A100)


def test_code_for_sm_80_runs_on_sm_90() -> None:
    assert any(row.op == "HMMA" for row in compile_program(tiny.ampere(), H100).instructions)


def test_too_much_shared_memory_is_refused_with_the_sum() -> None:
    with pytest.raises(UserError, match=r"needs \d+ bytes of shared memory a CTA .* h100 has 232448"):
        compile_program(tiny.hopper(stages=20), H100)


def test_every_elementwise_function_can_be_executed_with_numbers() -> None:
    for function, steps in FP32_STEPS.items():
        sources = 1 + max(int(name) for _, names in steps for name in names if name != "t")
        values = [np.full((2, 2), 0.5, np.float32)] * max(sources, ELEMENTWISE.get(function, 1))
        assert np.isfinite(elementwise(function, values)).all()


def _with_store(program: t.TileProgram, dtype: str, reduce: bool = False) -> list[Instruction]:
    """The rows of a program whose C has another type, stored from the accumulator."""
    outputs = tuple(replace(x, dtype=dtype) if x.name == "C" else x for x in program.tensors)
    role = program.roles[0]
    each = role.body[0]
    assert isinstance(each, t.ForEachItem)
    body = tuple(replace(op, reduce=reduce) if isinstance(op, t.StoreGlobal) else op for op in each.body)
    changed = replace(program, tensors=outputs, roles=(replace(role, body=(replace(each, body=body),)),))
    return list(compile_program(changed, A100).instructions)


def test_store_of_equal_type_needs_no_conversion() -> None:
    rows = _with_store(tiny.ampere(), "fp32")
    assert count(rows)["F2FP"] == 0
    assert {row.bytes for row in rows if row.op == "STG"} == {256}


def test_reductions_on_sm_80_add_one_element_a_lane() -> None:
    rows = _with_store(tiny.ampere(), "fp32", reduce=True)
    assert {row.bytes for row in rows if row.op == "RED"} == {128}
