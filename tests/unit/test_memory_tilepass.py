"""Does the tile pass see what chip mode sees, and does it hand out every byte?"""

import dataclasses

import numpy as np
import pytest

from heddle.ir.warp import Instruction, StreamRef, WarpProgram
from heddle.machine import Machine
from heddle.pipeline import compile_kernel
from heddle.sim import tilepass
from heddle.sim.core import memory_layout as layout
from heddle.sim.core import memory_play as play
from heddle.sim.core.memory import memory_access
from heddle.sim.core.memory_represent import find_record
from heddle.sim.launch import LaunchPlan, plan_launch
from heddle.sim.memory_system import Traffic, build_memory, read_traffic
from heddle.sim.tilepass_skeleton import build_skeleton
from memory_cases import CLOCK_MHZ, gemm_program, machine, stream_program

STEP_CYCLES = 1_000_000  # so long that nothing is on its way from one step to the next


def lockstep_in_chip_mode(program: WarpProgram, m: Machine, plan: LaunchPlan, l2_state: str, k_steps: int) -> Traffic:
    """Issue a GEMM's requests to the chip's memory, all clusters in lockstep."""
    mem = build_memory(program, m, plan, mode="chip", clock_mhz=CLOCK_MHZ, l2_state=l2_state).buffer
    sizes = [stream.block_bytes for stream in program.streams]
    t = 0
    for wave in range(max(len(rows) for rows in plan.items)):
        running = [(c, program.work.items[rows[wave]]) for c, rows in enumerate(plan.items) if len(rows) > wave]
        for k in range(k_steps):
            t += STEP_CYCLES
            for c, (a, b, _) in running:
                for stream, block in ((0, a + k), (1, b + k)):
                    memory_access(mem, t, 256 * t, c, 0, stream, block, 0, 1, sizes[stream], 0, 0, 0)
        t += STEP_CYCLES
        for c, item in running:
            memory_access(mem, t, 256 * t, c, layout.KIND_STORE, 2, item[2], 0, 1, sizes[2], 0, 0, 0)
    return read_traffic(mem)


@pytest.mark.parametrize("l2_state", ["cold", "warm", "flushed"])
@pytest.mark.parametrize(("l2_kb", "order"), [(51_200, "rows"), (1_000, "rows"), (1_000, "columns"), (300, "rows")])
def test_totals_equal_those_of_chip_mode_in_lockstep(l2_state: str, l2_kb: int, order: str) -> None:
    m = machine("h100", sms=8, l2_bytes=l2_kb * 1024)
    program = gemm_program(m_tiles=6, n_tiles=5, k_steps=7, order=order)
    plan = plan_launch(program, m)
    chip = lockstep_in_chip_mode(program, m, plan, l2_state, 7)
    built = build_memory(program, m, plan, mode="representative", clock_mhz=CLOCK_MHZ, l2_state=l2_state)
    seen = built.traffic()
    for name in ("l2_read_bytes", "l2_write_bytes", "dram_read_bytes", "dram_write_bytes"):
        assert getattr(seen, name) == getattr(chip, name), name


def records(program: WarpProgram, m: Machine, l2_state: str = "cold") -> tuple[np.ndarray, LaunchPlan, Traffic]:
    plan = plan_launch(program, m)
    built = build_memory(program, m, plan, mode="representative", clock_mhz=CLOCK_MHZ, l2_state=l2_state)
    return built.buffer, plan, built.traffic()


def test_charges_add_up_to_the_chip() -> None:
    m = machine("h100", sms=8, l2_bytes=1_000_000, dram_turnaround_ns=0.0)
    program = gemm_program(m_tiles=6, n_tiles=5, k_steps=7)
    mem, plan, chip = records(program, m)
    l2 = read = written = 0.0
    for ordinal in range(len(plan.group_items(plan.representative))):
        for stream, steps in ((0, 7), (1, 7), (2, 1)):
            for step in range(steps):
                record = find_record(mem, stream, ordinal, step)
                assert record > 0
                own = program.streams[stream].block_bytes * (m.l2_write_cost if stream == 2 else 1)
                l2 += own * mem[record + layout.RECORD_L2] / 65536
                read += own * mem[record + layout.RECORD_READ] / 65536
                written += own * mem[record + layout.RECORD_WRITE] / 65536
    assert l2 == pytest.approx(chip.l2_read_bytes + m.l2_write_cost * chip.l2_write_bytes, rel=1e-4)
    assert read == pytest.approx(chip.dram_read_bytes, rel=1e-4)
    assert written == pytest.approx(chip.dram_write_bytes, rel=1e-4)


def test_first_touches_are_late_and_second_touches_are_not() -> None:
    mem, _, _ = records(gemm_program(m_tiles=2, n_tiles=2, grid=1), machine("h100"))
    positions = [find_record(mem, stream, ordinal, 0) for ordinal in range(4) for stream in (0, 1)]
    late = [bool(mem[record + layout.RECORD_LATE]) for record in positions]
    assert late == [True, True, False, True, True, False, False, False]


def test_a_block_that_another_cluster_fetches_in_the_same_step_is_late() -> None:
    program = gemm_program(m_tiles=1, n_tiles=2, grid=2)
    heavy = dataclasses.replace(program, work=dataclasses.replace(program.work, grid=2))
    m = machine("h100")
    plan = dataclasses.replace(plan_launch(heavy, m), representative=1)
    built = build_memory(heavy, m, plan, mode="representative", clock_mhz=CLOCK_MHZ, l2_state="cold")
    assert built.buffer[find_record(built.buffer, 0, 0, 3) + layout.RECORD_LATE]
    assert built.traffic().dram_read_bytes == (6 + 2 * 6) * 16384


def test_warm_inputs_that_fit_are_never_late() -> None:
    mem, plan, chip = records(gemm_program(), machine("h100"), "warm")
    assert chip.dram_read_bytes == 0
    for ordinal in range(len(plan.group_items(plan.representative))):
        assert mem[find_record(mem, 0, ordinal, 0) + layout.RECORD_LATE] == 0


def test_warps_of_a_role_are_folded_into_one_access() -> None:
    program = stream_program(parts=4, part_by_rank=True, warps=4, block_bytes=4096)
    code = build_skeleton(program, [4]).code
    accesses = code[code[:, play.OP] == play.OP_ACCESS]
    assert accesses[:, play.MASK].tolist() == [0b1111]
    assert accesses[:, play.BYTES].tolist() == [4096]


def test_an_instruction_of_one_warp_counts_once() -> None:
    program = stream_program(warps=4)
    one = dataclasses.replace(program.instructions[0], by="role")
    program = dataclasses.replace(program, instructions=(one, *program.instructions[1:]))
    code = build_skeleton(program, [1]).code
    assert code[0, play.BYTES] == 1024


def test_a_multicast_block_is_covered_by_the_parts_of_all_ranks() -> None:
    program = stream_program(block_bytes=4096)
    stream = dataclasses.replace(program.streams[0], multicast=2)
    load = Instruction(op="UTMALDG", bytes=2048, ctas=2, stream=StreamRef(name="x", parts=2))
    program = dataclasses.replace(
        program, streams=(stream,), cluster_size=2, instructions=(load, *program.instructions[1:])
    )
    code = build_skeleton(program, [2]).code
    assert (code[0, play.MASK], code[0, play.BYTES]) == (0b11, 4096)


def test_ctas_with_blocks_of_their_own_get_rows_of_their_own() -> None:
    program = stream_program()
    stream = dataclasses.replace(program.streams[0], cta_step=3)
    code = build_skeleton(dataclasses.replace(program, streams=(stream,), cluster_size=2), [1]).code
    assert code[code[:, play.OP] == play.OP_ACCESS][:, play.DELTA].tolist() == [0, 3]


def test_skipped_code_is_not_played() -> None:
    program = stream_program(items=2)
    skip = Instruction(op="SKIP", attribute="first", target=2)
    loop = dataclasses.replace(program.instructions[1], target=1)
    code = (skip, program.instructions[0], loop, *program.instructions[2:])
    _, _, chip = records(dataclasses.replace(program, instructions=code), machine("h100"))
    assert chip.l2_read_bytes == (7 + 8) * 1024  # item 0 has first = 0 and skips the load of its first turn


def test_a_program_without_memory_has_no_records() -> None:
    program = stream_program()
    program = dataclasses.replace(program, instructions=(Instruction(op="NOP"), *program.instructions[1:]), streams=())
    mem, _, chip = records(program, machine("h100"))
    assert chip.l2_read_bytes == 0
    assert find_record(mem, 0, 0, 0) == 0


def test_steps_without_an_access_of_the_representative_are_charged_later() -> None:
    seen = np.zeros((2, play.SEEN_WORDS), dtype=np.int64)
    seen[:, play.SEEN_BYTES] = 100
    seen[:, play.SEEN_LOCKSTEP] = (1, 3)
    totals = np.zeros((5, play.TOTAL_WORDS), dtype=np.int64)
    totals[:, play.TOTAL_L2], totals[:, play.TOTAL_READ] = (10, 20, 30, 40, 50), (1, 2, 3, 4, 5)
    totals[-1, play.TOTAL_WRITTEN] = 1
    record = tilepass.ChipRecord(stores=(False,), ordinals=1, drains=False, seen=seen, totals=totals)
    ratio, reach = tilepass.charges(record)
    assert (ratio * 100 / 65536).round(1).tolist() == [[30, 3, 0], [120, 12, 1]]
    assert reach.tolist() == [[30, 0], [120, 2]]  # at DRAM the share of the others: none of 30, 20 of 120 bytes at L2


def test_loads_reach_past_the_loads_of_a_step_and_stores_past_its_stores() -> None:
    seen = np.zeros((3, play.SEEN_WORDS), dtype=np.int64)
    seen[:, play.SEEN_STREAM], seen[:, play.SEEN_BYTES] = (0, 0, 1), (10, 20, 10)
    totals = np.zeros((1, play.TOTAL_WORDS), dtype=np.int64)
    totals[0, play.TOTAL_L2] = 400
    record = tilepass.ChipRecord(stores=(False, True), ordinals=1, drains=False, seen=seen, totals=totals)
    _, reach = tilepass.charges(record)
    assert reach[:, 0].tolist() == [300, 300, 100]


def test_no_access_waits_for_the_steps_of_another_clusters_longer_item() -> None:
    m = machine("h100", sms=8)
    program = compile_kernel("attention", m, {"batch": 1, "heads_q": 2, "seqlen_q": 4096, "causal": 1})
    mem, plan, _ = records(program, m)
    keys = next(i for i, stream in enumerate(program.streams) if stream.tensor == "K" and stream.step)
    step_bytes = m.sms * 2 * program.streams[keys].block_bytes  # K and V of every SM
    charged = []
    for ordinal in range(len(plan.group_items(plan.representative))):
        for step in range(1, 32):
            record = find_record(mem, keys, ordinal, step)
            if record > 0:
                charged.append(program.streams[keys].block_bytes * mem[record + layout.RECORD_L2] / 65536)
    assert max(charged) < 0.75 * step_bytes  # half of a step's bytes, and what falls to it where a tile ends


@pytest.mark.parametrize(("direction", "waits"), [("load", True), ("store", False)])
def test_only_loads_put_the_other_sms_ahead(direction: str, waits: bool) -> None:
    m = machine("h100", sms=8)
    program = stream_program(direction=direction, block_bytes=65536, steps=2, items=8, grid=8)
    mem, _, _ = records(program, m, "warm")
    kind = layout.KIND_LOAD if waits else layout.KIND_STORE
    memory_access(mem, 0, 256, 0, kind, 0, 7 * 2, 0, 1, 65536, 0, 0, 0)
    assert (mem[layout.L2_LEAD] > 0) == waits
