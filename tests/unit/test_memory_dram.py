"""Do writes wait for DRAM, does the bus turn, and who waits for whom?"""

import numpy as np
import pytest

from heddle.machine import Machine
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, machine, stream_program

KB = 1024
GRAINS = 65536
UNIT = 4 * KB


def board(**changes: object) -> Machine:
    """Return a machine with one DRAM channel of 16 bytes a cycle, an L2 of two units and a port that never waits."""
    rate = {"dram_gbytes_per_s": 24.0, "dram_channels": 1, "dram_interleave_bytes": UNIT, "l2_bytes": 2 * UNIT}
    easy = {"dram_write_batch_bytes": UNIT, "dram_turnaround_ns": 0.0, "l2_port_bytes_per_cycle": 1e6}
    return machine("h100", **{**rate, **easy, **changes})


def memory(m: Machine, l2_state: str = "cold") -> np.ndarray:
    p = stream_program(block_bytes=UNIT, direction="store")
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state=l2_state).buffer
    first = mem[layout.CHANNEL_BASE] + mem[layout.CHANNELS]
    mem[first : first + mem[layout.CHANNELS]] = 0  # write buffers empty
    return mem


def access(mem: np.ndarray, t: int, kind: int, block: int) -> int:
    return memory_access(mem, t, (t + 1) * 256, 0, kind, 0, block, 0, 1, UNIT, 0, 0, 0)


def held(mem: np.ndarray, t: int, block: int) -> int:
    """Store a block; return for how many cycles memory does not take the data."""
    access(mem, t, layout.KIND_STORE, block)
    return max(0, (int(mem[layout.TAKEN]) >> layout.GRAIN_BITS) - t)


def test_a_store_that_drives_nothing_out_is_not_held() -> None:
    mem = memory(board())
    assert [held(mem, 0, block) for block in (0, 1)] == [0, 0]


def test_stores_are_held_to_the_rate_of_dram() -> None:
    mem = memory(board())
    assert [held(mem, 0, block) for block in range(6)] == [0, 0, 0, 256, 512, 768]


def test_a_held_store_is_visible_when_dram_has_room() -> None:
    m = board()
    mem = memory(m)
    visible = [access(mem, 0, layout.KIND_STORE, block) for block in range(6)]
    assert visible[5] == 768 + m.store_latency_cycles


def test_a_store_that_replaces_clean_data_is_not_held() -> None:
    mem = memory(board())
    for block in range(2):
        access(mem, 0, layout.KIND_LOAD, block)
    assert [held(mem, 0, block) for block in (2, 3)] == [0, 0]


def test_a_load_waits_for_writes_before_it_on_its_channel() -> None:
    alone, behind = memory(board()), memory(board())
    for block in range(3):
        access(behind, 0, layout.KIND_STORE, block)
    later = access(behind, 0, layout.KIND_LOAD, 9) - access(alone, 0, layout.KIND_LOAD, 9)
    assert later == pytest.approx(2 * UNIT // 16, abs=1)  # block 0 and, for the load itself, block 1


@pytest.mark.parametrize(("turnaround_ns", "cycles"), [(0.0, 0), (20.0, 30)])
def test_the_bus_turns_once_for_a_batch_of_writes(turnaround_ns: float, cycles: int) -> None:
    mem = memory(board(dram_turnaround_ns=turnaround_ns))
    access(mem, 0, layout.KIND_STORE, 0)
    access(mem, 0, layout.KIND_LOAD, 1)
    access(mem, 0, layout.KIND_LOAD, 2)  # drives block 0 out
    assert mem[mem[layout.CHANNEL_BASE]] == (3 * UNIT // 16 + cycles) * GRAINS


def test_the_bus_does_not_turn_between_writes() -> None:
    mem = memory(board(dram_turnaround_ns=20.0))
    for block in range(6):
        access(mem, 0, layout.KIND_STORE, block)
    assert mem[mem[layout.CHANNEL_BASE]] == 4 * UNIT // 16 * GRAINS


def test_writes_wait_until_they_fill_a_batch() -> None:
    mem = memory(board(dram_write_batch_bytes=2 * UNIT))
    free = []
    for block in range(5):
        access(mem, 0, layout.KIND_STORE, block)
        free.append(int(mem[mem[layout.CHANNEL_BASE]]) // GRAINS)
    assert free == [0, 0, 0, 512, 512]


def test_write_buffers_start_filled_to_different_levels() -> None:
    m = machine("h100")
    p = stream_program(block_bytes=UNIT, direction="store")
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state="cold").buffer
    first = mem[layout.CHANNEL_BASE] + mem[layout.CHANNELS]
    levels = mem[first : first + mem[layout.CHANNELS]] / (2 * m.dram_write_batch_bytes)
    assert levels.min() >= 0
    assert levels.max() < 1
    assert levels.mean() == pytest.approx(0.5, abs=0.1)


def test_an_sm_sends_stores_no_faster_than_its_port() -> None:
    mem = memory(board(l2_port_bytes_per_cycle=64.0))
    assert [held(mem, 0, block) for block in (0, 1)] == [UNIT // 64, 2 * UNIT // 64]
