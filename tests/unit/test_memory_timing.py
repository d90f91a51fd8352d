"""When does one request answer, and can bandwidth be exceeded?"""

import numpy as np
import pytest

from heddle.machine import Machine
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access, memory_access_multicast
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, machine, stream_program

GRAINS = 65536


def buffer(m: Machine, l2_state: str = "warm", mode: str = "chip", **program: object) -> np.ndarray:
    p = stream_program(**program)
    return build_memory(p, m, plan_launch(p, m), mode=mode, clock_mhz=CLOCK_MHZ, l2_state=l2_state).buffer


def load(mem: np.ndarray, t: int, block: int, nbytes: int, *, q: int | None = None, sm: int = 0, extra: int = 0) -> int:
    """Load a whole block; it reaches L2 in cycle `q`."""
    arrival = 256 * (t + 1 if q is None else q)
    return memory_access(mem, t, arrival, sm, layout.KIND_LOAD, 0, block, 0, 1, nbytes, extra, 0, 0)


def duration(nbytes: int, rate: float) -> int:
    """The page's arithmetic: grains that `nbytes` take."""
    return (nbytes * round(2**40 / rate) + 2**23) >> 24


def l2_rate(m: Machine) -> float:
    return m.l2_bytes_per_cycle_per_sm * m.sms


@pytest.mark.parametrize(("block", "far"), [(0, False), (7, False), (8, True), (15, True), (16, False)])
def test_an_unloaded_hit_takes_service_latency_and_port(block: int, far: bool) -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=512, steps=32)
    way = (m.l2_far_latency_cycles if far else m.l2_near_latency_cycles) - 1
    served = 101 * GRAINS + duration(512, l2_rate(m))
    expected = (served + way * GRAINS + duration(512, m.l2_port_bytes_per_cycle)) // GRAINS
    assert load(mem, 100, block, 512) == expected


def test_the_partition_depends_on_the_sm_too() -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=512)
    near, far = load(mem, 0, 0, 512, sm=0), load(mem, 0, 0, 512, sm=1)
    assert far - near == m.l2_far_latency_cycles - m.l2_near_latency_cycles


def test_one_partition_has_no_far_side() -> None:
    mem = buffer(machine("h100", l2_partitions=1), block_bytes=512, steps=32)
    assert load(mem, 0, 0, 512) == load(mem, 10_000, 8, 512) - 10_000


def test_a_request_of_several_units_waits_for_the_far_partition() -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=8192)
    way = (m.l2_far_latency_cycles - 1) * GRAINS
    assert load(mem, 0, 0, 8192) == (GRAINS + way + duration(8192, m.l2_port_bytes_per_cycle)) // GRAINS


def test_all_of_a_unit_waits_for_one_channel() -> None:
    m = machine("h100", l2_port_bytes_per_cycle=100_000.0)
    whole, split = (
        buffer(m, "cold", block_bytes=4096),
        buffer(m.replace(dram_interleave_bytes=512), "cold", block_bytes=4096),
    )
    transfer = duration(4096 - 512, m.dram_bytes_per_cycle(CLOCK_MHZ) / m.dram_channels) / GRAINS
    far = m.l2_far_latency_cycles - m.l2_near_latency_cycles  # eight units lie in both partitions
    assert load(whole, 0, 0, 4096) == pytest.approx(load(split, 0, 0, 4096) - far + transfer, abs=1)


def test_data_pass_the_port_while_the_rest_is_on_its_way() -> None:
    m = machine("h100", l2_bytes_per_cycle_per_sm=0.25)  # 33 bytes a cycle for the chip: slower than the port
    mem = buffer(m, block_bytes=16384)
    way = (m.l2_far_latency_cycles - 1) * GRAINS
    served = GRAINS + duration(16384, l2_rate(m))
    assert load(mem, 0, 0, 16384) == (served + way + duration(1024, m.l2_port_bytes_per_cycle)) // GRAINS


def test_an_unloaded_miss_adds_one_chunk_and_the_dram_latency() -> None:
    m = machine("h100")
    mem = buffer(m, "cold", block_bytes=512)
    served = GRAINS + duration(512, l2_rate(m))
    chunk = duration(512, m.dram_bytes_per_cycle(CLOCK_MHZ) / m.dram_channels)
    way = (m.l2_near_latency_cycles - 1) * GRAINS + round(GRAINS * m.dram_extra_latency_ns * CLOCK_MHZ / 1000)
    assert load(mem, 0, 0, 512) == (served + chunk + way + duration(512, m.l2_port_bytes_per_cycle)) // GRAINS


def test_extra_latency_is_added_once() -> None:
    m = machine("h100")
    assert load(buffer(m), 0, 0, 1024, extra=105) - load(buffer(m), 0, 0, 1024) == 105


def test_a_miss_fills_l2_so_that_the_next_load_hits() -> None:
    m = machine("h100")
    mem = buffer(m, "cold", block_bytes=512)
    load(mem, 0, 0, 512)
    assert load(mem, 50_000, 0, 512) - 50_000 == load(buffer(m, block_bytes=512), 0, 0, 512)


def test_a_request_for_a_block_on_its_way_waits_for_it() -> None:
    mem = buffer(machine("h100"), "cold", block_bytes=512)
    first = load(mem, 0, 0, 512, sm=0)
    second = load(mem, 100, 0, 512, sm=2)
    assert second == first
    assert mem[layout.MERGE] == 512
    assert mem[layout.DRAM_READ] == 512


def test_a_store_is_visible_after_l2_service_and_its_latency() -> None:
    m = machine("h100")
    mem = buffer(m, "cold", direction="store", block_bytes=1024)
    visible = memory_access(mem, 5, 256 * 9, 0, layout.KIND_STORE, 0, 0, 0, 1, 1024, 0, 0, 0)
    sent = 5 * GRAINS + duration(1024, m.l2_port_bytes_per_cycle)  # the SM's port is what takes longest here
    assert visible == max(9 * GRAINS + duration(2048, l2_rate(m)), sent) // GRAINS + m.store_latency_cycles
    assert mem[layout.DRAM_READ] == 0


@pytest.mark.parametrize("cost", [1.0, 1.5, 2.0])
def test_written_bytes_take_more_l2_service(cost: float) -> None:
    m = machine("h100", l2_write_cost=cost, l2_port_bytes_per_cycle=1e6)
    mem = buffer(m, "cold", direction="store", block_bytes=1 << 20)
    visible = memory_access(mem, 0, 256, 0, layout.KIND_STORE, 0, 0, 0, 1, 1 << 20, 0, 0, 0)
    served = GRAINS + duration(round(cost * (1 << 20)), l2_rate(m))
    assert visible == served // GRAINS + m.store_latency_cycles


@pytest.mark.parametrize("block", [-1, 64])
def test_a_block_outside_the_tensor_moves_nothing(block: int) -> None:
    m = machine("h100")
    mem = buffer(m, "cold", block_bytes=2048)
    assert load(mem, 0, block, 2048) == 1 + m.l2_near_latency_cycles - 1
    assert mem[layout.L2_READ] == mem[layout.DRAM_READ] == 0
    assert mem[layout.OUTSIDE] == 1


def test_the_chip_never_gets_more_than_the_l2_rate() -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=16384, blocks=256, steps=256)
    last = max(load(mem, 0, i % 256, 16384, sm=i % m.sms) for i in range(2000))
    assert last >= 2000 * 16384 / l2_rate(m)


def test_one_sm_never_gets_more_than_its_port() -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=16384, blocks=64, steps=64)
    last = max(load(mem, 0, i, 16384) for i in range(64))
    assert last >= int(64 * 16384 / m.l2_port_bytes_per_cycle) + m.l2_far_latency_cycles - 1


def test_dram_never_gives_more_than_its_rate() -> None:
    m = machine("h100", l2_bytes_per_cycle_per_sm=1000.0, l2_port_bytes_per_cycle=100_000.0)
    mem = buffer(m, "cold", block_bytes=16384, blocks=4096, steps=4096)
    last = max(load(mem, 0, i, 16384, sm=i % m.sms) for i in range(4096))
    assert last >= 4096 * 16384 / m.dram_bytes_per_cycle(CLOCK_MHZ)


def test_dram_reaches_its_rate_with_much_in_flight() -> None:
    m = machine("h100", l2_bytes_per_cycle_per_sm=1000.0, l2_port_bytes_per_cycle=100_000.0)
    mem = buffer(m, "cold", block_bytes=16384, blocks=4096, steps=4096)
    last = max(load(mem, 0, i, 16384, sm=i % m.sms) for i in range(4096))
    assert last <= 1.1 * 4096 * 16384 / m.dram_bytes_per_cycle(CLOCK_MHZ)


def test_a_request_that_arrives_later_leaves_no_gap_for_others() -> None:
    m = machine("h100")
    mem = buffer(m, block_bytes=512)
    alone = load(buffer(m, block_bytes=512), 0, 0, 512)
    load(mem, 0, 2, 512, q=5000)
    assert load(mem, 0, 0, 512, sm=2) == alone


def test_a_multicast_is_read_once_and_passes_every_port() -> None:
    m = machine("h100")
    mem, out = buffer(m, block_bytes=16384), np.zeros(4, dtype=np.int64)
    for _ in range(8):
        memory_access_multicast(mem, 0, 256, 2, 2, 0, 0, 0, 1, 16384, 0, 0, 0, out, 1)
    assert mem[layout.L2_READ] == 8 * 16384
    assert out[0] == out[3] == 0
    assert out[1] >= int(8 * 16384 / m.l2_port_bytes_per_cycle)
    assert out[1] == out[2]


def test_mode_sm_gets_its_share_of_dram() -> None:
    m = machine("h100")
    mem = buffer(m, "cold", mode="sm", block_bytes=16384, blocks=6400, steps=64, items=132, grid=132)
    last = max(load(mem, 0, i, 16384) for i in range(64))
    assert last >= 64 * 16384 / (m.dram_bytes_per_cycle(CLOCK_MHZ) / m.sms)
