"""Are copies into the other CTA of a pair, and accumulators of pairs, right, and are races over them found?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heddle import interp
from heddle.errors import UserError
from heddle.interp.check import CheckReport
from heddle.lang import Builder, kernel
from heddle.machine import machine
from heddle.passes import compile_program

SIZE = 64
B200 = machine("b200")


@kernel
def swap(k: Builder, rounds: int, *, careful: bool, signalled: str = "peer") -> None:
    """Each CTA loads a tile, sends it to the other one, and stores what it gets; `careful`: nothing is overwritten."""
    k.cluster_size = 2
    k.work_items({"row": [0]}, clusters=1, schedule="launch")
    x, y = (k.tensor(name, (2 * SIZE * rounds, SIZE), "fp16", role=r) for name, r in (("X", "input"), ("Y", "output")))
    source, target = (k.shared(name, (SIZE, SIZE), "fp16") for name in ("source", "target"))
    full, received, ring = k.barrier("full", arrivals=1), k.barrier("received", arrivals=1), k.ring("ring", 1)
    stored = k.barrier("stored", arrivals=1)
    with k.role("mover", warps=1, registers=64):
        k.cluster_sync()
        for item in k.work():
            for step in range(rounds):
                row = item.row + k.cta_rank * SIZE + 2 * SIZE * step
                full.expect(ring, bytes=source.stage_bytes)
                k.tma_load(source[:], x[row, 0], full[ring])
                full.wait(ring)
                received.expect(ring, bytes=target.stage_bytes, cta="peer")
                k.copy_to_peer(target[:], source[:], received.use(ring, cta=signalled))  # type: ignore[arg-type]
                received.wait(ring)
                k.tma_store(y[row, 0], target[:])
                k.tma_store_wait(pending=0)
                if careful:
                    stored.arrive(ring, cta="peer")
                    stored.wait(ring)
                ring.advance()
        k.cluster_sync()


def report(rounds: int, *, careful: bool) -> CheckReport:
    """Check the exchange against what it is to do."""
    values = np.random.default_rng(0).standard_normal((2 * SIZE * rounds, SIZE)).astype(np.float16)
    swapped = values.reshape(rounds, 2, SIZE, SIZE)[:, ::-1].reshape(values.shape)
    program = compile_program(swap.build("sm_90", rounds, careful=careful), machine("h100"))
    return interp.check(program, machine("h100"), {"X": values}, {"Y": swapped.astype(np.float64)})


def test_a_tile_lands_in_the_other_cta() -> None:
    assert report(1, careful=True).ok


def test_tiles_land_round_by_round_where_each_waits_for_the_other() -> None:
    assert report(2, careful=True).ok


def test_a_copy_over_what_the_peer_may_still_read_is_a_race() -> None:
    hazards = [hazard.text for hazard in report(2, careful=False).hazards]
    assert any("target" in text for text in hazards), hazards


def test_a_copy_to_the_peer_signals_the_peer() -> None:
    with pytest.raises(UserError, match="signals a barrier there, not that of CTA 'own'"):
        swap.build("sm_90", 1, careful=True, signalled="own")


@kernel
def send(k: Builder, *, first: bool, wait: bool, last: bool) -> None:
    """Each CTA sends a tile to the other one, with or without cluster barriers at the ends and a wait."""
    k.cluster_size = 2
    k.work_items({"row": [0]}, clusters=1, schedule="launch")
    x, y = (k.tensor(name, (2 * SIZE, SIZE), "fp16", role=r) for name, r in (("X", "input"), ("Y", "output")))
    source, target = (k.shared(name, (SIZE, SIZE), "fp16") for name in ("source", "target"))
    full, received = k.barrier("full", arrivals=1), k.barrier("received", arrivals=1)
    with k.role("mover", warps=1, registers=64):
        if first:
            k.cluster_sync()
        for item in k.work():
            row = item.row + k.cta_rank * SIZE
            full.expect(bytes=source.stage_bytes)
            k.tma_load(source[:], x[row, 0], full.use(None))
            full.wait()
            received.expect(bytes=target.stage_bytes, cta="peer")
            k.copy_to_peer(target[:], source[:], received.use(None, cta="peer"))
            k.tma_store(y[row, 0], source[:])
            k.tma_store_wait(pending=0)
            if wait:
                received.wait()
        if last:
            k.cluster_sync()


@pytest.mark.parametrize(
    ("first", "wait", "last", "kinds"),
    [
        (True, True, True, set()),
        (False, True, True, {"peer may not have begun"}),
        (True, True, False, {"exit during copy to the peer"}),  # the receiver knows, the sender does not
        (True, False, True, {"exit during copy to the peer"}),
        (True, False, False, {"exit during copy to the peer", "exit before another CTA is done"}),
    ],
)
def test_a_copy_lies_between_the_peers_begin_and_both_ends(
    first: bool, wait: bool, last: bool, kinds: set[str]
) -> None:
    values = np.random.default_rng(0).standard_normal((2 * SIZE, SIZE)).astype(np.float16)
    program = compile_program(send.build("sm_90", first=first, wait=wait, last=last), machine("h100"))
    found = interp.check(program, machine("h100"), {"X": values}, {"Y": values.astype(np.float64)})
    assert {hazard.kind for hazard in found.hazards} == kinds


@kernel
def exchange_of(k: Builder, shape: tuple[int, int], cols: int, cluster: int) -> None:
    """A copy of the first columns of a tile to the peer."""
    k.cluster_size = cluster
    k.work_items({"row": [0]}, clusters=1, schedule="launch")
    tile = k.shared("tile", shape, "fp16")
    received = k.barrier("received", arrivals=1)
    with k.role("mover", warps=1, registers=64):
        for _ in k.work():
            box = tile[:].part(cols=cols)
            received.expect(bytes=box.ref.rows * cols * 2, cta="peer")
            k.copy_to_peer(box, box, received.use(None, cta="peer"))


@pytest.mark.parametrize(
    ("shape", "cols", "cluster", "text"),
    [
        ((64, 64), 32, 2, "moves whole rows between tiles that lie alike; 32 of 64 columns"),
        ((64, 128), 128, 2, "lies in strips of 128 bytes"),
        ((64, 64), 64, 1, "2 CTAs take part, but the cluster has 1"),
    ],
)
def test_a_copy_that_is_no_one_piece_of_memory_is_refused(
    shape: tuple[int, int], cols: int, cluster: int, text: str
) -> None:
    with pytest.raises(UserError, match=text):
        exchange_of.build("sm_90", shape, cols, cluster)


@kernel
def product(k: Builder, *, acc: tuple[int, int], rows: int = SIZE) -> None:
    """A pair's product of 64 rows a CTA with half of the columns of b in each, added to global memory."""
    k.cluster_size = 2
    k.work_items({"row": [0]}, clusters=1, schedule="launch")
    a_global, b_global = (k.tensor(name, (2 * SIZE, SIZE), "bf16") for name in ("A", "B"))
    out = k.tensor("C", (2 * SIZE, 2 * SIZE), "fp32", role="output")
    a, b = (k.shared(name, (SIZE, SIZE), "bf16") for name in ("a", "b"))
    sums = k.tensor_memory("sums", acc, "fp32")
    staged = k.shared("staged", (2 * SIZE, SIZE), "fp32", swizzle_bytes=0)
    part = k.registers("part", (2 * SIZE, SIZE), "fp32", warps=(4, 1))
    full, done = k.barrier("full", arrivals=2), k.barrier("done", arrivals=1)
    with k.role("out", warps=4, registers=128):
        k.cluster_sync()
        for item in k.work():
            done.wait()
            k.load(part, sums[:])
            k.store(staged[:], part, thread_order=True)
            k.fence()
            k.sync(1)
            k.tma_add_folded(out[item.row + k.cta_rank * SIZE, 0].sized(SIZE, 2 * SIZE), staged[:], part=0)
            k.tma_store_wait(pending=0)
        k.cluster_sync()
    with k.role("load", warps=1, registers=64):
        k.cluster_sync()
        for item in k.work():
            full.expect(bytes=a.stage_bytes + b.stage_bytes, cta="leader")
            for tile, source in ((a, a_global), (b, b_global)):
                k.tma_load(tile[:], source[item.row + k.cta_rank * SIZE, 0], full.use(None, cta="leader"))
        k.cluster_sync()
    with k.role("mma", warps=1, registers=64, leader_only=True):
        k.cluster_sync()
        for _ in k.work():
            full.wait()
            k.mma(sums[:], a[:], b[:], accumulate=False, ctas=2)
            k.mma_commit(done.use(None, cta="all"))
        k.cluster_sync()


def test_the_accumulator_of_64_rows_a_cta_is_folded_and_added_as_it_lies() -> None:
    random = np.random.default_rng(1)
    inputs: dict[str, Any] = {name: random.integers(-3, 4, (2 * SIZE, SIZE)).astype(np.float32) for name in ("A", "B")}
    program = compile_program(product.build("sm_100", acc=(2 * SIZE, SIZE)), B200)
    expected = inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64).T
    assert interp.check(program, B200, inputs, {"C": expected}).ok


def test_an_accumulator_that_is_not_folded_is_refused() -> None:
    with pytest.raises(UserError, match="expected"):
        product.build("sm_100", acc=(SIZE, 2 * SIZE))


@kernel
def signal(k: Builder, to: str, *, first: bool, wait: bool) -> None:
    """Both CTAs signal the leader or each other; who is signalled may leave before."""
    k.cluster_size = 2
    k.work_items({"row": [0]}, clusters=1, schedule="launch")
    done = k.barrier("done", arrivals=2)
    with k.role("mover", warps=1, registers=64):
        if first:
            k.cluster_sync()
        for _ in k.work():
            done.arrive(cta=to)  # type: ignore[arg-type]
    with k.role("waiter", warps=1, registers=64, leader_only=to == "leader"):
        if first:
            k.cluster_sync()
        for _ in k.work():
            if wait:
                done.wait()


@pytest.mark.parametrize("to", ["leader", "all"])
@pytest.mark.parametrize(
    ("first", "wait", "kinds"),
    [
        (True, True, set()),
        (False, True, {"peer may not have begun"}),
        (True, False, {"exit before another CTA is done"}),
    ],
)
def test_a_signal_lies_between_the_begin_and_the_end_of_whom_it_reaches(
    to: str, first: bool, wait: bool, kinds: set[str]
) -> None:
    program = compile_program(signal.build("sm_90", to, first=first, wait=wait), machine("h100"))
    assert {hazard.kind for hazard in interp.check(program, machine("h100"), {}, {}).hazards} == kinds
