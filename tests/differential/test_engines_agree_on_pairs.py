"""Do both engines agree where the CTAs of pairs copy into each other's shared memory?"""

from __future__ import annotations

import pytest
from random_programs import random_case
from test_engines_agree import run, with_long_loops
from test_event_logs_agree import events

from agreement import differences, report
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.sim import simulate
from heddle.sim.reference import simulate_reference

EXCHANGES = 2
SAMPLE = range(5)
ALL = range(5, 205)


def check(seed: int, engine: str = "compiled") -> None:
    """Compare an engine with the reference on one random case with exchanges."""
    program, machine, options = random_case(seed, EXCHANGES)
    lines = differences(run("reference", program, machine, options), run(engine, program, machine, options))
    assert not lines, report(seed, program, options, lines)


@pytest.mark.parametrize("seed", SAMPLE)
def test_engines_agree_on_exchanges(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_engines_agree_on_two_hundred_programs_with_exchanges(seed: int) -> None:
    check(seed)


def test_engine_without_compilation_agrees_on_exchanges() -> None:
    check(1, engine="python")


@pytest.mark.parametrize("seed", SAMPLE)
def test_fast_forward_over_exchanges_changes_no_count(seed: int) -> None:
    program, machine, options = random_case(seed, EXCHANGES)
    program, alone = with_long_loops(program), {**options, "mode": "sm"}
    plain = run("compiled", program, machine, alone)
    lines = differences(plain, run("compiled", program, machine, alone, forward=True))
    assert not lines, report(seed, program, alone, lines)


@pytest.mark.parametrize("seed", range(2))
def test_logs_of_exchanges_hold_the_same_events(seed: int) -> None:
    program, machine, options = random_case(seed, EXCHANGES)
    expected = events(simulate_reference(program, machine, log=True, **options).log)
    assert expected == events(simulate(program, machine, log="all", fast_forward=False, **options).log)


def test_programs_with_exchanges_are_well_formed_and_survive_their_text() -> None:
    found = 0
    for seed in SAMPLE:
        program, machine, _ = random_case(seed, EXCHANGES)
        verify(program, machine)
        assert parse_program(print_program(program)) == program
        found += any(row.op == "UBLKCP.S.S" for row in program.instructions)
    assert found > len(SAMPLE) // 2
