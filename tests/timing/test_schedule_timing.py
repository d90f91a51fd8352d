"""How much time does scheduling save where a warp would wait for its own results?"""

from __future__ import annotations

import pytest

import schedule_programs as small
from heddle.passes.schedule.dependences import dependences
from heddle.passes.schedule.order import distances, in_order
from schedule_programs import H100, draft, registers


def loop_cycles(cols: int, enabled: bool) -> int:
    program = small.compiled(small.softmax(cols), enabled)
    return small.result_of(program, small.numbers(cols))[2]


@pytest.mark.parametrize("cols", [32, 64])
def test_softmax_takes_less_time(cols: int) -> None:
    """Two chains of maxima side by side, and sums between the exponentials, save a latency of four each."""
    latency = H100.ops["FMNMX"].latency_cycles
    per_row = cols // 4  # registers of a row that a lane holds
    saved = loop_cycles(cols, enabled=False) - loop_cycles(cols, enabled=True)
    assert saved >= 2 * latency * per_row  # one of two chains of maxima, and one chain of sums or more


def test_distance_is_the_latency_of_what_follows() -> None:
    a, b, c = registers(3)
    block = (draft("MUFU", [b], [a]), draft("FADD", [c], [b]))
    graph = dependences(block, (), {}, 1, H100)
    assert distances(graph) == [H100.ops["MUFU"].latency_cycles, 0]


def test_distance_counts_the_time_that_a_pipe_needs() -> None:
    values = registers(4)
    graph = dependences([draft("MUFU", [v], [v]) for v in values], (), {}, 1, H100)
    interval = H100.ops["MUFU"].initiation_cycles
    assert sorted(distances(graph)) == [i * interval for i in range(4)]


def test_source_order_takes_latencies_and_intervals() -> None:
    a, b, c = registers(3)
    graph = dependences((draft("MUFU", [b], [a]), draft("FADD", [c], [b]), draft("MUFU", [a], [a])), (), {}, 1, H100)
    assert in_order(graph) == H100.ops["MUFU"].latency_cycles + 1


def test_a_load_takes_the_time_of_all_warps_of_the_sm() -> None:
    a, b = registers(2)
    block = [draft("STS", [], [a, b], bytes=512)] * 2
    one, four = (in_order(dependences(block, (), {}, warps, H100)) for warps in (1, 4))
    assert (one, four) == (512 // H100.shared_bytes_per_cycle, 4 * 512 // H100.shared_bytes_per_cycle)


def test_the_way_to_a_bulk_load_is_as_long_as_the_copy() -> None:
    a, b = registers(2)
    graph = dependences((draft("UIADD3", [b], [a]), draft("UTMALDG", [], [b], bytes=128)), (), {}, 1, H100)
    copy = H100.l2_near_latency_cycles + H100.tma_extra_latency_cycles
    assert distances(graph) == [copy + H100.ops["UIADD3"].latency_cycles, copy]
