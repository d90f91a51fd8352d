"""Idealised simulations: which dependence is dropped, and which is kept (docs/reference/engine.md, section 9)."""

import pytest

from engine_builder import EXIT, R, h100, issues, loop, op, program, role, run
from heddle.errors import UnsupportedError, UserError
from heddle.ir.warp import (
    Access,
    Barrier,
    BarrierRef,
    DataObject,
    Effect,
    Instruction,
    Ring,
    Stream,
    StreamRef,
    Tensor,
    WarpProgram,
)
from heddle.sim.ideal import ideal

DP = ideal(["dp"])
MUFU = op("MUFU", dst=R(1), src=(R(0),))
ALU = 4  # latency of FADD and FFMA


def cycle_of(p: WarpProgram, pc: int, names: str = "dp", warp: int = 0) -> int:
    """Return the cycle in which a warp issues an instruction first."""
    log = run(p, log="issue", ideal=ideal(names.split(",")) if names else ideal()).log
    assert log is not None
    return int(log[(log["pc"] == pc) & (log["warp"] == warp)]["begin"][0])


def fadd(dst: int, *src: int, **fields: object) -> Instruction:
    return op("FADD", dst=R(dst), src=tuple(R(i) for i in src), **fields)


# ---- dp: a warp issues out of order between barriers


def test_an_instruction_passes_one_that_waits() -> None:
    waiting = fadd(2, 1, wait=(0,))
    p = program(op("MUFU", dst=R(1), src=(R(0),), write=0), waiting, fadd(4, 3), EXIT)
    assert cycle_of(p, 2, "") > cycle_of(p, 1, "")
    assert cycle_of(p, 2) < cycle_of(p, 1)


def test_what_is_read_is_waited_for() -> None:
    p = program(fadd(1, 0, stall=1), fadd(2, 1), EXIT)
    assert cycle_of(p, 1) == cycle_of(p, 0) + ALU


def test_a_value_of_unknown_time_is_waited_for_without_a_counter() -> None:
    latency = h100().op_timing("MUFU").latency_cycles
    p = program(MUFU, fadd(2, 1), EXIT)
    assert cycle_of(p, 1) == latency


def test_a_register_that_is_read_may_be_written_again() -> None:
    overwrites = fadd(3, 4)
    p = program(MUFU, fadd(2, 1, 3), overwrites, EXIT)
    assert cycle_of(p, 2) < cycle_of(p, 1)


def test_a_reader_gets_the_value_that_was_written_before_it() -> None:
    # R1 is written twice; the reader between reads the slow one, the last reader the fast one
    p = program(MUFU, fadd(2, 1), fadd(1, 3), fadd(4, 1), EXIT)
    latency = h100().op_timing("MUFU").latency_cycles
    assert cycle_of(p, 1) == latency
    assert cycle_of(p, 3) == cycle_of(p, 2) + ALU < latency


def test_two_writes_of_a_register_may_change_places() -> None:
    p = program(MUFU, fadd(2, 1), fadd(2, 3), EXIT)
    assert cycle_of(p, 2) < cycle_of(p, 1)


def test_accesses_of_memory_keep_their_order() -> None:
    store = op("STS", src=(R(1), R(6)), bytes=128)
    p = program(MUFU, store, op("LDS", dst=R(5), src=(R(7),), bytes=128), fadd(8, 9), EXIT)
    assert cycle_of(p, 3) < cycle_of(p, 1) < cycle_of(p, 2)


def test_what_memory_gives_is_waited_for_by_whoever_reads_it() -> None:
    p = program(op("LDS", dst=R(5), src=(R(7),), bytes=128), fadd(8, 5), fadd(9, 6), EXIT)
    assert cycle_of(p, 2) < cycle_of(p, 1)
    assert cycle_of(p, 1) == h100().op_timing("LDS").latency_cycles


def test_nothing_passes_a_barrier() -> None:
    p = program(MUFU, fadd(2, 1), op("BAR.SYNC", barrier_id=1, warps=1), fadd(4, 3), EXIT)
    assert cycle_of(p, 1) < cycle_of(p, 2) < cycle_of(p, 3)


def test_nothing_passes_a_branch_and_values_go_round() -> None:
    p = program(MUFU, fadd(2, 1), fadd(1, 3), loop(1, 2), EXIT)
    log = run(p, log="issue", ideal=DP).log
    assert log is not None
    reads = [int(t) for t in log[log["pc"] == 1]["begin"]]
    writes = [int(t) for t in log[log["pc"] == 2]["begin"]]
    branch = [int(t) for t in log[log["pc"] == 3]["begin"]]
    assert reads[0] == h100().op_timing("MUFU").latency_cycles
    assert writes[0] < reads[0] < branch[0] < reads[1]
    assert reads[1] >= writes[0] + ALU


def test_a_select_waits_for_the_predicate() -> None:
    p = program(MUFU, op("ISETP", src=(R(1),)), op("FSEL", dst=R(2), src=(R(3),)), EXIT)
    assert cycle_of(p, 2) > cycle_of(p, 1) >= h100().op_timing("MUFU").latency_cycles


def test_one_pipe_still_takes_one_instruction_at_a_time() -> None:
    p = program(*[op("MUFU", dst=R(i), src=(R(9),)) for i in range(4)], EXIT)
    interval = int(h100().op_timing("MUFU").initiation_cycles)
    assert issues(p, ideal=DP)[:4] == [interval * i for i in range(4)]


# ---- matrix instructions

SHAPE = {"shape": (64, 256, 16), "form": "ss", "dtype": "fp16"}
DURATION = 2 * 64 * 256 * 16 // 4096
HGMMA = op("HGMMA", dst=R(0, 128), **SHAPE)
COMMIT, DEPBAR = op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR")


def complete(products: int = 1) -> int:
    """Return the cycle in which the last of so many products, issued at once, is complete."""
    return 1 + products * DURATION + h100().wgmma_tail_cycles


def test_accumulators_are_waited_for_without_a_wait() -> None:
    p = program(HGMMA, COMMIT, fadd(200, 0), fadd(201, 202), EXIT, warps=4)
    assert cycle_of(p, 2) == complete()
    assert cycle_of(p, 3) < DURATION


def test_products_on_the_same_accumulators_do_not_wait_for_each_other() -> None:
    p = program(HGMMA, HGMMA, COMMIT, fadd(200, 0), EXIT, warps=4)
    assert cycle_of(p, 1) < DURATION
    assert cycle_of(p, 3) == complete(2)


def test_a_product_waits_for_what_is_written_into_its_accumulators() -> None:
    p = program(op("MUFU", dst=R(3), src=(R(200),)), HGMMA, EXIT, warps=4)
    assert cycle_of(p, 1) >= h100().op_timing("MUFU").latency_cycles


def test_fs_a_warp_does_not_wait_for_the_others_of_its_group() -> None:
    late = op("MUFU", dst=R(200), src=(R(201),), write=0, by="role")  # only the first warp
    p = program(late, op("FADD", dst=R(202), src=(R(200),), wait=(0,), by="role"), HGMMA, COMMIT, fadd(203, 0), EXIT,
                warps=4)  # fmt: skip
    assert cycle_of(p, 4, "fs", warp=1) < cycle_of(p, 4, "fs", warp=0)
    whole = program(*p.instructions[:4], DEPBAR, fadd(203, 0), EXIT, warps=4)
    assert cycle_of(whole, 5, "", warp=1) >= cycle_of(p, 4, "fs", warp=0)


def test_fs_a_wait_does_not_wait_but_the_register_does() -> None:
    p = program(HGMMA, COMMIT, DEPBAR, fadd(200, 201), fadd(202, 0), EXIT, warps=4)
    assert cycle_of(p, 3, "fs") < DURATION
    assert cycle_of(p, 4, "fs") == complete()


def test_fs_in_order_a_register_that_a_product_reads_is_not_overwritten() -> None:
    product = op("HGMMA", dst=R(0, 128), src=(R(140, 4),), shape=(64, 256, 16), form="rs", dtype="fp16")
    p = program(product, COMMIT, fadd(140, 200), EXIT, warps=4)
    assert cycle_of(p, 2, "fs") == 1 + DURATION
    assert cycle_of(p, 2, "dp,fs") < DURATION  # renamed


def test_fs_a_stage_is_given_back_when_all_warps_have_read_it() -> None:
    reference = BarrierRef(name="empty")
    arrive = op("SYNCS.ARRIVE", barrier=reference, by="group")
    p = program(HGMMA, COMMIT, DEPBAR, arrive, op("SYNCS.TRYWAIT", barrier=reference), EXIT, warps=4,
                barriers=(Barrier(name="empty", count=1, arrivals=1),))  # fmt: skip
    assert cycle_of(p, 3, "fs") < DURATION
    assert cycle_of(p, 4, "fs") == 1 + DURATION + h100().mbarrier_arrive_cycles


def test_rs_operands_take_nothing_of_shared_memory() -> None:
    narrow = h100().replace(shared_bytes_per_cycle=32)
    p = program(HGMMA, COMMIT, DEPBAR, EXIT, warps=4)
    slow = run(p, narrow)
    fast = run(p, narrow, ideal=ideal(["rs"]))
    assert slow.tensor_busy_cycles == (256 * 16 + 64 * 16) * 2 / 32
    assert fast.tensor_busy_cycles == DURATION
    assert fast.shared_bytes == 0


# ---- barriers off


def fed(*consumer: Instruction) -> WarpProgram:
    """Return a producer that fills a ring of one stage twice, and a consumer of its tiles."""
    full, empty = BarrierRef(name="full", ring="ring"), BarrierRef(name="empty", ring="ring", flip=True)
    copy = op("UTMALDG", bytes=8192, stream=StreamRef(name="loads"), barrier=full, effect=0, advance=("ring",))
    producer = [
        op("SYNCS.TRYWAIT", barrier=empty),
        op("SYNCS.EXPECT", barrier=full, bytes=8192),
        copy,
        loop(0, 2),
        EXIT,
    ]
    tile = Access(object="tile", rows=64, cols=64, ring="ring")
    return program(
        *producer, *consumer,
        roles=(role(0, 1, first=4, name="producer"), role(len(producer), 4, name="consumer")),
        rings=(Ring(name="ring", depth=1),),
        barriers=(Barrier(name="full", count=1, arrivals=1), Barrier(name="empty", count=1, arrivals=1)),
        tensors=(Tensor(name="A", shape=(128, 64), dtype="fp16"),),
        streams=(Stream(name="loads", tensor="A", direction="load", blocks=2, block_bytes=8192, base="zero"),),
        objects=(DataObject(name="tile", space="shared", shape=(1, 64, 64), dtype="fp16", scope="cta"),),
        effects=(Effect(kind="copy_async", writes=(tile,)), Effect(kind="mma", reads=(tile,), writes=(tile,))),
        shared_memory_bytes=8192,
    )  # fmt: skip


READS = op("HGMMA", dst=R(0, 128), effect=1, advance=("ring",), **SHAPE)
WAITS = op("SYNCS.TRYWAIT", barrier=BarrierRef(name="full", ring="ring"))


def off(p: WarpProgram, pc: int, names: str) -> int:
    """Return the cycle in which an instruction issues first with something switched off."""
    log = run(p, log="issue", ideal=ideal(off=names.split(","))).log
    assert log is not None
    return int(log[log["pc"] == pc]["begin"].min())


def test_with_barriers_off_nobody_waits_at_them() -> None:
    p = program(MUFU, op("BAR.SYNC", barrier_id=1, warps=2), fadd(4, 3), EXIT, warps=1)
    with pytest.raises(UserError, match="deadlock"):
        run(p)
    assert off(p, 2, "barriers") == 2


def test_with_barriers_off_a_product_waits_for_its_tile() -> None:
    p = fed(WAITS, READS, READS, EXIT)
    waiting, product = 5, 6
    assert off(p, waiting, "barriers") < 5
    assert off(p, product, "barriers") > h100().l2_near_latency_cycles
    assert off(p, product, "barriers,data") < 10


def test_with_barriers_off_the_second_product_waits_for_the_second_copy() -> None:
    p = fed(WAITS, READS, READS, EXIT)
    result = run(p, log="all", ideal=ideal(off=["barriers"]))
    assert result.log is not None
    landed = sorted(int(t) for t in result.log[result.log["kind"] == 2]["end"])
    products = sorted(int(t) for t in result.log[(result.log["pc"] == 7) & (result.log["kind"] == 0)]["begin"])
    assert len(landed) == 2
    assert products[0] == landed[1]


def test_with_barriers_off_a_buffer_may_be_filled_again_at_once() -> None:
    p = fed(EXIT)
    with pytest.raises(UserError, match="deadlock"):
        run(p)
    assert off(p, 3, "barriers") < 10
    assert run(p, ideal=ideal(off=["barriers"])).cycles > 0


# ---- what is refused


def test_names_are_checked() -> None:
    with pytest.raises(UserError, match=r"unknown oracle 'ds'; allowed: dp, fs, rs"):
        ideal(["ds"])
    with pytest.raises(UserError, match=r"unknown switch 'dp'; allowed: barriers, data, order"):
        ideal(off=["dp"])


def test_data_are_waited_for_by_barriers() -> None:
    with pytest.raises(UserError, match="data cannot be off while barriers are on"):
        ideal(off=["data"])


def test_fs_needs_warp_group_products() -> None:
    with pytest.raises(UnsupportedError, match="no warp-group matrix instructions"):
        run(program(MUFU, EXIT), ideal=ideal(["fs"]))


def test_accounts_add_up() -> None:
    p = program(HGMMA, COMMIT, DEPBAR, fadd(200, 0), EXIT, warps=4)
    for names in (["dp"], ["fs"], ["dp", "fs", "rs"]):
        result = run(p, ideal=ideal(names))
        assert int(result.stalls.sum()) == result.active_warp_cycles == int(result.stalls_pc.sum())
