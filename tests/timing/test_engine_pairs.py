"""When does a copy into the shared memory of the other CTA of a pair land?"""

from __future__ import annotations

import pytest

from engine_builder import EXIT, h100, issues, op, program, run
from heddle.errors import UserError
from heddle.ir.warp import Barrier, BarrierRef, Instruction, WarpProgram
from heddle.machine import Machine
from heddle.metrics.shared_memory import busy_cycles
from heddle.sim.reference.engine import simulate_reference
from heddle.sim.result import EventKind

BYTES = 16384
RATE, REMOTE, EXTRA = 16.0, 78, 73
SHARED_RATE = 128.0
FULL, PEERS = BarrierRef(name="full"), BarrierRef(name="full", cta="peer")


def machine(**fields: object) -> Machine:
    """An H100 whose link, way and shared memory are known here."""
    known = {"cluster_bytes_per_cycle": RATE, "cluster_remote_cycles": REMOTE, "tma_extra_latency_cycles": EXTRA}
    return h100(**{**known, **fields}, shared_bytes_per_cycle=SHARED_RATE)


def exchange(copies: int = 1, **fields: object) -> WarpProgram:
    """A warp that announces bytes to its peer, copies, and waits for what the peer sends."""
    return program(
        op("SYNCS.EXPECT", bytes=BYTES * copies, barrier=PEERS),
        *[op("UBLKCP.S.S", bytes=BYTES, barrier=PEERS)] * copies,
        op("SYNCS.TRYWAIT", barrier=FULL),
        EXIT,
        barriers=(Barrier(name="full", count=1, arrivals=1),),
        **{"cluster_size": 2, **fields},
    )


def copies_of(p: WarpProgram) -> list[tuple[int, int, int]]:
    """Cycles from issue to landing of the copies of SM 0, with the rank where they land."""
    log = run(p, machine(), log="all").log
    rows = log[(log["kind"] == EventKind.COPY) & (log["sm"] == 0)]
    return [(int(e["begin"]), int(e["end"]), int(e["detail"])) for e in rows]


def test_a_copy_takes_the_link_and_the_way() -> None:
    ((begin, end, rank),) = copies_of(exchange())
    assert (end - begin, rank) == (BYTES // RATE + EXTRA + REMOTE, 1)


def test_copies_of_an_sm_follow_each_other_on_the_link() -> None:
    first, second = copies_of(exchange(copies=2))
    assert second[1] - first[1] == BYTES // RATE


def test_a_warp_goes_on_when_its_peers_bytes_have_landed() -> None:
    ((_, landed, _),) = copies_of(exchange())
    assert issues(exchange(), m=machine())[2] == landed


def test_both_shared_memories_move_the_bytes() -> None:
    assert int(run(exchange(), machine()).shared_bytes) == 4 * BYTES


def test_shared_memory_is_busy_for_what_is_read_and_for_the_share_of_what_lands() -> None:
    m = machine(shared_async_write_share=0.25)
    assert busy_cycles(run(exchange(), m), exchange(), m) == 2 * BYTES * (1 + 0.25) / SHARED_RATE


def copy_and(*after: Instruction, **fields: object) -> WarpProgram:
    """A copy to the peer that nobody waits for, and more."""
    barriers = (Barrier(name="full", count=1, arrivals=1),)
    copy = op("UBLKCP.S.S", bytes=BYTES, barrier=PEERS, by="role")
    return program(copy, *after, EXIT, cluster_size=2, barriers=barriers, **fields)


def test_a_matrix_instruction_waits_until_the_source_of_a_copy_has_been_read() -> None:
    p = copy_and(op("HGMMA", shape=(64, 64, 16), form="ss", dtype="fp16"), warps=4)
    log = run(p, machine(shared_async_slack_cycles=0), log="all").log
    rows = log[log["sm"] == 0]
    (copied,) = rows["begin"][rows["kind"] == EventKind.COPY]
    (multiplied,) = rows["begin"][rows["kind"] == EventKind.TENSOR]
    assert multiplied - copied == BYTES / SHARED_RATE


@pytest.mark.parametrize("rate", [RATE, 2 * SHARED_RATE])
def test_the_slot_is_held_until_the_source_has_been_read_and_sent(rate: float) -> None:
    m = machine(sms=2, max_ctas_per_sm=1, cta_launch_cycles=100, cluster_bytes_per_cycle=rate)
    first, _, second, _ = issues(copy_and(items=((0,), (0,))), m, mode="chip")
    assert second - first == BYTES / min(rate, SHARED_RATE) + 100


def test_a_machine_without_a_link_is_refused_at_the_line_of_the_copy() -> None:
    with pytest.raises(UserError, match=r"kernel.py:101: .*cluster_bytes_per_cycle of h100 is 0") as error:
        run(exchange(), machine(cluster_bytes_per_cycle=0.0))
    assert "give the rate in B/cycle/SM" in str(error.value)


def test_a_machine_without_a_link_is_refused_by_the_reference_too() -> None:
    with pytest.raises(UserError, match="cluster_bytes_per_cycle of h100 is 0"):
        simulate_reference(exchange(), machine(cluster_bytes_per_cycle=0.0), mode="chip")


def test_pairs_are_needed() -> None:
    with pytest.raises(UserError, match="clusters have 1 CTAs"):
        run(exchange(cluster_size=1), machine())
