"""Are reads of shared memory and registers counted as the engine moves them?"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from heddle import pipeline
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import WarpProgram
from heddle.kernels.registry import KERNELS
from heddle.machine import machine
from heddle.metrics.supply import supply
from heddle.sim.launch_work import role_code
from heddle.sim.result import SimResult, Stall

PARAMS = {"m": 256, "n": 256, "k": 256, "dtype": "fp16", "epilogue": "none"}
RUNS = [("a100", "simt"), ("h100", "simt"), ("b200", "simt"), ("a100", "fiber"), ("h100", "fiber"), ("b200", "fiber")]
OTHER = {"STS", "STSM", "LDGSTS", "UTMALDG", "UTMASTG"}
"""Instructions that move bytes of shared memory otherwise."""


@cache
def ran(gpu: str, mode: str) -> tuple[SimResult, WarpProgram]:
    """A small GEMM on the whole chip."""
    target = machine(gpu if mode == "simt" else f"{gpu}+fiber")
    program = pipeline.compile_kernel("gemm", target, PARAMS, mode=mode)
    return pipeline.simulate_program(program, target, clock_mhz=1000.0, simulation="chip"), program


def idle_for_one(program: WarpProgram, pc: int) -> int:
    """Return of how many issues of an instruction one has an effect."""
    [warps] = [role.warps for role in program.roles if pc in range(*role_code(program, role))]
    return {"warp": 1, "group": 4, "role": warps}[program.instructions[pc].by]


@pytest.mark.parametrize(("gpu", "mode"), RUNS)
def test_reads_and_other_accesses_are_what_shared_memory_moves(gpu: str, mode: str) -> None:
    result, program = ran(gpu, mode)
    read = supply(result, program, machine(gpu if mode == "simt" else f"{gpu}+fiber"))["smem_read_bytes"]
    others = 0
    for pc, instruction in enumerate(program.instructions):
        if instruction.op in OTHER:
            receivers = instruction.ctas if instruction.op == "UTMALDG" else 1
            issues = int(result.stalls_pc[pc, Stall.SELECTED]) // idle_for_one(program, pc)
            others += issues * instruction.bytes * receivers
    assert read + others == result.shared_bytes


def only(unit: Unit, gpu: str, mode: str) -> tuple[int, float]:
    """Return the issues of the instructions of a unit, and the registers that each reads, if nothing else issues."""
    result, program = ran(gpu, mode)
    stalls = np.zeros_like(result.stalls_pc)
    for pc, instruction in enumerate(program.instructions):
        if OPCODES[instruction.op].unit is unit and instruction.shape is not None:
            stalls[pc] = result.stalls_pc[pc]
    target = machine(gpu if mode == "simt" else f"{gpu}+fiber")
    found = supply(dataclasses.replace(result, stalls_pc=stalls), program, target)["register_read_bytes"]
    issues = int(stalls[:, Stall.SELECTED].sum())
    return issues, found / 128 / issues


def test_mma_sync_reads_a_b_and_accumulators_less_what_the_operand_cache_holds() -> None:
    issues, registers = only(Unit.VARIABLE, "a100", "simt")
    assert issues > 0
    assert 4 + 4 <= registers <= 4 + 2 + 4


def test_wgmma_with_operands_in_shared_memory_reads_its_accumulators() -> None:
    issues, registers = only(Unit.WGMMA, "h100", "simt")
    program = ran("h100", "simt")[1]
    [accumulator] = {row.dst.count for row in program.instructions if row.op == "HGMMA" and row.dst}
    assert issues > 0
    assert registers == accumulator


def test_products_into_tensor_memory_read_no_accumulators() -> None:
    assert only(Unit.TCGEN05_MMA, "b200", "simt")[1] == 0


@pytest.mark.parametrize(("gpu", "mode"), RUNS)
def test_a_port_is_busy_a_cycle_a_cycle_at_most(gpu: str, mode: str) -> None:
    result, program = ran(gpu, mode)
    target = machine(gpu if mode == "simt" else f"{gpu}+fiber")
    cycles = supply(result, program, target)["read_port_cycles"]
    assert 0 < cycles < result.sm_cycles * target.subpartitions


def test_a_group_of_wefts_reads_b_once() -> None:
    issues, registers = only(Unit.WEFT_MMA, "a100", "fiber")
    program = ran("a100", "fiber")[1]
    products = [row for row in program.instructions if row.op == "WMMA"]
    shares = {row.src[0].count + row.src[1].count / 4 + (row.dst.count if row.dst else 0) for row in products}
    assert issues > 0
    assert all(row.group for row in products)
    assert max(shares) == pytest.approx(registers)


def test_shared_registers_take_less_of_shared_memory_than_private_ones() -> None:
    """Of a tile of 128 x 128 each of four warps loads half of A and of B; the wefts of FIBER load all of it once."""
    target, params = machine("a100+fiber"), {**PARAMS, "m": 128, "n": 128, "k": 512}
    read = {}
    for mode, label in (("simt", "multistage 128x128x32"), ("fiber", "fiber 128x128")):
        config = next(c for c in KERNELS["gemm"].candidates(target, params, mode) if c.label().startswith(label))
        program = pipeline.compile_kernel("gemm", target, params, config, mode)
        result = pipeline.simulate_program(program, target, clock_mhz=1000.0, simulation="chip")
        read[mode] = supply(result, program, target)["smem_read_bytes"]
    assert read["simt"] == 2 * read["fiber"]
