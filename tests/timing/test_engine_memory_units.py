"""Shared memory, groups of copies, bulk copies: hand-computed cycles."""

import pytest

from engine_builder import EXIT, R, h100, issues, op, program, run, waited
from heddle.ir.warp import Barrier, BarrierRef, Ring, Stream, StreamRef, Tensor

LOAD = {"tensors": (Tensor(name="a", shape=(64, 1024), dtype="fp16"),), "streams": (
    Stream(name="a", tensor="a", direction="load", blocks=64, block_bytes=2048, base="zero"),
    Stream(name="c", tensor="a", direction="store", blocks=64, block_bytes=2048, base="zero"),
)}  # fmt: skip


def lds(**fields: int) -> object:
    """Return a shared load of 128 bytes."""
    return op("LDS", dst=R(0), src=(R(1),), **({"bytes": 128} | fields))


def test_a_shared_load_takes_its_latency() -> None:
    p = program(lds(write=0), op("FADD", wait=[0]), EXIT)
    assert issues(p)[1] == h100().ops["LDS"].latency_cycles


@pytest.mark.parametrize(("ways", "nbytes", "extra"), [(1, 128, 0), (2, 128, 1), (8, 128, 7), (1, 512, 3)])
def test_conflicts_and_width_add_cycles(ways: int, nbytes: int, extra: int) -> None:
    m = h100(shared_conflict_cycles_per_way=1)
    p = program(lds(write=0, conflict_ways=ways, bytes=nbytes), op("FADD", wait=[0]), EXIT)
    assert issues(p, m)[1] == m.ops["LDS"].latency_cycles + extra


def test_addresses_are_read_two_cycles_after_the_start() -> None:
    assert issues(program(lds(read=0), op("MOV", wait=[0]), EXIT))[1] == 2


def test_a_full_load_queue_is_an_mio_throttle() -> None:
    m = h100(lsu_queue_depth=2)
    p = program(*[lds(bytes=128 * 40, stall=4) for _ in range(4)], EXIT)
    # starts 0, 40, 80, 120: the third may issue when the first has started, the fourth when the second has
    assert issues(p, m)[:4] == [0, 4, 8, 40]
    assert waited(run(p, m), 3) == {"SELECTED": 1, "WAIT": 3, "MIO_THROTTLE": 28}


def test_a_group_wait_holds_until_the_older_group_has_landed() -> None:
    copy = [op("LDGSTS", bytes=512, stream=StreamRef(name="a", part=i, parts=4)) for i in (0, 1)]
    commit, wait = op("LDGDEPBAR"), [op("DEPBAR", pending=pending) for pending in (1, 0)]
    p = program(copy[0], commit, copy[1], commit, *wait, EXIT, **LOAD)
    log = run(p, log="all").log
    landed = [int(end) for end in log[log["kind"] == 2]["end"]]
    assert issues(p)[4:6] == [landed[0], landed[1]]


def ring_program(*, flip: bool = False) -> object:
    """A warp that loads 2048 bytes by TMA and waits for them."""
    full = BarrierRef(name="full", ring="stages", flip=flip)
    return program(
        op("SYNCS.EXPECT", bytes=2048, barrier=full),
        op("UTMALDG", bytes=2048, stream=StreamRef(name="a"), barrier=full),
        op("SYNCS.TRYWAIT", barrier=full),
        op("NOP"),
        EXIT,
        rings=(Ring(name="stages", depth=2),),
        barriers=(Barrier(name="full", count=2, arrivals=1),),
        **LOAD,
    )


def test_a_wait_passes_when_bytes_and_arrival_are_there() -> None:
    p = ring_program()
    log = run(p, log="all").log
    (landed,) = log[log["kind"] == 2]["end"]
    assert issues(p)[2] == landed
    assert issues(p)[3] == landed + h100().mbarrier_wait_cycles


def test_a_flipped_wait_passes_at_once_in_the_first_phase() -> None:
    assert issues(ring_program(flip=True))[2] < 20


def test_a_bulk_store_group_is_complete_when_its_source_is_read_and_sent() -> None:
    store = op("UTMASTG", bytes=2048, stream=StreamRef(name="c"))
    p = program(store, op("UTMACMDFLUSH"), op("UTMADEPBAR"), EXIT, **LOAD)
    m = h100()
    assert issues(p)[2] == max(2048 // m.shared_bytes_per_cycle, 2048 // m.l2_port_bytes_per_cycle) == 32


def test_the_kernel_ends_when_its_last_store_is_visible() -> None:
    store = op("STG", src=(R(2, 2), R(4, 4)), bytes=512, stream=StreamRef(name="c"))
    result = run(program(store, EXIT, **LOAD))
    assert result.cycles > h100().store_latency_cycles
