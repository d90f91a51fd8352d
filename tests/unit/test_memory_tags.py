"""What is in L2, what is fetched, what is written back?"""

import numpy as np
import pytest

from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory, initial_l2, read_traffic
from memory_cases import CLOCK_MHZ, gemm_program, machine, stream_program

KB = 1024


def memory(l2_kb: int, l2_state: str = "cold", **program: object) -> np.ndarray:
    m = machine("h100", l2_bytes=l2_kb * KB)
    p = stream_program(**program)
    return build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state=l2_state).buffer


def access(mem: np.ndarray, t: int, kind: int, block: int, part: int = 0, parts: int = 1, nbytes: int = KB) -> int:
    return memory_access(mem, t, (t + 1) * 256, 0, kind, 0, block, part, parts, nbytes, 0, 0, 0)


def spaced(mem: np.ndarray, kind: int, blocks: list[int]) -> None:
    """Access blocks so far apart in time that nothing is on its way."""
    start = 100_000 * int(mem[layout.L2_READ] + mem[layout.L2_WRITE])
    for i, block in enumerate(blocks):
        access(mem, start + 100_000 * i, kind, block)


def test_the_block_that_was_used_longest_ago_leaves() -> None:
    mem = memory(3)
    spaced(mem, layout.KIND_LOAD, [0, 1, 2, 0, 3, 0, 1])
    assert mem[layout.MISS] == 5 * KB  # 0, 1, 2, 3 and 1 again: it was older than 2 and 0 when 3 came
    assert mem[layout.HIT] == 2 * KB


def test_hits_misses_and_merges_add_up_to_the_loaded_bytes() -> None:
    mem = memory(8, blocks=64)
    for t, block in enumerate(np.random.default_rng(1).integers(0, 16, 500)):
        access(mem, 40 * t, layout.KIND_LOAD, int(block))
    traffic = read_traffic(mem)
    assert traffic.hit_bytes + traffic.miss_bytes + traffic.merge_bytes == traffic.l2_read_bytes == 500 * KB
    assert min(traffic.hit_bytes, traffic.miss_bytes, traffic.merge_bytes) > 0
    assert traffic.miss_bytes == traffic.dram_read_bytes


def test_only_dirty_parts_are_written_back() -> None:
    mem = memory(1, blocks=8, block_bytes=KB, parts=4)
    access(mem, 0, layout.KIND_LOAD, 0, 0, 4, 256)
    access(mem, 100_000, layout.KIND_LOAD, 0, 1, 4, 256)
    access(mem, 200_000, layout.KIND_STORE, 0, 2, 4, 256)
    for part in range(4):
        access(mem, 300_000 + 100_000 * part, layout.KIND_LOAD, 1, part, 4, 256)
    assert mem[layout.DRAM_WRITE] == 256


def test_a_store_needs_no_fetch_but_a_reduction_does() -> None:
    stored, reduced = memory(64), memory(64)
    access(stored, 0, layout.KIND_STORE, 0)
    access(reduced, 0, layout.KIND_REDUCE, 0)
    assert stored[layout.DRAM_READ] == 0
    assert reduced[layout.DRAM_READ] == KB


def test_a_block_that_was_written_back_is_clean_when_it_returns() -> None:
    mem = memory(1)
    spaced(mem, layout.KIND_STORE, [0])
    spaced(mem, layout.KIND_LOAD, [1, 0, 1])
    assert mem[layout.DRAM_WRITE] == KB


def test_a_block_larger_than_l2_still_gets_served() -> None:
    mem = memory(1, block_bytes=4 * KB)
    spaced(mem, layout.KIND_LOAD, [0, 1])
    assert mem[layout.DRAM_READ] == 8 * KB


def test_resident_bytes_never_exceed_the_capacity() -> None:
    mem = memory(16, blocks=64)
    for t in range(64):
        access(mem, 1000 * t, layout.KIND_STORE, t)
        assert mem[layout.USED] <= 16 * KB


@pytest.mark.parametrize(("fraction", "written"), [(0.0, 0), (0.5, 8 * KB), (1.0, 16 * KB)])
def test_a_flushed_l2_writes_back_its_dirty_share_as_it_is_replaced(fraction: float, written: int) -> None:
    m = machine("h100", l2_bytes=64 * KB, l2_flush_dirty_fraction=fraction)
    p = stream_program()
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state="flushed").buffer
    spaced(mem, layout.KIND_LOAD, list(range(16)))
    assert mem[layout.DRAM_WRITE] == written


def test_warm_is_what_a_previous_run_left() -> None:
    m, p = machine("h100"), gemm_program()
    plan = plan_launch(p, m)
    state = initial_l2(p, m, plan, "warm")
    assert {name for name, *_ in state} == {"a", "b", "c"}
    assert all(bool(dirty) == (name == "c") for name, _, _, dirty in state)
    assert len(state) == 4 * 6 + 4 * 6 + 16


def test_cold_is_empty() -> None:
    m, p = machine("h100"), gemm_program()
    assert initial_l2(p, m, plan_launch(p, m), "cold") == []


def test_streams_that_cut_a_tensor_alike_are_the_same_memory() -> None:
    import dataclasses

    m, p = machine("h100"), stream_program()
    twin = dataclasses.replace(p.streams[0], name="y")
    other = dataclasses.replace(p.streams[0], name="z", block_bytes=512, blocks=128)
    p = dataclasses.replace(p, streams=(*p.streams, twin, other))
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state="cold").buffer
    for t, stream in enumerate((0, 1, 2)):
        memory_access(mem, 100_000 * t, 25_600_000 * t, 0, layout.KIND_LOAD, stream, 0, 0, 1, 512, 0, 0, 0)
    assert mem[layout.HIT] == 512
    assert mem[layout.MISS] == 1024
