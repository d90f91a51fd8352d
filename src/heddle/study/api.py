"""The Python interface behind `heddle.run`, `check`, `compare` and `compile`: the commands, with Python values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from heddle import pipeline
from heddle.errors import UserError, unknown_name
from heddle.ir.warp import WarpProgram
from heddle.kernels import MODES
from heddle.lang import KernelFunction
from heddle.machine.load import machine as load_machine
from heddle.machine.load import with_fiber
from heddle.machine.spec import Machine
from heddle.study import checks, runs
from heddle.study import compare as comparisons
from heddle.study.results import Result


def run(
    kernel: str,
    gpu: str | Machine,
    *,
    mode: str = "simt",
    clock_mhz: float | None = None,
    l2_state: str = "warm",
    simulation: str = "auto",
    profile: bool = False,
    oracle: Collection[str] = (),
    off: Collection[str] = (),
    **params: Any,
) -> Result:
    """Simulate a kernel of the registry and return its result.

    `gpu`: a name, a TOML file or a machine. `params`: the kernel's parameters, and fields of its tile configuration to
    pin them. Without `clock_mhz` the clock model decides; `l2_state` "warm" stands for a back-to-back loop. `oracle`
    (dp, fs, rs) or `off` (order, barriers, data): what is idealised. Raises UserError.
    """
    asked = runs.request(
        kernel, gpu, mode=mode, clock_mhz=clock_mhz, l2_state=l2_state, simulation=simulation, profile=profile,
        oracle=oracle, off=off, texts=params,
    )  # fmt: skip
    return Result(runs.run(asked))


def check(kernel: str, gpu: str | Machine, *, mode: str = "simt", seed: int = 0, **params: Any) -> Result:
    """Execute a kernel with seeded numbers in the simulated order; `passed`, `relative_error`, `hazards`."""
    asked = runs.request(kernel, gpu, mode=mode, texts=checks.check_sizes(kernel, params))
    return Result(checks.check(asked, seed=seed))


def compare(
    kernel: str,
    gpu: str | Machine,
    *,
    ablate: bool = False,
    oracle: bool = False,
    clock_mhz: float | None = None,
    l2_state: str = "warm",
    jobs: int | None = 1,
    **params: Any,
) -> Result:
    """Compare today's kernel, the control and the FIBER-native kernel; `speedup` is None where there is none.

    With `jobs` above 1 the calling script needs the guard `if __name__ == "__main__"`, as its processes import it.

    Raises UserError where today's kernel cannot run the problem.
    """
    row = comparisons.compare(
        kernel, gpu, ablate=ablate, oracle=oracle, clock_mhz=clock_mhz, l2_state=l2_state, jobs=jobs, texts=params
    )  # fmt: skip
    return Result(row)


def compile(kernel: str | KernelFunction, machine: str | Machine, *, mode: str = "simt", **params: Any) -> WarpProgram:
    """Compile a kernel of the registry, or a function written with `heddle.lang`, to a warp program.

    For a function, `params` are its own arguments, and `mode` is "fiber" if it uses pool tensors. Raises UserError with
    the line of the kernel that is wrong.
    """
    if isinstance(kernel, str):
        return runs.compiled(runs.request(kernel, machine, mode=mode, texts=params))
    if not isinstance(kernel, KernelFunction):
        raise UserError(
            f"cannot compile {type(kernel).__name__}", hint="give a name of `heddle kernels` or a function with @kernel"
        )
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    device = load_machine(machine) if isinstance(machine, str) else machine
    tiles = kernel.build(device.architecture, **params)
    if (tiles.mode == "fiber") != (mode == "fiber"):
        raise UserError(f"{tiles.name} is written for mode {tiles.mode}, not {mode}")
    return pipeline.warp_program(tiles, device if mode == "simt" else with_fiber(device), mode)
