"""Fast-forward changes nothing but the time it takes: cycles, stalls and traffic are equal."""

import numpy as np
import pytest

from engine_builder import EXIT, R, h100, loop, op, program, role, run
from heddle.ir.warp import Barrier, BarrierRef, Ring, Stream, StreamRef, Tensor, WarpProgram
from heddle.machine import machine
from heddle.pipeline import compile_kernel
from heddle.sim import Sim, SimResult, simulate


def assert_equal(a: SimResult, b: SimResult) -> None:
    """Compare all that a simulation counts."""
    assert a.cycles == b.cycles
    assert np.array_equal(a.stalls, b.stalls)
    assert np.array_equal(a.stalls_pc, b.stalls_pc)
    for name in ("pipe_busy", "tensor_busy_cycles", "shared_bytes", "l2_read_bytes", "dram_read_bytes"):
        assert getattr(a, name) == getattr(b, name), name
    assert np.array_equal(a.item_done_cycles, b.item_done_cycles)


def mixed(times: int) -> WarpProgram:
    """Warps with pipes, counters, shared memory, a barrier."""
    return program(
        op("FFMA", dst=R(0), src=(R(2), R(4), R(6)), stall=4),
        op("MUFU", write=0),
        op("LDS", bytes=256, write=1),
        op("FADD", wait=[0], stall=2),
        op("BAR.SYNC", warps=7, wait=[1]),
        loop(0, times),
        EXIT,
        warps=7,
    )  # fmt: skip


def pipeline(times: int, depth: int = 3, arithmetic: int = 0) -> WarpProgram:
    """A producer that copies tiles that stay in L2, and a warp group that multiplies them (and adds `arithmetic`)."""
    full, empty = BarrierRef(name="full", ring="stages"), BarrierRef(name="empty", ring="stages")
    return program(
        op("SYNCS.TRYWAIT", barrier=BarrierRef(name="empty", ring="stages", flip=True)),
        op("SYNCS.EXPECT", bytes=16384, barrier=full),
        op("UTMALDG", bytes=16384, stream=StreamRef(name="a"), barrier=full, advance=("stages",)),
        loop(0, times),
        EXIT,
        op("SYNCS.TRYWAIT", barrier=full),
        op("HGMMA", shape=(64, 128, 16), form="ss", dtype="fp16"),
        op("HGMMA", shape=(64, 128, 16), form="ss", dtype="fp16"),
        op("WARPGROUP.COMMIT"),
        op("WARPGROUP.DEPBAR"),
        *(op("FADD", dst=R(2), src=(R(2), R(4)), stall=4) for _ in range(arithmetic)),
        op("SYNCS.ARRIVE", barrier=empty, advance=("stages",)),
        loop(5, times),
        EXIT,
        roles=(role(5, 4, name="consumer"), role(0, 1, first=4, name="producer")),
        rings=(Ring(name="stages", depth=depth),),
        barriers=(Barrier(name="full", count=depth, arrivals=1), Barrier(name="empty", count=depth, arrivals=4)),
        tensors=(Tensor(name="a", shape=(8192, 1024), dtype="fp16"),),
        streams=(Stream(name="a", tensor="a", direction="load", blocks=1, block_bytes=16384, base="zero", step=0),),
    )  # fmt: skip


@pytest.mark.parametrize("build", [mixed, pipeline])
@pytest.mark.parametrize("scheduler", ["gty", "lrr"])
def test_a_steady_loop_is_skipped_exactly(build: object, scheduler: str) -> None:
    options = {"scheduler": scheduler, "l2_state": "warm"}
    slow = run(build(400), **options)
    fast = run(build(400), fast_forward=True, **options)
    assert_equal(slow, fast)
    assert fast.fast_forwarded_cycles > slow.cycles / 2


@pytest.mark.parametrize("until", [5_000, 12_345])
def test_skipping_stops_at_the_asked_cycle(until: int) -> None:
    slow, fast = run(mixed(400), until=until), run(mixed(400), until=until, fast_forward=True)
    assert fast.cycles == until
    assert_equal(slow, fast)


def one_stage(until: int, *, fast_forward: bool) -> Sim:
    """Simulate a ring of one stage, each of whose turns changes all parities, up to a cycle."""
    sim = Sim(h100(), pipeline(400, depth=1, arithmetic=200), mode="sm", fast_forward=fast_forward)
    sim.run(until=until)
    return sim


def phases(sim: Sim) -> list[int]:
    """Parities of rings, then arrivals, bytes and parities of mbarriers."""
    return [*np.ravel(sim.view.parity).tolist(), *np.ravel(sim.view.mbarriers).tolist()]


@pytest.mark.parametrize(("until", "odd"), [(98_000, 0), (100_000, 1)])
def test_phases_are_what_they_would_have_been(until: int, odd: int) -> None:
    """A period that turns them an odd number of times is skipped an even and an odd number of times."""
    fast = one_stage(until, fast_forward=True)
    ((begin, end, times),) = fast.result().repeats
    first, second = (one_stage(cycle, fast_forward=False) for cycle in (begin, end))
    assert np.all(first.view.mbarriers[:, :, 2] != second.view.mbarriers[:, :, 2])
    assert times % 2 == odd
    assert phases(fast) == phases(one_stage(until, fast_forward=False))


def test_warps_that_wait_when_phases_have_turned_go_on() -> None:
    """Producer and consumers wait for each other at the end of a jump over an odd number of turns."""
    slow, fast = (run(pipeline(400, depth=1, arithmetic=200), fast_forward=forward) for forward in (False, True))
    assert fast.fast_forwarded_cycles > slow.cycles / 2
    assert_equal(slow, fast)


def test_repeats_add_up_to_the_cycles_skipped() -> None:
    fast = run(mixed(400), fast_forward=True)
    assert sum((end - begin) * times for begin, end, times in fast.repeats) == fast.fast_forwarded_cycles


def test_a_snapshot_keeps_what_was_skipped() -> None:
    sim = Sim(h100(), mixed(400), mode="sm")
    snapshot = sim.snapshot()
    sim.run()
    first = sim.result()
    sim.restore(snapshot)
    sim.run()
    assert sim.result().fast_forwarded_cycles == first.fast_forwarded_cycles
    assert_equal(sim.result(), first)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_gemm_in_representative_mode(gpu: str) -> None:
    m = machine(gpu)
    p = compile_kernel("gemm", m, {"m": 2048, "n": 2048, "k": 6144, "dtype": "fp16"})
    slow, fast = (simulate(p, m, fast_forward=forward) for forward in (False, True))
    assert_equal(slow, fast)


def test_native_attention_of_a_long_sequence_is_skipped_exactly() -> None:
    """Its two rings of two stages turn three times in a period."""
    m = machine("h100+fiber")
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 256, "seqlen_kv": 8192, "head_dim": 128, "dtype": "fp16"}
    p = compile_kernel("attention", m, sizes, mode="fiber")
    slow, fast = (simulate(p, m, fast_forward=forward) for forward in (False, True))
    assert_equal(slow, fast)
    assert fast.fast_forwarded_cycles > slow.cycles / 4
