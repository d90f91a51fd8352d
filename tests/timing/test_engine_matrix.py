"""wgmma and tcgen05: starts, durations, queues, groups by hand-computed cycles."""

import pytest

from engine_builder import EXIT, R, h100, issues, loop, op, program, run, waited
from heddle.ir.warp import Barrier, BarrierRef, Instruction, Stream, StreamRef, Tensor
from heddle.machine import machine
from heddle.sim import simulate

DURATION = 2 * 64 * 256 * 16 // 4096  # of m64n256k16 at 4096 FLOPs a cycle


def hgmma(n: int = 256, form: str = "ss", **fields: int) -> Instruction:
    """Return a wgmma of 64 x n x 16."""
    return op("HGMMA", shape=(64, n, 16), form=form, dtype="fp16", **fields)


def test_a_collective_starts_after_its_fourth_warp_and_lasts_its_flops() -> None:
    p = program(hgmma(), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT, warps=4)
    assert issues(p)[2] == 1 + DURATION + h100().wgmma_tail_cycles


@pytest.mark.parametrize(("n", "form", "cycles"), [(256, "ss", 128), (8, "rs", 13), (8, "ss", 18)])
def test_durations_of_shapes(n: int, form: str, cycles: int) -> None:
    # 64 x 8 x 16: 4 cycles of FLOPs; RS has a floor; SS reads (64 + 8) * 16 * 2 bytes at 128 a cycle
    result = run(program(hgmma(n, form), EXIT, warps=4))
    assert result.tensor_busy_cycles == cycles


def test_collectives_of_one_group_follow_each_other() -> None:
    p = program(hgmma(), hgmma(), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT, warps=4)
    assert issues(p)[3] == 1 + 2 * DURATION + h100().wgmma_tail_cycles


def test_the_queue_holds_as_many_as_its_depth() -> None:
    p = program(*[hgmma(stall=4)] * 4, EXIT, warps=4)
    m = h100(wgmma_queue_depth=2)
    # the third waits until the first has started (cycle 1), the fourth until the second has (1 + 128)
    assert issues(p, m)[:4] == [0, 4, 8, 1 + DURATION]
    assert waited(run(p, m), 3) == {"SELECTED": 4, "WAIT": 4 * 3, "GMMA": 4 * (DURATION - 11)}


def test_a_pending_group_may_stay_outstanding() -> None:
    p = program(
        hgmma(), op("WARPGROUP.COMMIT"), hgmma(), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR", pending=1), EXIT,
        warps=4,
    )  # fmt: skip
    assert issues(p)[4] == 1 + DURATION + h100().wgmma_tail_cycles


def test_switching_the_warp_group_costs_what_the_machine_says() -> None:
    p = program(hgmma(), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT, warps=8)
    hidden, shown = (run(p, h100(wgmma_switch_cycles=cycles)).cycles for cycles in (0, 50))
    assert shown == hidden + 50


def test_shared_backlog_beyond_the_slack_delays_the_matrix_unit() -> None:
    m = h100(shared_async_slack_cycles=100)
    load = op("LDS", bytes=128 * 300)
    p = program(load, hgmma(), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT, warps=4)
    # four warps queue 4 * 300 cycles of shared memory
    assert issues(p, m)[3] == 1200 - 100 + DURATION + m.wgmma_tail_cycles


@pytest.mark.parametrize(("share", "cycles"), [(0.0, 1), (0.5, 100), (1.0, 200)])
def test_landing_bytes_hold_the_matrix_unit_for_their_share(share: float, cycles: int) -> None:
    m = h100(shared_async_slack_cycles=0, shared_async_write_share=share)
    copy = op("LDGSTS", bytes=128 * 200, write=0, stream=StreamRef(name="a"))
    stream = Stream(name="a", tensor="a", direction="load", blocks=1, block_bytes=128 * 200, base="zero")
    p = program(
        copy, hgmma(wait=[0]), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT,
        warps=4, streams=(stream,), tensors=(Tensor(name="a", shape=(128 * 200,), dtype="int8"),),
    )  # fmt: skip
    # the last warp issues its wgmma at once when its own bytes have landed: 200 cycles of shared memory by themselves
    landed = max(issues(p, m, warp=warp)[1] for warp in range(4))
    assert issues(p, m)[3] == landed + cycles + DURATION + m.wgmma_tail_cycles


def tcgen05(n: int = 256) -> object:
    """One warp issues an MMA and waits for its commit."""
    done = BarrierRef(name="done")
    return program(
        op("UTCHMMA", shape=(128, n, 16), form="ss", dtype="fp16"),
        op("UTCBAR", barrier=done),
        op("SYNCS.TRYWAIT", barrier=done),
        EXIT,
        barriers=(Barrier(name="done", count=1, arrivals=1),),
    )


@pytest.mark.parametrize("n", [64, 256])  # 64: reading the operands takes longer than the products, 48 and 32 cycles
def test_a_tcgen05_commit_arrives_when_the_mma_is_complete(n: int) -> None:
    m = machine("b200")
    products = 2 * 128 * n * 16 // m.tensor_flops_per_cycle
    complete = 1 + products + m.tcgen05_latency_cycles["ss_m128_1cta"]
    assert issues(tcgen05(n), m)[2] == complete + max(1, m.tcgen05_commit_cycles)


def test_half_the_rows_take_as_long() -> None:
    m = machine("b200")
    busy = [
        run(program(op("UTCHMMA", shape=(rows, 256, 16), form="ts", dtype="fp16"), EXIT), m).tensor_busy_cycles
        for rows in (64, 128)
    ]
    assert busy[0] == busy[1]


def test_a_loop_of_matrix_instructions_keeps_the_unit_busy() -> None:
    p = program(*[hgmma()] * 4, op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR", pending=1), loop(0, 20), EXIT, warps=8)
    result = run(p)
    assert result.tensor_busy_cycles == 2 * 4 * 20 * DURATION
    assert result.cycles < result.tensor_busy_cycles + 300


def test_port_sharing_is_right_after_many_collectives_without_register_reads() -> None:
    p = program(
        *[hgmma(n=64)] * 4, op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR", pending=1), loop(0, 60),
        hgmma(), op("FFMA", src=(R(2), R(4), R(6))), op("FFMA", src=(R(2), R(4), R(6))), EXIT, warps=4,
    )  # fmt: skip
    result, reference = run(p), simulate(p, h100(), mode="sm", engine="reference")
    assert result.stalls_pc.tolist() == reference.stalls_pc.tolist()
    assert waited(result, 9)["DISPATCH_STALL"] > 0
