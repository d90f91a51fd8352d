"""What one group of SMs sees of DRAM: do channels write one after the other, and who waits for them?"""

import numpy as np
import pytest

from heddle.sim.core import memory_forward as forward
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.core.memory_dram import channel_of, first_fill
from heddle.sim.core.memory_represent import give_to_buffers
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, machine, stream_program

CHANNELS = 4
UNIT = 4096
BATCH = 3 * UNIT
BATCH_CYCLES = 1536  # at 32 bytes a cycle over four channels
GRAINS = 1 << layout.GRAIN_BITS


def memory(turnaround_ns: float = 0.0) -> np.ndarray:
    """Return the memory of one of eight SMs that stream from DRAM, in mode representative."""
    rates = {"dram_gbytes_per_s": 32 * CLOCK_MHZ / 1000, "dram_channels": CHANNELS, "dram_interleave_bytes": UNIT}
    m = machine("h100", sms=8, dram_write_batch_bytes=BATCH, dram_turnaround_ns=turnaround_ns, **rates)
    program = stream_program(block_bytes=UNIT, items=8, grid=8)
    plan = plan_launch(program, m)
    return build_memory(program, m, plan, mode="representative", clock_mhz=CLOCK_MHZ, l2_state="cold").buffer


def first_to_write(mem: np.ndarray) -> tuple[int, int]:
    """Return the number of the channel whose buffer is full first, and of how many bytes of the chip."""
    levels = [first_fill(mem, channel) for channel in range(CHANNELS)]
    channel = int(np.argmax(levels))
    return channel, CHANNELS * (BATCH - levels[channel])


def free(mem: np.ndarray) -> list[int]:
    """Return by how many cycles each channel is behind one that has not written."""
    first = int(mem[layout.CHANNEL_BASE])
    return (np.maximum(mem[first : first + CHANNELS], 0) // GRAINS).tolist()


def load(mem: np.ndarray, t: int, step: int) -> int:
    """Return the cycles that the representative's load of a step takes."""
    first = 8 * 4  # item of the middle group
    return memory_access(mem, t, 256 * t, 0, layout.KIND_LOAD, 0, first + step, 0, 1, UNIT, 0, 0, step) - t


def test_the_fullest_buffer_is_written_first() -> None:
    mem = memory()
    channel, needed = first_to_write(mem)
    give_to_buffers(mem, 0, needed - 1)
    assert free(mem) == [0] * CHANNELS
    give_to_buffers(mem, 0, 1)
    assert free(mem) == [BATCH_CYCLES if number == channel else 0 for number in range(CHANNELS)]


def test_all_channels_write_as_much() -> None:
    mem = memory()
    give_to_buffers(mem, 0, 10 * BATCH * CHANNELS)
    assert mem[layout.BATCHES] == 10 * CHANNELS
    assert free(mem) == [10 * BATCH_CYCLES] * CHANNELS


@pytest.mark.parametrize(("reads", "cycles"), [(False, BATCH_CYCLES), (True, BATCH_CYCLES + 30)])
def test_a_channel_turns_if_it_has_read(reads: bool, cycles: int) -> None:
    mem = memory(turnaround_ns=20.0)
    if reads:
        load(mem, 0, 0)
    before = int(mem[layout.DRAM_DONE])
    channel, needed = first_to_write(mem)
    give_to_buffers(mem, 10_000 * GRAINS, needed)
    behind = int(mem[mem[layout.CHANNEL_BASE] + channel]) + before - 10_000 * GRAINS
    assert behind == cycles * GRAINS


def test_a_load_waits_where_its_channel_writes() -> None:
    alone = [load(memory(), 1000, step) for step in range(8)]
    mem = memory()
    channel, needed = first_to_write(mem)
    waits = []
    for step in range(8):
        mem = memory()
        give_to_buffers(mem, 1000 * GRAINS, needed)
        waits.append(load(mem, 1000, step) - alone[step])
    row = int(mem[layout.STREAM_BASE])
    where = [channel_of(mem, int(mem[row + layout.STREAM_ADDRESS]) + (32 + step) * UNIT) for step in range(8)]
    written = [offset - mem[layout.CHANNEL_BASE] == channel for offset in where]
    assert any(written)
    assert not all(written)
    assert all((wait > 500) == (there) for wait, there in zip(waits, written, strict=True))


def relative(mem: np.ndarray, t: int) -> list[int]:
    out = np.zeros(forward.memory_state_words(mem), dtype=np.int64)
    forward.memory_relative(mem, t, out, 0)
    return out.tolist()


def test_a_period_in_which_dram_writes_does_not_repeat() -> None:
    mem = memory()
    before = relative(mem, 1000)
    give_to_buffers(mem, 1000 * GRAINS, 1)
    assert relative(mem, 1000) != before


def test_no_period_repeats_while_a_channel_is_behind_the_others() -> None:
    mem = memory()
    give_to_buffers(mem, 1000 * GRAINS, first_to_write(mem)[1])
    assert relative(mem, 1100) != relative(mem, 1200)
    rested = 1000 + BATCH_CYCLES
    assert relative(mem, rested) == relative(mem, rested + 100)
