"""When may the engine skip a period, and does a jump leave memory as playing would?"""

import numpy as np

from heddle.sim.core import memory_forward as forward
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, gemm_program, machine, stream_program


def build(program, m, mode: str, l2_state: str) -> np.ndarray:
    plan = plan_launch(program, m)
    return build_memory(program, m, plan, mode=mode, clock_mhz=CLOCK_MHZ, l2_state=l2_state).buffer


def relative(mem: np.ndarray, t: int) -> list[int]:
    out = np.zeros(forward.memory_state_words(mem) + 2, dtype=np.int64)
    assert forward.memory_relative(mem, t, out, 1) == len(out) - 2
    assert out[0] == out[-1] == 0
    return out[1:-1].tolist()


def stream_steps(mem: np.ndarray, t: int, first: int, last: int, gap: int = 100) -> list[int]:
    return [
        memory_access(mem, t + gap * i, 256 * (t + gap * i + 1), 0, 0, 0, i, 0, 1, 1024, 0, 0, i) - (t + gap * i)
        for i in range(first, last)
    ]


def test_a_streaming_miss_never_repeats() -> None:
    mem = build(stream_program(), machine("h100"), "sm", "cold")
    stream_steps(mem, 0, 0, 2)
    assert forward.memory_repeats(mem, 5000, 0, 0, 2, 2, 2, 1, 3) == 0


def test_resident_blocks_repeat_to_the_end_of_the_tensor() -> None:
    mem = build(stream_program(), machine("h100", dram_interleave_bytes=1024), "sm", "warm")
    stream_steps(mem, 0, 0, 2)
    assert forward.memory_repeats(mem, 5000, 0, 0, 2, 2, 2, 1, 100) == 3  # 8 blocks are resident


def test_an_odd_period_changes_the_partition() -> None:
    two = machine("h100", dram_interleave_bytes=1024)
    assert forward.memory_repeats(build(stream_program(), two, "sm", "warm"), 0, 0, 0, 1, 1, 1, 1, 5) == 0
    one = two.replace(l2_partitions=1)
    assert forward.memory_repeats(build(stream_program(), one, "sm", "warm"), 0, 0, 0, 1, 1, 1, 1, 5) == 5


def test_nothing_repeats_where_blocks_can_be_evicted() -> None:
    mem = build(stream_program(), machine("h100", l2_bytes=16 * 1024), "sm", "warm")
    assert forward.memory_repeats(mem, 0, 0, 0, 2, 2, 2, 1, 5) == 0


def test_a_miss_changes_the_relative_state() -> None:
    mem = build(stream_program(), machine("h100"), "sm", "cold")
    before = relative(mem, 0)
    stream_steps(mem, 0, 0, 1)
    assert relative(mem, 1_000_000) != before


def test_hits_leave_the_relative_state_when_the_servers_are_idle() -> None:
    mem = build(stream_program(), machine("h100"), "sm", "warm")
    before = relative(mem, 0)
    stream_steps(mem, 0, 0, 4)
    assert relative(mem, 1_000_000) == before


def test_a_backlog_is_part_of_the_relative_state() -> None:
    mem = build(stream_program(), machine("h100"), "sm", "warm")
    before = relative(mem, 0)
    stream_steps(mem, 0, 0, 4, gap=0)
    assert relative(mem, 0) != before


def test_a_jump_equals_playing() -> None:
    played = build(stream_program(blocks=64, steps=64), machine("h100"), "sm", "warm")
    jumped = played.copy()
    for mem in (played, jumped):
        stream_steps(mem, 0, 0, 4)
    counters = jumped[layout.COUNTERS : layout.COUNTERS_END].copy()
    stream_steps(jumped, 0, 4, 8)
    forward.memory_skip(jumped, 4 * 4 * 100, counters, 0, 4)
    stream_steps(played, 0, 4, 24)
    assert relative(jumped, 2400) == relative(played, 2400)
    assert (jumped[layout.COUNTERS : layout.COUNTERS_END] == played[layout.COUNTERS : layout.COUNTERS_END]).all()
    assert stream_steps(jumped, 0, 24, 30) == stream_steps(played, 0, 24, 30)


def test_records_of_a_steady_loop_repeat_to_the_end_of_the_item() -> None:
    mem = build(gemm_program(k_steps=40), machine("h100", dram_interleave_bytes=16384), "representative", "cold")
    assert forward.memory_repeats(mem, 0, 0, 0, 2, 2, 2, 1, 100) == 19
    assert forward.memory_repeats(mem, 0, 0, 0, 1, 1, 1, 1, 100) == 0  # blocks take turns between the partitions
    assert forward.memory_run_length(mem, 2, 0, 0) == 1
    assert forward.memory_run_length(mem, 0, 99, 0) == 0


def test_even_block_strides_make_long_runs() -> None:
    import dataclasses

    program = stream_program(blocks=64, steps=20)
    program = dataclasses.replace(program, streams=(dataclasses.replace(program.streams[0], step=2),))
    mem = build(program, machine("h100", dram_interleave_bytes=1024), "representative", "cold")
    assert forward.memory_run_length(mem, 0, 0, 0) == 20
    assert forward.memory_run_length(mem, 0, 0, 15) == 5
