"""When does a copy into the shared memory of the other CTA of a pair land?"""

from __future__ import annotations

import pytest

from engine_builder import EXIT, h100, issues, op, program, run
from heddle.errors import UserError
from heddle.ir.warp import Barrier, BarrierRef, WarpProgram
from heddle.sim.result import EventKind

BYTES = 16384
RATE, REMOTE, EXTRA = 16.0, 78, 73
FULL, PEERS = BarrierRef(name="full"), BarrierRef(name="full", cta="peer")


def machine() -> object:
    """An H100 whose link and way are known here."""
    return h100(cluster_bytes_per_cycle=RATE, cluster_remote_cycles=REMOTE, tma_extra_latency_cycles=EXTRA)


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


def test_pairs_are_needed() -> None:
    with pytest.raises(UserError, match="clusters have 1 CTAs"):
        run(exchange(cluster_size=1), machine())
