"""Deadlocks are reported with who waits for what, where, and the cycle of waits."""

import re

import pytest

from engine_builder import EXIT, op, program, role, run
from heddle.errors import UserError
from heddle.ir.warp import Barrier, BarrierRef, Ring, WarpProgram


def text_of(p: WarpProgram) -> str:
    """Return the report of a program that deadlocks."""
    with pytest.raises(UserError) as error:
        run(p)
    return str(error.value)


def two_rings() -> WarpProgram:
    """A producer and a consumer that both wait first."""
    full, empty = (BarrierRef(name=name, ring="stages") for name in ("full", "empty"))
    return program(
        op("SYNCS.TRYWAIT", barrier=empty), op("SYNCS.ARRIVE", barrier=full), EXIT,
        op("SYNCS.TRYWAIT", barrier=full), op("SYNCS.ARRIVE", barrier=empty), EXIT,
        roles=(role(0, 1, name="producer"), role(3, 1, first=1, name="consumer")),
        rings=(Ring(name="stages", depth=2),),
        barriers=(Barrier(name="full", count=2, arrivals=1), Barrier(name="empty", count=2, arrivals=1)),
    )  # fmt: skip


def test_the_report_names_warp_line_barrier_phase_and_arrivals() -> None:
    assert (
        "SM 0 slot 0 warp 0 (role 'producer') at pc 0 SYNCS.TRYWAIT, kernel.py:100 (SYNCS.TRYWAIT), waits for mbarrier "
        "empty[0] to complete its phase of parity 0: 0 of 1 arrivals, 0 bytes outstanding; it needs role 'consumer' "
        "(SYNCS.ARRIVE at pc 4, kernel.py:104 (SYNCS.ARRIVE))"
    ) in text_of(two_rings())


def test_the_report_names_the_cycle_of_waits() -> None:
    assert "cycle of waits: role 'producer' -> role 'consumer' -> role 'producer'" in text_of(two_rings())


def test_a_named_barrier_that_too_few_reach() -> None:
    text = text_of(program(op("BAR.SYNC", warps=4, barrier_id=3), EXIT, warps=3))
    assert len(re.findall(r"waits at named barrier 3: 3 of 4 warps have come", text)) == 3


def test_a_collective_that_a_warp_does_not_join() -> None:
    mma = {"shape": (64, 64, 16), "form": "ss", "dtype": "fp16"}
    p = program(
        op("HGMMA", **mma), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR"), EXIT, op("NOP"), EXIT,
        roles=(role(0, 3), role(4, 1, first=3, name="other")),
    )  # fmt: skip
    assert "waits for matrix instruction 0 of its warp group, not issued by warp 3" in text_of(p)


def test_missing_bytes_are_counted() -> None:
    full = BarrierRef(name="full")
    p = program(op("SYNCS.EXPECT", bytes=512, barrier=full), op("SYNCS.TRYWAIT", barrier=full), EXIT,
                barriers=(Barrier(name="full", count=1, arrivals=1),))  # fmt: skip
    assert "1 of 1 arrivals, 512 bytes outstanding" in text_of(p)


def test_the_copies_to_the_peer_are_among_what_could_end_a_wait() -> None:
    p = program(
        op("UBLKCP.S.S", bytes=512, barrier=BarrierRef(name="full", cta="peer")), EXIT,
        op("SYNCS.TRYWAIT", barrier=BarrierRef(name="full")), EXIT,
        roles=(role(0, 1, name="sender"), role(2, 1, first=1, name="receiver")),
        cluster_size=2, barriers=(Barrier(name="full", count=1, arrivals=1),),
    )  # fmt: skip
    assert "it needs role 'sender' (UBLKCP.S.S at pc 0, kernel.py:100 (UBLKCP.S.S))" in text_of(p)
