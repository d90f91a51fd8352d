"""Do the compiled engine and the reference agree on programs of the modes fiber and cuda-native?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from random_fiber import cuda_native, random_fiber_case
from random_programs import random_case
from test_engines_agree import with_long_loops
from test_event_logs_agree import events

from agreement import differences, report
from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine import Machine
from heddle.sim import simulate
from heddle.sim.launch import plan_launch
from heddle.sim.reference import simulate_reference

SAMPLE = range(40)
ALL = range(40, 1040)
PYTHON_SAMPLE = (1, 4, 7)


def check(seed: int, engine: str = "compiled", **changes: Any) -> None:
    """Compare an engine with the reference on one random case."""
    program, machine, options = random_fiber_case(seed)
    options = options | changes
    expected = simulate_reference(program, machine, **options)
    lines = differences(expected, simulate(program, machine, engine=engine, **options))
    assert not lines, report(seed, program, options, lines)


@pytest.mark.parametrize("seed", SAMPLE)
def test_engines_agree_on_random_fiber_programs(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_engines_agree_on_a_thousand_random_fiber_programs(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", PYTHON_SAMPLE)
def test_engine_without_compilation_agrees(seed: int) -> None:
    check(seed, engine="python")


@pytest.mark.parametrize("seed", range(10))
def test_one_cluster_alone_agrees(seed: int) -> None:
    check(seed, mode="sm")


@pytest.mark.parametrize("seed", range(10))
def test_cold_instruction_lines_agree(seed: int) -> None:
    """Wefts that start ask for their first lines in the order of their numbers."""
    program, machine, options = random_fiber_case(seed)
    machine = dataclasses.replace(machine, instruction_miss_cycles=20)
    flushed = options | {"l2_state": "flushed"}
    lines = differences(simulate_reference(program, machine, **flushed), simulate(program, machine, **flushed))
    assert not lines, report(seed, program, flushed, lines)


@pytest.mark.parametrize("seed", range(15))
def test_logs_hold_the_same_events(seed: int) -> None:
    program, machine, options = random_fiber_case(seed)
    expected = events(simulate_reference(program, machine, log=True, **options).log)
    got = events(simulate(program, machine, log="all", **options).log)
    assert not expected - got, f"missing on random_fiber_case({seed}): {sorted(expected - got)[:5]}"
    assert not got - expected, f"too many on random_fiber_case({seed}): {sorted(got - expected)[:5]}"


def side_by_side(seed: int) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a random program of four work items on one SM that holds as many FIBER-threads as its registers allow."""
    program, machine, options = random_fiber_case(seed)
    items = np.zeros((4, 1), dtype=np.int64)
    work = dataclasses.replace(program.work, items=items, grid=2)
    return dataclasses.replace(program, work=work), dataclasses.replace(machine, sms=1, max_ctas_per_sm=2), options


SIDE_BY_SIDE = [seed for seed in range(40) if random_fiber_case(seed)[0].fiber.registers <= 256]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", SIDE_BY_SIDE[:10])
def test_engines_agree_on_two_fiber_threads_of_an_sm(seed: int) -> None:
    program, machine, options = side_by_side(seed)
    assert plan_launch(program, machine).clusters == 2
    lines = differences(simulate_reference(program, machine, **options), simulate(program, machine, **options))
    assert not lines, report(seed, program, options, lines)


def without_bits(seed: int) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a random program for a machine with fine_scheduling off: no binds, no bits, no products of wefts."""
    program, machine, options = random_fiber_case(seed)
    gone = ("DEPBAR.BIND", "DEPBAR.BIT", "WMMA", "WMMA.TM")
    plain = tuple(Instruction(op="NOP") if i.op in gone else i for i in program.instructions)
    return (
        dataclasses.replace(program, instructions=plain),
        dataclasses.replace(machine, fine_scheduling=False),
        options,
    )


@pytest.mark.parametrize("seed", range(10))
def test_engines_agree_without_fine_scheduling(seed: int) -> None:
    program, machine, options = without_bits(seed)
    lines = differences(simulate_reference(program, machine, **options), simulate(program, machine, **options))
    assert not lines, report(seed, program, options, lines)


def native_case(seed: int) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a random SIMT program in mode cuda-native."""
    program, machine, options = random_case(seed)
    ops = dict(machine.ops) | {"SETFIBER": machine.ops["NOP"]}
    setup_cycles = (8, 1, 0, 2, 33)[seed % 5]
    machine = dataclasses.replace(machine, dynamic_parallelism=True, set_fiber_num_cycles=setup_cycles, ops=ops)
    return cuda_native(program), machine, options


@pytest.mark.parametrize("seed", range(20))
def test_engines_agree_on_mode_cuda_native(seed: int) -> None:
    program, machine, options = native_case(seed)
    lines = differences(simulate_reference(program, machine, **options), simulate(program, machine, **options))
    assert not lines, report(seed, program, options, lines)


@pytest.mark.parametrize("seed", range(30))
def test_fast_forward_changes_no_count_in_mode_cuda_native(seed: int) -> None:
    program, machine, options = native_case(seed)
    program, alone = with_long_loops(program), options | {"mode": "sm"}
    plain = simulate(program, machine, fast_forward=False, **alone)
    lines = differences(plain, simulate(program, machine, **alone))
    assert not lines, report(seed, program, alone, lines)


def test_fast_forward_engages_in_mode_cuda_native() -> None:
    skipped = 0
    for seed in range(30):
        program, machine, options = native_case(seed)
        skipped += simulate(with_long_loops(program), machine, **options | {"mode": "sm"}).fast_forwarded_cycles
    assert skipped > 0


def forwarded(seed: int) -> tuple[list[str], int]:
    """Return what fast-forward changes in a random program with long loops, and how many cycles it skips."""
    program, machine, options = random_fiber_case(seed)
    program, alone = with_long_loops(program), options | {"mode": "sm"}
    plain = simulate(program, machine, fast_forward=False, **alone)
    skipping = simulate(program, machine, **alone)
    return differences(plain, skipping), skipping.fast_forwarded_cycles


@pytest.mark.parametrize("seed", range(16))
def test_fast_forward_changes_no_count_in_mode_fiber(seed: int) -> None:
    lines, _ = forwarded(seed)
    assert not lines, f"random_fiber_case({seed}) with long loops: {lines}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16, 400))
def test_fast_forward_changes_no_count_in_many_programs_of_mode_fiber(seed: int) -> None:
    lines, _ = forwarded(seed)
    assert not lines, f"random_fiber_case({seed}) with long loops: {lines}"


@pytest.mark.slow
def test_fast_forward_engages_in_mode_fiber() -> None:
    assert any(forwarded(seed)[1] > 0 for seed in range(40))


def paper_case(seed: int) -> tuple[WarpProgram, Machine, dict[str, str]]:
    """Return a random program without binds, whose reads set F as in the paper."""
    program, machine, options = random_fiber_case(seed)
    unbound = tuple(
        dataclasses.replace(i, op="NOP", bind=None) if i.bind is not None else i for i in program.instructions
    )
    return dataclasses.replace(program, instructions=unbound), dataclasses.replace(machine, busy_bits="paper"), options


@pytest.mark.parametrize("seed", range(20))
def test_engines_agree_on_the_bits_of_the_paper(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Results are equal, or both engines say that nothing will happen any more."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 3000)
    program, machine, options = paper_case(seed)
    try:
        expected = simulate_reference(program, machine, **options)
    except UserError:
        with pytest.raises(UserError):
            simulate(program, machine, **options)
        return
    lines = differences(expected, simulate(program, machine, **options))
    assert not lines, report(seed, program, options, lines)
