"""What FIBER-native decoding runs on machines with all of FIBER's features or some: configurations and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._limits import check_item_count
from heddle.kernels._native import NativeKernel, ProgramParams
from heddle.kernels._parameters import TileParameter
from heddle.kernels._rounding import ceil_div
from heddle.kernels.attention.decode.fiber import decode_split_fiber, decode_split_fiber_own
from heddle.kernels.attention.decode.fiber_literal import (
    EDGE_STEPS,
    decode_split_fiber_literal,
    other_bytes,
    stage_bytes,
)
from heddle.kernels.attention.decode.fiber_parts import ROWS
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.decode.split import split_items
from heddle.machine.spec import Machine

HEAD_DIMS = (64, 128)
"""With 256, O and Q leave no room for the parts in the window."""
LEAST_STAGES, MAX_STAGES = EDGE_STEPS + 1, 5
Exchange = Literal["registers", "results", "all"]
TILE = (
    TileParameter("stages", int, "steps of keys and values in shared memory", f"{LEAST_STAGES} or more, as it holds"),
)
"""What the fields of `FiberDecodeConfig` may be where keys pass through shared memory, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiberDecodeConfig:
    """A FIBER-thread takes `rows` query heads and `keys` keys at a time.

    `exchange`: what passes through shared memory: nothing ("registers"), the results of four wefts, or all, with
    `stages` steps of keys and values.
    """

    rows: int
    keys: int
    exchange: Exchange = "registers"
    stages: int = 0

    def label(self) -> str:
        """Return a short name, as in `fiber 16x128`."""
        through = {"registers": "", "results": " results shared", "all": f" all shared s{self.stages}"}
        return f"fiber {self.rows}x{self.keys}{through[self.exchange]}"


def candidates(problem: DecodeProblem, machine: Machine, exchange: Exchange = "registers") -> list[FiberDecodeConfig]:
    """Return the configurations, the one that is taken first. Raises UserError for what the kernel cannot run."""
    if problem.head_dim not in HEAD_DIMS:
        raise UserError(
            f"the FIBER-native decode_split takes head sizes {', '.join(map(str, HEAD_DIMS))}; got {problem.head_dim}",
            hint="leave --mode out",
        )
    most = _most_stages(problem, machine) if exchange == "all" else 0
    return [FiberDecodeConfig(rows=ROWS, keys=problem.keys, exchange=exchange, stages=most)]


def build(problem: DecodeProblem, config: FiberDecodeConfig, machine: Machine, params: ProgramParams) -> TileProgram:
    """Return the tile program, persistent on all SMs. Raises UserError for what the kernel cannot run."""
    first = candidates(problem, machine, config.exchange)[0]
    if (config.rows, config.keys) != (first.rows, first.keys):
        raise UserError(f"the FIBER-native decode_split has one tile, {ROWS} x {problem.keys}; got {config.label()}")
    least = min(LEAST_STAGES, first.stages)  # none where no keys pass through shared memory
    if not least <= config.stages <= first.stages:
        raise UserError(f"stages must be {least} to {first.stages}, as shared memory holds; got {config.stages}")
    count = problem.planes * ceil_div(problem.group, ROWS) * problem.num_splits
    check_item_count(f"decode_split cuts {problem.planes} heads", count)
    items, threads = split_items(problem, ROWS), min(machine.sms, count)
    if config.exchange == "all":
        return decode_split_fiber_literal.build("sm_80", problem, items, threads, config.stages, params=params)
    code = decode_split_fiber if config.exchange == "registers" else decode_split_fiber_own
    return code.build("sm_80", problem, items, threads, params=params)


def _most_stages(problem: DecodeProblem, machine: Machine) -> int:
    return min(MAX_STAGES, (machine.shared_memory_bytes_per_cta - other_bytes(problem)) // stage_bytes(problem))


LITERAL = NativeKernel(
    candidates=partial(candidates, exchange="all"), build=build, tile=TILE, needs=("dynamic_parallelism",)
)
OWN = NativeKernel(
    candidates=partial(candidates, exchange="results"),
    build=build,
    tile=(),
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
)
FIBER = NativeKernel(
    candidates=candidates,
    build=build,
    tile=(),
    needs=("dynamic_parallelism", "fine_scheduling", "register_sharing"),
    across=True,
    instead=(OWN, LITERAL),
)
"""The FIBER-native kernel of decoding, for all architectures; within a subpartition results meet in shared memory.

Without bits keys and values pass through it, too, and wefts share no registers.
"""
