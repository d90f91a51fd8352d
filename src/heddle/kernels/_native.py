"""What the registry needs of a FIBER-native kernel: its configurations for a problem, and its tile program.

A package of kernels names its FIBER-native kernels in a table by architecture (`kernels/gemm/native.py`,
`kernels/attention/native.py`); from it follow the modes that `heddle kernels` lists, and `--mode fiber` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from heddle.ir.tile import TileProgram
from heddle.kernels._parameters import TileParameter
from heddle.machine.spec import Machine

Problem = TypeVar("Problem")
Config = TypeVar("Config")
ProgramParams = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeKernel(Generic[Problem, Config]):
    """A FIBER-native kernel for one generation; a configuration is a frozen dataclass with a method `label()`.

    `candidates(problem, machine)`: configurations worth trying, never none; raises UserError with the rule where the
    kernel cannot run the problem. `build(problem, config, machine, params)`: the tile program, of mode fiber, with
    these `params`; raises UserError where the configuration breaks a rule. `tile`: its fields, for people. `needs`:
    features of the machine without which it cannot run; `across`: its wefts read registers of other subpartitions;
    `instead`: kernels for machines that lack some of them, the ones that need most first.
    """

    candidates: Callable[[Problem, Machine], Sequence[Config]]
    build: Callable[[Problem, Config, Machine, ProgramParams], TileProgram]
    tile: tuple[TileParameter, ...]
    needs: tuple[str, ...] = ("dynamic_parallelism", "fine_scheduling")
    across: bool = False
    instead: tuple[NativeKernel[Any, Any], ...] = ()

    def lacks(self, machine: Machine) -> list[str]:
        """Return the features that the kernel needs and the machine has not."""
        missing = [feature for feature in self.needs if not getattr(machine, feature)]
        scope = ["registers shared by the whole SM"] if self.across and machine.sharing_scope != "sm" else []
        return missing or scope


NativeKernels = Mapping[str, NativeKernel[Any, Any]]
"""FIBER-native kernels by architecture."""
