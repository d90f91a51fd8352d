"""`Sim`: stepping, snapshots, views, sentences; and what `simulate` refuses."""

import dataclasses
import re

import numpy as np
import pytest

from engine_builder import EXIT, h100, loop, op, program, role, run
from heddle.errors import UserError
from heddle.ir.warp import Barrier, BarrierRef, Ring
from heddle.sim import EventKind, Sim, simulate

MIXED = program(op("MUFU", write=0), op("FADD", wait=[0], stall=2), op("BAR.SYNC", warps=6), loop(0, 30), EXIT, warps=6)


def sim(**options: object) -> Sim:
    """Return a simulation of the mixed program."""
    return Sim(h100(), MIXED, mode="sm", **options)


def test_steps_of_any_size_give_the_same_result() -> None:
    whole, stepped = sim(fast_forward=False), sim()
    whole.run()
    while not stepped.step(7):
        pass
    assert np.array_equal(whole.result().stalls_pc, stepped.result().stalls_pc)


def test_a_result_in_the_middle_accounts_every_cycle_so_far() -> None:
    s = sim()
    s.run(until=123)
    assert s.result().stalls[:6].sum(axis=1).tolist() == [123] * 6


def test_a_restored_snapshot_goes_the_same_way_again() -> None:
    s = sim(log="issue")
    s.run(until=100)
    snapshot = s.snapshot()
    s.run()
    first = s.result()
    s.restore(snapshot)
    assert s.cycle == 100
    s.run()
    assert np.array_equal(first.log, s.result().log)


def test_views_show_program_counters() -> None:
    s = sim(scheduler="gto")
    s.run(until=1)
    assert s.view.pc[0] == 1


def test_why_names_reason_place_and_counter() -> None:
    s = sim(scheduler="gto")
    s.run(until=5)
    assert s.why(0) == (
        "SM 0 slot 0 warp 0 (role 'worker') at pc 1 FADD, kernel.py:101 (FADD), goes on in cycle 23 "
        "(SHORT_SCOREBOARD, SB0)"
    )


def test_why_of_a_warp_whose_pipe_is_busy() -> None:
    s = sim(scheduler="gto")
    s.run(until=5)
    assert s.why(4).endswith(
        "at pc 0 MUFU, kernel.py:100 (MUFU), waits for pipe sfu until cycle 8 (MATH_PIPE_THROTTLE)"
    )


def test_why_of_a_warp_at_a_barrier() -> None:
    p = program(op("BAR.SYNC", warps=2), EXIT, op("NOP", stall=15), op("BAR.ARV", warps=2), EXIT,
                roles=(role(0, 1), role(2, 1, first=1, name="other")))  # fmt: skip
    s = Sim(h100(), p, mode="sm")
    s.run(until=5)
    assert "at pc 0 BAR.SYNC" in s.why(0)
    assert "waits at named barrier 0: 1 of 2 warps have come" in s.why(0)


def test_why_of_a_warp_that_has_ended() -> None:
    s = sim()
    s.run()
    assert s.why(0) == "warp context 0 has ended"


@pytest.mark.parametrize("engine", ["compiled", "python"])
def test_a_user_policy_decides(engine: str) -> None:
    def lowest(ready: int, last: int, subpartition: int, cycle: int) -> int:
        return (ready & -ready).bit_length() - 1 if subpartition < 0 else next(i for i in range(64) if ready >> i & 1)

    p = program(op("NOP", stall=2), op("NOP"), loop(0, 5), EXIT, warps=16)
    options = {"engine": engine}
    assert (
        run(p, scheduler=lowest, **options).stalls.tolist() == run(p, scheduler=lowest_of_16, **options).stalls.tolist()
    )


def lowest_of_16(ready: int, last: int, subpartition: int, cycle: int) -> int:
    """Pick the lowest ready warp, in code that the compiler knows."""
    bit = 0
    while not (ready >> bit) & 1:
        bit += 1
    return bit


def test_plain_python_gives_the_same_result() -> None:
    compiled, plain = run(MIXED), run(MIXED, engine="python")
    assert compiled.cycles == plain.cycles
    assert np.array_equal(compiled.stalls_pc, plain.stalls_pc)


def test_max_cycles_is_an_error_until_is_not() -> None:
    assert run(MIXED, until=50).cycles == 50
    with pytest.raises(UserError, match="not finished after 50 cycles"):
        run(MIXED, max_cycles=50)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shared_memory_bytes": 300_000}, "needs 300000 bytes of shared memory; h100 allows 232448"),
        ({"roles": (role(0, 65, registers=8),)}, "needs 65 warps; an SM of h100 has 64"),
        ({"tensor_memory_columns": 512}, "needs 512 columns; an SM of h100 has 0"),
    ],
)
def test_programs_that_do_not_fit_are_refused_with_the_numbers(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        run(program(op("NOP"), EXIT, **fields))


def test_too_many_registers_are_refused() -> None:
    p = program(op("NOP"), EXIT, roles=(dataclasses.replace(role(0, 16), registers_per_thread=255),))
    with pytest.raises(UserError, match="needs 4096 vector registers; an SM of h100 has 2048"):
        run(p)


def test_an_element_outside_a_barrier_ring_is_refused_with_its_line() -> None:
    wait = op("SYNCS.TRYWAIT", barrier=BarrierRef(name="full", ring="stages", offset=1))
    rings, barriers = (Ring(name="stages", depth=3),), (Barrier(name="full", count=2, arrivals=1),)
    p = program(wait, EXIT, rings=rings, barriers=barriers)
    with pytest.raises(UserError, match=r"kernel\.py:100: pc 0 uses element 2 of mbarrier 'full'; it has 2"):
        run(p)


def test_an_unknown_engine_is_refused() -> None:
    p = program(op("NOP"), EXIT)
    with pytest.raises(UserError, match="unknown engine 'nunba'"):
        simulate(p, h100(), engine="nunba")


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda ready, last, subpartition, cycle: 63, "the scheduler policy chose a warp that cannot issue in cycle 0"),
        (lambda ready, last, subpartition, cycle: [][0], "the scheduler policy failed in cycle 0: IndexError"),
    ],
)
def test_a_policy_that_chooses_no_ready_warp_is_an_error(engine: str, policy: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(MIXED, scheduler=policy, engine=engine)


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize("scheduler", ["gty", "gto", "lrr"])
def test_64_warps_a_subpartition_agree_with_the_reference(engine: str, scheduler: str) -> None:
    machine = h100().replace(max_warps_per_sm=256)
    body = op("MUFU", write=0), op("FADD", wait=[0]), loop(0, 3), EXIT
    p = program(*body, roles=(role(0, 256, registers=8),))
    fast = simulate(p, machine, mode="sm", engine=engine, scheduler=scheduler)
    slow = simulate(p, machine, mode="sm", engine="reference", scheduler=scheduler)
    assert fast.cycles == slow.cycles
    assert np.array_equal(fast.stalls, slow.stalls)


def test_the_last_of_24_rings_steps_as_in_the_reference() -> None:
    rings = tuple(Ring(name=f"r{i}", depth=3) for i in range(24))
    full = BarrierRef(name="full", ring="r23")
    arrive, wait = op("SYNCS.ARRIVE", barrier=full), op("SYNCS.TRYWAIT", barrier=full, advance=("r23",))
    p = program(arrive, wait, loop(0, 8), EXIT, rings=rings, barriers=(Barrier(name="full", count=3, arrivals=1),))
    fast, slow = run(p, log="all"), simulate(p, h100(), mode="sm", engine="reference", log="all")
    assert fast.cycles == slow.cycles
    assert fast.log is not None
    waits = fast.log[(fast.log["kind"] == EventKind.ISSUE) & (fast.log["pc"] == 1)]
    assert waits["stage"].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
