"""Which simulation answers by default: the whole chip, or one group of SMs?"""

import dataclasses

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.pipeline import compile_kernel
from heddle.sim import launch_mode, simulate
from heddle.sim.launch_work import warp_instructions
from memory_cases import CLOCK_MHZ, machine
from memory_ring_gemm import ring_gemm

ROUNDS = launch_mode.FEW_ROUNDS


def ring(rounds: int, k_steps: int) -> WarpProgram:
    """Return a program of `rounds` items for each of 132 SMs."""
    return ring_gemm(m_tiles=rounds, n_tiles=132, k_steps=k_steps, grid=132)


def steps(instructions: int, rounds: int) -> int:
    """Return the loop turns that make a program of about so many warp instructions."""
    one, two = (warp_instructions(ring(rounds, k_steps)) for k_steps in (1, 2))
    return max(1, (instructions - one) // (two - one))


@pytest.mark.parametrize(
    ("rounds", "instructions", "mode"),
    [
        (1, launch_mode.AFFORDABLE * 0.9, "chip"),
        (1, launch_mode.AFFORDABLE * 1.1, "representative"),
        (ROUNDS - 1, launch_mode.CHEAP * 1.1, "chip"),
        (ROUNDS, launch_mode.CHEAP * 1.1, "representative"),
        (ROUNDS, launch_mode.CHEAP * 0.9, "chip"),
    ],
)
def test_rounds_and_cost_decide(rounds: int, instructions: float, mode: str) -> None:
    program = ring(rounds, steps(int(instructions), rounds))
    assert launch_mode.default_mode(program, machine("h100")) == mode


def test_an_instruction_of_mode_fiber_costs_more() -> None:
    program = ring(1, 1)
    assert launch_mode.cost(dataclasses.replace(program, mode="fiber")) > launch_mode.cost(program)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_the_estimated_instructions_are_those_of_the_chip_within_a_factor_of_two(gpu: str) -> None:
    m = machine(gpu)
    program = compile_kernel("gemm", m, {"m": 512, "n": 512, "k": 512, "dtype": "fp16"})
    simulated = simulate(program, m, mode="chip", clock_mhz=CLOCK_MHZ).warp_instructions
    assert simulated <= warp_instructions(program) <= 2 * simulated


def unequal(k_steps: int) -> WarpProgram:
    """Return a program whose last item has a longer loop than the others, as causal attention has."""
    program = ring(1, k_steps)
    code = [
        dataclasses.replace(i, count=dataclasses.replace(i.count, value=0, attribute="turns")) if i.op == "LOOP" else i
        for i in program.instructions
    ]
    turns = np.full(len(program.work.items), k_steps)
    turns[-1] += 1
    items = np.column_stack([program.work.items, turns])
    work = dataclasses.replace(program.work, attributes=(*program.work.attributes, "turns"), items=items)
    return dataclasses.replace(program, instructions=tuple(code), work=work)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a limit for items of different length that a small program passes."""
    monkeypatch.setattr(launch_mode, "MOST_OF_UNEQUAL", 10_000)
    return 10_000


def test_a_group_that_takes_too_long_is_refused_before_it_is_simulated(little: int) -> None:
    needed = steps(little * 132, 1)
    launch_mode.check_group(unequal(needed // 2), machine("h100"))
    with pytest.raises(UserError, match="different length"):
        launch_mode.check_group(unequal(needed * 2), machine("h100"))


def test_items_of_one_length_repeat_and_are_not_refused(little: int) -> None:
    launch_mode.check_group(ring(1, steps(little * 132, 1) * 2), machine("h100"))
