"""Figure 1: how many lines a kernel takes in each generation, counted on the kernels of this project.

The rule: the files whose lines wrote an operation of the kernel's tile program (each operation knows its line), each
file whole. So a file that only chooses tiles or checks sizes does not count, and one that several kernels use counts
for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import heddle
from heddle.errors import UserError
from heddle.ir.tile import Op, TileProgram
from heddle.ir.tile_math import MmaCommit, MmaWait
from heddle.ir.tile_moves import CpAsyncCommit, CpAsyncWait, TmaStoreWait
from heddle.ir.tile_sync import (
    Arrive,
    Await,
    ClusterSync,
    Expect,
    SetBusyBit,
    SetFiberNum,
    Signal,
    Sync,
    TakeToken,
    Wait,
)
from heddle.kernels.registry import KERNELS
from heddle.machine.load import machine as load_machine
from heddle.machine.load import with_fiber
from heddle.study.exhibits._exhibit import Answer, Exhibit
from heddle.study.exhibits.code_lines import Lines, count
from heddle.study.exhibits.originals import originals
from heddle.study.pool import Progress

GPUS = ("a100", "h100", "b200")
MODES = ("simt", "fiber")
ROOT = Path(heddle.__file__).parent
SYNCHRONISATION = (
    *(Arrive, Await, ClusterSync, CpAsyncCommit, CpAsyncWait, Expect, MmaCommit, MmaWait),
    *(SetBusyBit, SetFiberNum, Signal, Sync, TakeToken, TmaStoreWait, Wait),
)
"""Operations that order others: barriers, groups of copies and products, bits."""


def kernel_lines(kernel: str, gpu: str, mode: str) -> dict[str, Any] | None:
    """Return the row of a kernel with its default sizes and first configuration; None where there is no such kernel."""
    found, machine = KERNELS[kernel], load_machine(gpu)
    if mode not in found.modes_on(machine.architecture):
        return None
    try:
        program = found.build(with_fiber(machine) if mode == "fiber" else machine, {}, mode=mode)
    except UserError:  # its default sizes are none that this mode runs
        return None
    operations = list(_operations(program))
    files = sorted({file for op in operations if op.where and (file := Path(op.where.file)).is_relative_to(ROOT)})
    lines = sum((count(file.read_text(encoding="utf-8")) for file in files), Lines(0, 0))
    places = {(op.where.file, op.where.line) for op in operations if op.where and isinstance(op, SYNCHRONISATION)}
    return {
        "kernel": kernel,
        "gpu": gpu,
        "mode": mode,
        "logical_lines": lines.logical,
        "code_lines": lines.code,
        "synchronisation_lines": len(places),
        "roles": len(program.roles),
        "files": [file.relative_to(ROOT).as_posix() for file in files],
    }


def _operations(program: TileProgram) -> Iterator[Op]:
    for role in program.roles:
        yield from _inside(role.body)


def _inside(body: Iterable[Op]) -> Iterator[Op]:
    for op in body:
        yield op
        yield from _inside(getattr(op, "body", ()))


def _answer(jobs: int | None, progress: Progress | None) -> Answer:
    rows = [kernel_lines(kernel, gpu, mode) for kernel in KERNELS for mode in MODES for gpu in GPUS]
    return {"rows": [row for row in rows if row is not None], "originals": originals()}


FIG1 = Exhibit(name="fig1", title="Lines of code", where="Fig. 1", answer=_answer)
