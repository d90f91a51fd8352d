"""Mutants of the backward pass by pairs of CTAs: one wait, arrival, meeting or fence less."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from heddle import interp
from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Instruction, WarpProgram
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.machine import machine
from heddle.pipeline import compile_kernel

SIZES: dict[str, Any] = {"batch": 1, "heads_q": 1, "seqlen_q": 384, "seqlen_kv": 256}
"""One pair, whose loop over blocks runs twice."""
Missing = tuple[str, str, str]
"""Role, instruction and barrier."""
ORDERING = (
    Unit.MBARRIER_WAIT,
    Unit.MBARRIER_ARRIVE,
    Unit.TCGEN05_COMMIT,
    Unit.BARRIER_SYNC,
    Unit.CLUSTER_SYNC,
    Unit.BULK_WAIT,
    Unit.BULK_PEER,
)


def program() -> WarpProgram:
    """The compiled kernel."""
    return compile_kernel("attention_bwd", machine("b200"), SIZES)


def mutants(of: WarpProgram) -> Iterator[tuple[Missing, WarpProgram]]:
    """Yield all mutants, each with what is missing; rings step as before."""
    for pc, row in enumerate(of.instructions):
        if OPCODES[row.op].unit in ORDERING or row.op == "FENCE":
            nothing = Instruction(op="NOP", control=row.control, source=row.source, advance=row.advance)
            rows = (*of.instructions[:pc], nothing, *of.instructions[pc + 1 :])
            role = max((role for role in of.roles if role.entry <= pc), key=lambda role: role.entry)
            missing = (role.name, row.op, row.barrier.name if row.barrier is not None else "")
            yield missing, dataclasses.replace(of, instructions=rows)


def killed(mutant: WarpProgram) -> bool:
    """Return whether a run shows a mutant: it does not end, or a hazard or wrong numbers are reported."""
    inputs, outputs = (
        {name: array for name, array in arrays.items() if name in {tensor.name for tensor in mutant.tensors}}
        for arrays in ATTENTION_BWD.reference(SIZES)
    )
    try:
        return not interp.check(mutant, machine("b200"), inputs, outputs).ok
    except UserError:
        return True
