"""Do the fast engine and the plain reference engine, written apart from one page, agree on every count?"""

from __future__ import annotations

import dataclasses

import pytest
from random_programs import random_case

from agreement import differences, report
from heddle.ir.warp import Count, WarpProgram
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.machine import Machine
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.sim.result import SimResult

SAMPLE = (*range(40), 747)  # 747: a signal reached the CTA after the one that it was meant for
ALL = range(40, 1040)
PYTHON_SAMPLE = (3, 6, 30)
LONG_LOOP = 200  # passes: enough for a period to show


def run(
    engine: str, program: WarpProgram, machine: Machine, options: dict[str, str], forward: bool = False
) -> SimResult:
    """Simulate with one of the engines."""
    if engine == "reference":
        return simulate_reference(program, machine, **options)
    return simulate(program, machine, engine=engine, fast_forward=forward, **options)


def check(seed: int, engine: str = "compiled") -> None:
    """Compare an engine with the reference on one random case."""
    program, machine, options = random_case(seed)
    expected = run("reference", program, machine, options)
    lines = differences(expected, run(engine, program, machine, options))
    assert not lines, report(seed, program, options, lines)


@pytest.mark.parametrize("seed", SAMPLE)
def test_engines_agree_on_random_programs(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_engines_agree_on_a_thousand_random_programs(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", PYTHON_SAMPLE)
def test_engine_without_compilation_agrees(seed: int) -> None:
    check(seed, engine="python")


@pytest.mark.parametrize("seed", range(20))
def test_one_cluster_alone_agrees(seed: int) -> None:
    """Mode sm: the share of the chip's rates, tags of its own."""
    program, machine, options = random_case(seed)
    alone = {**options, "mode": "sm"}
    lines = differences(run("reference", program, machine, alone), run("compiled", program, machine, alone))
    assert not lines, report(seed, program, alone, lines)


@pytest.mark.parametrize("seed", range(12))
def test_warm_cache_agrees_where_everything_fits(seed: int) -> None:
    program, machine, options = random_case(seed)
    machine = dataclasses.replace(machine, l2_bytes=1 << 24)
    warm = {**options, "l2_state": "warm"}
    lines = differences(run("reference", program, machine, warm), run("compiled", program, machine, warm))
    assert not lines, report(seed, program, warm, lines)


def with_long_loops(program: WarpProgram) -> WarpProgram:
    """Return the program with outer loops of many passes, so that a steady state forms."""
    instructions = tuple(
        dataclasses.replace(i, count=Count(LONG_LOOP)) if i.op == "LOOP" and i.level == 0 else i
        for i in program.instructions
    )
    return dataclasses.replace(program, instructions=instructions)


@pytest.mark.parametrize("seed", range(40))
def test_fast_forward_changes_no_count(seed: int) -> None:
    program, machine, options = random_case(seed)
    program = with_long_loops(program)
    alone = {**options, "mode": "sm"}
    plain = run("compiled", program, machine, alone)
    skipping = run("compiled", program, machine, alone, forward=True)
    lines = differences(plain, skipping)
    assert not lines, report(seed, program, alone, lines)


def test_fast_forward_skips_most_of_some_long_loops() -> None:
    """The test above means something only if periods are found."""
    shares = []
    for seed in range(40):
        program, machine, options = random_case(seed)
        result = run("compiled", with_long_loops(program), machine, {**options, "mode": "sm"}, forward=True)
        shares.append(result.fast_forwarded_cycles / result.cycles)
    assert max(shares) > 0.5


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_are_well_formed_and_survive_their_text(seed: int) -> None:
    program, machine, _ = random_case(seed)
    verify(program, machine)
    assert parse_program(print_program(program)) == program


def test_comparison_notices_one_changed_stall_count() -> None:
    program, machine, options = random_case(0)
    pc = next(role.entry for role in program.roles)
    first = program.instructions[pc]
    slower = dataclasses.replace(first, control=dataclasses.replace(first.control, stall=14))
    code = (*program.instructions[:pc], slower, *program.instructions[pc + 1 :])
    changed = dataclasses.replace(program, instructions=code)
    lines = differences(run("reference", program, machine, options), run("reference", changed, machine, options))
    assert any(line.startswith("stalls_pc[") for line in lines)


@pytest.mark.parametrize("seed", [0, 6, 30, 34])
def test_users_policy_means_the_same_in_both_engines(seed: int) -> None:
    program, machine, options = random_case(seed)

    def highest_in_even_cycles(ready: int, last: int, subpartition: int, cycle: int) -> int:
        lowest = 0
        while not (ready >> lowest) & 1:
            lowest += 1
        highest = lowest
        for bit in range(64):
            if (ready >> bit) & 1:
                highest = bit
        return highest if (cycle + subpartition) % 2 == 0 else lowest

    mine = {**options, "scheduler": highest_in_even_cycles}
    lines = differences(
        simulate(program, machine, engine="reference", **mine), simulate(program, machine, fast_forward=False, **mine)
    )
    assert not lines, lines
