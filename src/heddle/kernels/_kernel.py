"""What every kernel of the registry offers: named parameters, configurations to choose from, a program, a reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.tile import TileProgram
from heddle.kernels._composite import MODES, Composite
from heddle.kernels._native import NativeKernel, NativeKernels
from heddle.kernels._parameters import FORMS, Parameter, TileParameter, checked
from heddle.machine.spec import Machine

__all__ = ["FORMS", "MODES", "Kernel", "Parameter", "TileParameter"]

Config = TypeVar("Config")

EARLY_RELEASE = {
    "sm_80": "operands of HMMA come from registers: a stage is free when its fragments are loaded, as in the baseline",
    "sm_100": "tcgen05.commit arrives when the operands have been read: the baseline gives stages back early",
}
"""Why there is no control on an architecture."""


class Kernel(ABC, Generic[Config]):
    """A kernel of the registry.

    A configuration (tile, stages, ...) is the kernel's own frozen dataclass with a method `label()`. `tile`: its fields
    in the modes simt and cuda-native; `native`: the FIBER-native kernels, with configurations of their own.
    `shares_dram`: DRAM limits it, so that which configuration is fastest hangs on how all SMs share it.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    tile: tuple[TileParameter, ...]
    architectures: tuple[str, ...]
    native: NativeKernels
    shares_dram: bool = False

    def modes_on(self, architecture: str) -> tuple[str, ...]:
        """Return the modes in which the kernel runs on an architecture."""
        if architecture not in self.architectures:
            return ()
        return MODES if architecture in self.native else MODES[:2]

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        return checked(self.name, self.parameters, params)

    def composite(self, params: Mapping[str, Any]) -> Composite | None:
        """Return the sequence of launches that these parameters ask for, None where they ask for one launch."""
        return None

    @abstractmethod
    def problem(self, params: Mapping[str, Any]) -> Any:
        """Return the checked problem."""

    def candidates(self, machine: Machine, params: Mapping[str, Any], mode: str = "simt") -> list[Any]:
        """Return the configurations worth trying on a machine. Raises UserError if nothing can run the problem."""
        if mode == "fiber":
            return list(self.native_on(machine).candidates(self._native_problem(params), machine))
        return self.simt_candidates(machine, params)

    @abstractmethod
    def simt_candidates(self, machine: Machine, params: Mapping[str, Any]) -> list[Config]:
        """Return the configurations worth trying in the modes simt and cuda-native."""

    def library_candidates(self, library: str, machine: Machine, params: Mapping[str, Any]) -> list[Config]:
        """Return those that a library is known to have. Raises UserError where the library's are not listed."""
        raise UserError(f"no configurations of {library} are listed for {self.name}")

    def build(self, machine: Machine, params: Mapping[str, Any], config: Any = None, mode: str = "simt") -> TileProgram:
        """Return the tile program for a machine and a configuration, the first candidate by default."""
        if mode != "fiber":
            return self.simt_build(machine, params, config)
        native, problem = self.native_on(machine), self._native_problem(params)
        config = config or native.candidates(problem, machine)[0]
        return native.build(problem, config, machine, {**self.check(params), "config": config.label()})

    def _native_problem(self, params: Mapping[str, Any]) -> Any:
        """Return the checked problem of a FIBER-native kernel. Raises UserError for a choice among today's kernels."""
        values = self.check(params)
        for parameter in self.parameters:
            if parameter.today and values[parameter.name] != parameter.default:
                raise UserError(
                    f"{parameter.name}={values[parameter.name]} is a choice among today's kernels of {self.name}; its "
                    "FIBER-native ones have no such choice",
                    hint=f"leave {parameter.name} out, or the mode; `heddle compare` takes it for the baseline alone",
                )
        return self.problem(values)

    @abstractmethod
    def simt_build(self, machine: Machine, params: Mapping[str, Any], config: Config | None = None) -> TileProgram:
        """Return the tile program of the modes simt and cuda-native."""

    def early_release(self, architecture: str) -> tuple[list[Mapping[str, Any]], str]:
        """Return pins of the control, the fastest of which counts, or why there is none.

        The control is today's kernel whose stages of shared memory are given back when the matrix unit has read them.
        """
        return [], EARLY_RELEASE.get(architecture, f"{self.name} on {architecture} has no early release")

    @abstractmethod
    def reference(
        self, params: Mapping[str, Any], seed: int = 0
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float64]]]:
        """Return inputs and expected outputs by tensor name."""

    @abstractmethod
    def flops(self, params: Mapping[str, Any]) -> int:
        """Return the useful floating-point operations."""

    def native_on(self, machine: Machine) -> NativeKernel[Any, Any]:
        """Return the FIBER-native kernel for a machine with some features. Raises UserError if there is none."""
        if machine.architecture not in self.native:
            raise UserError(
                f"{self.name} has no FIBER-native kernel for {machine.architecture} ({machine.name})",
                hint=f"it has one for: {', '.join(self.native) or 'no architecture'}; "
                "the modes simt and cuda-native run today's kernel",
            )
        found = self.native[machine.architecture]
        for kernel in (found, *found.instead):
            if not kernel.lacks(machine):
                return kernel
        raise UserError(
            f"no FIBER-native kernel of {self.name} for {machine.architecture} runs without "
            f"{' and '.join(found.lacks(machine))} ({machine.name})"
        )
