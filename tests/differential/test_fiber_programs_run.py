"""Random FIBER programs and cuda-native ones are well formed, and the reference engine runs them to their end."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from random_fiber import cuda_native, random_fiber_case
from random_programs import random_case

from heddle.errors import UserError
from heddle.ir.warp import Instruction, WarpProgram
from heddle.ir.warp_text import parse_program, print_program
from heddle.ir.warp_verify import verify
from heddle.kernels.registry import find_kernel
from heddle.machine import Machine, machine
from heddle.pipeline import compile_kernel
from heddle.sim.reference import simulate_reference
from heddle.sim.result import SimResult, Stall

SAMPLE = range(35)
ALL = range(35, 500)


@functools.cache
def result_of(seed: int) -> SimResult:
    """Run one case."""
    program, m, options = random_fiber_case(seed)
    verify(program, m)
    return simulate_reference(program, m, **options)


def check(seed: int) -> None:
    """Run one case; no program may get stuck or leave a datum behind."""
    result = result_of(seed)
    assert result.warnings == []
    assert (result.stalls.sum(axis=0) == result.stalls_pc.sum(axis=0)).all()


@pytest.mark.parametrize("seed", SAMPLE)
def test_random_fiber_programs_end(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_many_random_fiber_programs_end(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(50))
def test_random_fiber_programs_survive_their_text(seed: int) -> None:
    program, _, _ = random_fiber_case(seed)
    assert parse_program(print_program(program)) == program


def test_the_programs_use_what_fiber_adds() -> None:
    """Every reason of FIBER, remote reads, shared reads, denials, groups and tensor memory occur in the sample."""
    seen: dict[str, int] = {}
    for seed in SAMPLE:
        program, _, _ = random_fiber_case(seed)
        result = result_of(seed)
        assert result.fiber is not None
        for reason in (Stall.POOL_EMPTY, Stall.POOL_FULL, Stall.READ_PORT, Stall.FIBER_SYNC, Stall.GMMA):
            seen[reason.name] = seen.get(reason.name, 0) + int(result.stalls[:, reason].sum())
        for name, count in dataclasses.asdict(result.fiber).items():
            seen[name] = seen.get(name, 0) + count
        for name in ("WMMA.TM", "WMMA"):
            seen[name] = seen.get(name, 0) + sum(i.op == name for i in program.instructions)
        seen["group"] = seen.get("group", 0) + sum(i.group for i in program.instructions)
        seen["base"] = seen.get("base", 0) + sum(role.base > 0 for role in program.roles)
    assert all(seen.values()), seen


def outcome(program: WarpProgram, m: Machine, options: dict[str, str]) -> tuple[object, ...]:
    """Return the stalls and warnings of a run, or that it got stuck."""
    try:
        result = simulate_reference(program, m, **options)
    except UserError as error:
        return (str(error).split(":")[0],)
    return result.cycles, result.stalls.tolist(), result.warnings


def needed(program: WarpProgram) -> int | None:
    """Return the pc of the first consumption that matters for certain; None if there is none.

    A SETFIBER with ALL empties the pool: what its role should have given back before it is given back then, and unless
    somebody writes it in between, nobody can tell.
    """
    entries = sorted(role.entry for role in program.roles)
    for pc in filter(lambda pc: consumes(program.instructions[pc]), range(len(program.instructions))):
        end = min([entry for entry in entries if entry > pc], default=len(program.instructions))
        if not any(instruction.all_scope for instruction in program.instructions[pc:end]):
            return pc
    return None


def with_bind(seeds: range) -> list[int]:
    """Return the cases that consume something that matters."""
    return [seed for seed in seeds if needed(random_fiber_case(seed)[0]) is not None]


def consumes(instruction: Instruction) -> bool:
    """Tell whether an instruction binds a consumption."""
    return instruction.bind is not None and bool(instruction.bind.consume)


@pytest.mark.parametrize("seed", with_bind(range(8)))
def test_a_consumption_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The bits matter: without such a consumption a program hangs, leaves a datum or issues at other cycles."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 3000)
    program, m, options = random_fiber_case(seed)
    pc = needed(program)
    assert pc is not None
    nop = dataclasses.replace(program.instructions[pc], op="NOP", bind=None)
    changed = (*program.instructions[:pc], nop, *program.instructions[pc + 1 :])
    without = dataclasses.replace(program, instructions=changed)
    assert outcome(program, m, options) != outcome(without, m, options)


@pytest.mark.parametrize("seed", range(12))
def test_random_simt_programs_run_in_mode_cuda_native(seed: int) -> None:
    """The same instructions issue, and one SETFIBER for each warp and CTA."""
    program, today, options = random_case(seed)
    ops = dict(today.ops) | {"SETFIBER": today.ops["NOP"]}
    m = dataclasses.replace(today, dynamic_parallelism=True, set_fiber_num_cycles=8, ops=ops)
    native = simulate_reference(cuda_native(program), m, **options)
    baseline = simulate_reference(program, m, **options)
    meetings = int(
        native.stalls_pc[[i.op == "SETFIBER" for i in cuda_native(program).instructions], Stall.SELECTED].sum()
    )
    assert meetings >= program.warps_per_cta - sum(role.warps for role in program.roles if role.leader_only)
    assert native.warp_instructions == baseline.warp_instructions + meetings


@pytest.mark.parametrize(
    ("gpu", "size", "limit"),
    [("a100", 128, 1.0), ("h100", 128, 1.0), pytest.param("h100", 512, 1.001, marks=pytest.mark.slow)],
)
def test_gemm_takes_the_cycles_of_one_set_fiber_num_more_in_mode_cuda_native(gpu: str, size: int, limit: float) -> None:
    """One CTA exactly that; a persistent kernel of sixteen tiles the same, below 0.1 %."""
    small = dataclasses.replace(machine(f"{gpu}+fiber"), sms=1)
    kernel = find_kernel("gemm")
    params = kernel.check({"m": size, "n": size, "k": 128})
    config = next(c for c in kernel.candidates(small, params) if c.cluster == 1)
    program = compile_kernel("gemm", small, params, config)
    baseline, native = (
        simulate_reference(p, small, mode="sm", l2_state="cold").cycles for p in (program, cuda_native(program))
    )
    assert native - baseline == small.set_fiber_num_cycles
    assert limit == 1.0 or native < limit * baseline
