"""Is a faster memory ever slower, and is any server faster than its rate?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.machine import Machine
from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, machine, stream_program

requests = st.lists(
    st.tuples(
        st.integers(0, 200),  # cycles since the request before
        st.integers(0, 400),  # cycles until it reaches L2
        st.integers(0, 131),  # SM
        st.sampled_from((layout.KIND_LOAD, layout.KIND_LOAD, layout.KIND_STORE, layout.KIND_REDUCE)),
        st.integers(0, 39),  # block
    ),
    min_size=1,
    max_size=80,
)
FASTER = {
    "l2_bytes_per_cycle_per_sm": 60.0,
    "l2_port_bytes_per_cycle": 100.0,
    "dram_gbytes_per_s": 5000.0,
    "dram_extra_latency_ns": 50.0,
    "l2_near_latency_cycles": 200,
}


def play(m: Machine, events: list[tuple[int, int, int, int, int]]) -> np.ndarray:
    """Issue fixed requests and return their answers."""
    p = stream_program(blocks=40, block_bytes=8192)
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state="cold").buffer
    answers, t = [], 0
    for gap, later, sm, kind, block in events:
        t += gap
        answers.append(memory_access(mem, t, 256 * (t + later), sm, kind, 0, block, 0, 1, 8192, 0, 0, 0))
    return np.array(answers)


@pytest.mark.parametrize("field", sorted(FASTER))
@settings(max_examples=40, deadline=None)
@given(events=requests)
def test_a_faster_memory_is_never_slower(field: str, events: list[tuple[int, int, int, int, int]]) -> None:
    base = machine("h100", l2_bytes=128 * 1024)
    assert (play(base.replace(**{field: FASTER[field]}), events) <= play(base, events)).all()


@settings(max_examples=60, deadline=None)
@given(requests)
def test_no_answer_comes_before_the_unloaded_time(events: list[tuple[int, int, int, int, int]]) -> None:
    m = machine("h100", l2_bytes=128 * 1024)
    issue = np.cumsum([event[0] for event in events])
    reach = issue + np.array([event[1] for event in events])
    loads = np.array([event[3] == layout.KIND_LOAD for event in events])
    answers = play(m, events)
    floor = reach + np.where(loads, m.l2_far_latency_cycles - 1 + int(8192 / m.l2_port_bytes_per_cycle), 0)
    assert (answers >= floor).all()
