"""Which pipe an instruction belongs to, and how busy each pipe is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.result import SimResult, Stall

_UNIT_PIPES = {
    Unit.WGMMA: "tensor",
    Unit.TCGEN05_MMA: "tensor",
    Unit.WEFT_MMA: "tensor",
    Unit.SHARED: "lsu",
    Unit.GLOBAL: "lsu",
    Unit.BULK_LOAD: "tma",
    Unit.BULK_STORE: "tma",
    Unit.BULK_PEER: "tma",
    Unit.TMEM_LOAD: "tmem",
    Unit.TMEM_STORE: "tmem",
}
# Units with a server of their own, or none: their instructions are counted under what they do, not under a math pipe.
_CONTROL = "control"
COMMON_PIPES = {"fp32": "fma", "int": "alu", "sfu": "sfu", "lsu": "lsu", "tma": "tma"}
"""Names under which results of every GPU give a pipe, and the machine's name for it."""
MATRIX_UNITS = (Unit.WGMMA, Unit.TCGEN05_MMA, Unit.WEFT_MMA)


def is_matrix(instruction: Instruction) -> bool:
    """Tell whether the instruction multiplies matrices (HMMA, HGMMA, UTCHMMA and their fp8 forms, WMMA)."""
    return instruction.op == "HMMA" or OPCODES[instruction.op].unit in MATRIX_UNITS


def pipe_of(instruction: Instruction, machine: Machine) -> str:
    """Return the pipe of an instruction: that of the machine's table, else the server of its unit, else "control"."""
    unit = OPCODES[instruction.op].unit
    if unit in _UNIT_PIPES:
        return _UNIT_PIPES[unit]
    if not any(key == instruction.op or key.startswith(f"{instruction.op}.") for key in machine.ops):
        return _CONTROL
    return machine.op_timing(
        instruction.op, form=instruction.form, dtype=instruction.dtype, shape=instruction.shape
    ).pipe


def issues_by_pc(result: SimResult) -> NDArray[np.int64]:
    """Return how often each instruction was issued on the simulated SMs."""
    issues: NDArray[np.int64] = result.stalls_pc[:, Stall.SELECTED]
    return issues


def instructions_by_pipe(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, int]:
    """Return issued warp instructions of the simulated SMs by pipe, pipes in alphabetical order."""
    counts: dict[str, int] = {}
    for instruction, issued in zip(program.instructions, issues_by_pc(result), strict=True):
        if issued:
            pipe = pipe_of(instruction, machine)
            counts[pipe] = counts.get(pipe, 0) + int(issued)
    return dict(sorted(counts.items()))


def pipe_utilization(result: SimResult) -> dict[str, float]:
    """Return the busy share of every pipe over the whole run; a share above one is a bug of the engine."""
    cycles = max(1, result.cycles)
    shares = {
        name: busy / (cycles * result.pipe_instances[name])
        for name, busy in sorted(result.pipe_busy.items())
        if result.pipe_instances.get(name)
    }
    shares["tensor"] = result.tensor_busy_cycles / (cycles * max(1, result.simulated_sms))
    for name, share in shares.items():
        if share > 1.0 + 1.0 / cycles:  # the last operation may end in the middle of the last cycle
            raise InternalError(f"pipe {name!r} is busy {share:.6f} of the time; at most 1 is possible")
    return {name: min(1.0, share) for name, share in sorted(shares.items())}


def pipes_row(result: SimResult) -> dict[str, float]:
    """Return the busy share of every pipe, and of the common ones by their common names: 0 where a GPU has none."""
    shares = pipe_utilization(result)
    return dict(sorted({**shares, **{name: shares.get(own, 0.0) for name, own in COMMON_PIPES.items()}}.items()))


def matrix_dtype(program: WarpProgram) -> str:
    """Return the operand type of the first matrix instruction, or an empty string if the program has none."""
    return next((i.dtype for i in program.instructions if is_matrix(i)), "")
