"""The pass manager: runs the passes in order and shows the program after the ones that are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from heddle.errors import UserError, unknown_name
from heddle.ir.tile import TileProgram
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.passes.allocate_registers import AllocateRegisters
from heddle.passes.emit import Emit
from heddle.passes.insert_busy_bits import InsertBusyBits
from heddle.passes.layout_to_warps import LayoutToWarps
from heddle.passes.listing import listing
from heddle.passes.pipeline_fragments import PipelineFragments
from heddle.passes.place_pool import PlacePool
from heddle.passes.place_tensor_memory import PlaceTensorMemory
from heddle.passes.reuse import MarkReuse
from heddle.passes.schedule import Schedule
from heddle.passes.select import SelectInstructions
from heddle.passes.set_control import SetControl
from heddle.passes.verify_allocation import VerifyAllocation
from heddle.passes.verify_channels import VerifyChannels
from heddle.passes.verify_control import VerifyControl
from heddle.passes.verify_pool import VerifyPool


class Pass(Protocol):
    """A pass: a frozen dataclass whose `run` returns a new program."""

    def run(self, program: Any, machine: Machine, /) -> Any:
        """Transform the program."""


PASSES: tuple[tuple[str, Pass], ...] = (
    ("pipeline_fragments", PipelineFragments()),
    ("layout_to_warps", LayoutToWarps()),
    ("select_instructions", SelectInstructions()),
    ("schedule", Schedule()),
    ("allocate_registers", AllocateRegisters()),
    ("verify_allocation", VerifyAllocation()),
    ("reuse", MarkReuse()),
    ("set_control", SetControl()),
    ("verify_control", VerifyControl()),
    ("emit", Emit()),
)
"""The pipeline, by name, in order."""

LAST_WORD = VerifyChannels()
"""The last pass of mode fiber, which plays a schedule of the wefts; it changes nothing."""
FIBER_PASSES: tuple[tuple[str, Pass], ...] = (
    ("layout_to_warps", LayoutToWarps()),
    ("select_instructions", SelectInstructions()),
    ("schedule", Schedule()),
    ("allocate_registers", AllocateRegisters()),
    ("place_pool", PlacePool()),
    ("place_tensor_memory", PlaceTensorMemory()),
    ("verify_allocation", VerifyAllocation()),
    ("verify_pool", VerifyPool()),
    ("reuse", MarkReuse()),
    ("set_control", SetControl()),
    ("verify_control", VerifyControl()),
    ("insert_busy_bits", InsertBusyBits()),
    ("emit", Emit()),
    ("verify_channels", LAST_WORD),
)
"""The pipeline of kernels of mode fiber: channels keep the order in which the kernel accesses them."""


def without_last_word(mode: str) -> tuple[tuple[str, Pass], ...]:
    """Return the pipeline of a mode without the pass that plays: for programs whose time is only estimated."""
    return FIBER_PASSES[:-1] if mode == "fiber" else PASSES


def run_passes(
    program: TileProgram,
    machine: Machine,
    *,
    print_after: Iterable[str] = (),
    passes: Iterable[tuple[str, Pass]] | None = None,
    show: Callable[[str], object] | None = None,
) -> WarpProgram:
    """Lower a tile program.

    `passes`: by default those of the program's mode. `print_after`: names of passes, or "all", after which the program
    is shown (on standard error, or by `show`).
    Raises UserError where the kernel is wrong for the machine.
    """
    chosen = FIBER_PASSES if program.mode == "fiber" else PASSES
    pipeline = chosen if passes is None else tuple(passes)
    wanted = set(print_after)
    names = [name for name, _ in pipeline]
    for name in sorted(wanted - {"all"} - set(names)):
        raise unknown_name("pass", name, [*names, "all"])
    write = show or (lambda text: print(text, file=sys.stderr))
    current: Any = program
    for name, step in pipeline:
        current = step.run(current, machine)
        if wanted & {name, "all"}:
            write(f"// after {name}\n{listing(current)}")
    if not isinstance(current, WarpProgram):
        raise UserError("the pipeline does not end with emit; nothing was lowered")
    return current
