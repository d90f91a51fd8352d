"""Named barriers, cluster barriers, work items, launches: hand-computed cycles."""

import pytest

from engine_builder import EXIT, h100, issues, loop, op, program, role, run, waited
from heddle.ir.warp import Barrier, BarrierRef, Count, Instruction, Ring


@pytest.mark.parametrize("warps", [1, 4, 16])
def test_a_named_barrier_costs_its_cycles(warps: int) -> None:
    m = h100()
    p = program(op("BAR.SYNC", warps=warps), op("NOP"), EXIT, warps=warps)
    last = max(issues(p, warp=warp)[0] for warp in range(warps))
    assert issues(p)[1] == last + m.named_barrier_cycles + warps * m.named_barrier_cycles_per_warp


def test_waiting_at_a_barrier_is_a_barrier_stall() -> None:
    p = program(op("BAR.SYNC", warps=2), op("NOP"), EXIT, op("NOP", stall=9), op("BAR.ARV", warps=2), EXIT,
                roles=(role(0, 1), role(3, 1, first=1, name="other")))  # fmt: skip
    m = h100()
    cycles = 9 + m.named_barrier_cycles + 2 * m.named_barrier_cycles_per_warp - 1
    assert waited(run(p), 1) == {"SELECTED": 1, "BARRIER": cycles}


def test_an_arriving_warp_goes_on() -> None:
    p = program(op("BAR.ARV", warps=2), op("NOP"), EXIT, op("BAR.SYNC", warps=2), EXIT,
                roles=(role(0, 1), role(3, 1, first=1, name="other")))  # fmt: skip
    assert issues(p)[1] == 1


def test_a_cluster_barrier_meets_across_ctas() -> None:
    p = program(op("UCGABAR", warps=2), op("NOP"), EXIT, cluster_size=2)
    assert issues(p)[1] == h100().cluster_barrier_cycles


def test_persistent_warps_go_through_their_items() -> None:
    body = (op("NOP", stall=5), loop(0, 1), op("NEXT", target=0), EXIT)
    counted = Instruction(op="LOOP", target=0, count=Count(attribute="k"))
    p = program(body[0], counted, *body[2:], items=[[2], [7], [3]], attributes=["k"], schedule="static", grid=1)
    result = run(p)
    assert waited(result, 0)["SELECTED"] == 2 + 7 + 3


def test_a_skip_jumps_over_its_body_when_the_attribute_is_zero() -> None:
    skip = Instruction(op="SKIP", attribute="flag", target=2)
    p = program(skip, op("NOP"), op("NEXT", target=0), EXIT, items=[[0], [1], [0]], attributes=["flag"],
                schedule="static", grid=1)  # fmt: skip
    assert waited(run(p), 1)["SELECTED"] == 1


def test_a_new_cta_starts_after_the_launch_time() -> None:
    m = h100(sms=1, max_ctas_per_sm=1)
    p = program(op("NOP", stall=10), EXIT, items=[[0], [0]])
    result = run(p, m, mode="chip")
    assert result.cycles == 11 + m.cta_launch_cycles + 11
    assert waited(result, 0) == {"SELECTED": 2, "NO_INSTRUCTION": m.cta_launch_cycles}


def test_dynamic_items_go_to_who_asks_first() -> None:
    m = h100(sms=2, max_ctas_per_sm=1)
    counted = Instruction(op="LOOP", target=0, count=Count(attribute="k"))
    p = program(op("NOP", stall=5), counted, op("NEXT", target=0), EXIT, items=[[100], [1], [1], [1]],
                attributes=["k"], schedule="dynamic", grid=2)  # fmt: skip
    done = run(p, m, mode="chip").item_done_cycles
    assert done is not None
    assert max(done[1:]) < done[0]


def test_first_instruction_lines_are_fetched_after_a_flush() -> None:
    m = h100(instruction_miss_cycles=100)
    p = program(*[op("NOP")] * 9, EXIT)
    assert issues(p, m, l2_state="flushed")[0] == 100
    assert issues(p, m, l2_state="flushed")[8] == 207


def test_the_element_of_a_barrier_wraps_at_the_depth_of_its_ring() -> None:
    first = BarrierRef(name="full", ring="stage", offset=2)  # stage 0, offset 2 of a ring of 2: element 0
    p = program(
        op("SYNCS.ARRIVE", barrier=first), op("SYNCS.TRYWAIT", barrier=BarrierRef(name="full", ring="stage")), EXIT,
        rings=(Ring(name="stage", depth=2),), barriers=(Barrier(name="full", count=2, arrivals=1),),
    )  # fmt: skip
    assert issues(p)[1] == h100().mbarrier_arrive_cycles
