"""Check a kernel: run its arithmetic in the engine's order, compare with a reference, and report hazards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError, unknown_name
from heddle.interp._arithmetic import Values
from heddle.interp._arrays import Box, TileArray
from heddle.interp._effects import Effects
from heddle.interp._events import ordered_events
from heddle.interp._replay import Replay
from heddle.interp.hazards import Hazard, HazardList
from heddle.interp.versions import version_hazards
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.warp import DataObject, Tensor, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.result import SimResult

TOLERANCES: Mapping[str, float] = {
    "fp16": 1e-3,
    "bf16": 1e-2,
    "fp8_e4m3": 5e-2,
    "fp8_e5m2": 5e-2,
    "tf32": 1e-3,
    "fp32": 1e-3,
}
"""Allowed relative error of the norm against float64, by element type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Values that a run computed: every output and workspace tensor, what was never stored (NaN there), and hazards."""

    tensors: Mapping[str, Values]
    stored: Mapping[str, NDArray[np.bool_]]
    hazards: tuple[Hazard, ...]
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """Error of one output: norm of the difference over the norm of the reference, and the largest single difference."""

    tensor: str
    relative_error: float
    max_abs_error: float
    worst_index: tuple[int, ...]
    tolerance: float
    missing: int  # elements that were never stored

    @property
    def ok(self) -> bool:
        """Within tolerance and complete."""
        return self.missing == 0 and self.relative_error <= self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found; `ok` needs right numbers and no hazard."""

    program: str
    errors: tuple[TensorError, ...]
    hazards: tuple[Hazard, ...]
    cycles: int
    events: int
    tensors: Mapping[str, Values] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Right numbers and no hazards."""
        return not self.hazards and all(error.ok for error in self.errors)

    @property
    def relative_error(self) -> float:
        """Largest relative error of an output."""
        return max((error.relative_error for error in self.errors), default=0.0)

    @property
    def max_abs_error(self) -> float:
        """Largest difference of a single element."""
        return max((error.max_abs_error for error in self.errors), default=0.0)

    def lines(self) -> list[str]:
        """The report in words, one line a finding."""
        out = []
        for error in self.errors:
            verdict = "ok" if error.ok else "WRONG"
            out.append(
                f"{error.tensor}: relative error {error.relative_error:.2e} (tolerance {error.tolerance:.0e}),"
                f" largest difference {error.max_abs_error:.3g} at {error.worst_index}: {verdict}"
            )
            if error.missing:
                out.append(f"{error.tensor}: {error.missing} elements were never stored")
        return [*out, *(str(hazard) for hazard in self.hazards)]


def execute(program: WarpProgram, result: SimResult, inputs: Mapping[str, NDArray[Any]]) -> Execution:
    """Execute a program's effects in the order of `result.log`.

    `result` needs the full log of all CTAs (mode "chip", log="all", no fast-forward). `inputs`: arrays by tensor name,
    of the tensor's shape; they are rounded to its type. An output may be given too: its content before the kernel.
    """
    if result.log is None or result.repeats:
        raise UserError(
            "executing a program needs the log of every cycle",
            hint='simulate with mode="chip", log="all" and fast_forward=False',
        )
    tensors = {t.name: _tensor_array(program, t, inputs) for t in program.tensors}
    for name in inputs:
        if name not in tensors:
            raise unknown_name("tensor", name, tensors)
    hazards = HazardList(program)
    events = ordered_events(result.log, program)
    Replay(program, Effects(program, tensors, hazards), result.log).run(events)
    found = [*hazards.found.values(), *version_hazards(program, result.log)]
    outputs = {t.name: tensors[t.name] for t in program.tensors if t.role != "input"}
    return Execution(
        tensors={name: _plain(array.values) for name, array in outputs.items()},
        stored={name: _plain(array.written) for name, array in outputs.items()},
        hazards=tuple(sorted(found, key=lambda hazard: hazard.cycle)),
        events=int(events.size),
    )


def check(
    program: WarpProgram,
    machine: Machine,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    tolerance: float | None = None,
    *,
    result: SimResult | None = None,
) -> CheckReport:
    """Simulate every CTA of a program (unless `result` is given), execute it and compare with `expected` (float64).

    `tolerance` is the allowed relative error of the norm; by default that of the output's element type (`TOLERANCES`),
    or of inputs of 8 bits, or narrower than the output, as what is computed between two products is rounded to their
    type.
    """
    if result is None:
        result = _simulate(program, machine)
    done = execute(program, result, inputs)
    dtypes = {t.name: t.dtype for t in program.tensors}
    given = {t.dtype for t in program.tensors if t.role == "input"}
    errors = []
    for name, reference in expected.items():
        if name not in done.tensors:
            raise unknown_name("output tensor", name, done.tensors)
        allowed = _allowed(dtypes[name], given) if tolerance is None else tolerance
        errors.append(compare(name, done.tensors[name], reference, allowed, done.stored[name]))
    return CheckReport(
        program=program.name,
        errors=tuple(errors),
        hazards=done.hazards,
        cycles=result.cycles,
        events=done.events,
        tensors=done.tensors,
    )


def _allowed(output: str, inputs: set[str]) -> float:
    """The tolerance of an output of a type, given the types of the inputs."""
    narrow = [dtype for dtype in inputs if dtype_bytes(dtype) < max(dtype_bytes(output), 2)]
    return max(TOLERANCES[output], *(TOLERANCES.get(dtype, 0.0) for dtype in narrow), 0.0)


def compare(
    name: str,
    got: NDArray[Any],
    reference: NDArray[Any],
    tolerance: float,
    stored: NDArray[np.bool_] | None = None,
) -> TensorError:
    """Compare values with a float64 reference of the same number of elements."""
    want = np.asarray(reference, np.float64).reshape(got.shape)
    difference = np.abs(np.asarray(got, np.float64) - want)
    difference[~np.isfinite(difference)] = np.inf
    norm = float(np.linalg.norm(want)) or 1.0
    worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
    return TensorError(
        tensor=name,
        relative_error=float(np.linalg.norm(difference)) / norm,
        max_abs_error=float(difference.max()),
        worst_index=tuple(int(index) for index in worst),
        tolerance=tolerance,
        missing=0 if stored is None else int(stored.size - np.count_nonzero(stored)),
    )


def _simulate(program: WarpProgram, machine: Machine) -> SimResult:
    from heddle import sim  # the engine is needed only when no result is given

    result: SimResult = sim.simulate(program, machine, mode="chip", log="all", fast_forward=False)
    return result


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Drop the plane dimension of a tensor that has only one."""
    return values[0] if values.shape[0] == 1 else values


def _tensor_array(program: WarpProgram, tensor: Tensor, inputs: Mapping[str, NDArray[Any]]) -> TileArray:
    """Make the array of a global tensor: given values rounded, or zeros where the kernel adds to it, or NaN."""
    declared = next((o for o in program.objects if o.name == tensor.name), None)
    shape = tuple(declared.shape) if declared else tensor.shape[-3:]
    array = TileArray(
        DataObject(name=tensor.name, space="global", shape=shape, dtype=tensor.dtype, scope="global"), tensor.name
    )
    planes, rows, cols = array.values.shape
    if tensor.name in inputs:
        given = np.asarray(inputs[tensor.name])
        if given.size != array.values.size:
            raise UserError(f"tensor {tensor.name!r} has shape {tensor.shape}, the array given has {given.shape}")
        given = given.astype(np.float32).reshape(array.values.shape)
    elif tensor.role == "input":
        raise UserError(f"no values for input tensor {tensor.name!r}", hint="pass an array under that name")
    elif _is_added_to(program, tensor.name):
        given = np.zeros(array.values.shape, np.float32)
    else:
        return array
    for plane in range(planes):
        array.write(Box(plane, 0, rows, 0, cols), given[plane])
    return array


def _is_added_to(program: WarpProgram, tensor: str) -> bool:
    return any(effect.kind == "reduce" and effect.writes[0].object == tensor for effect in program.effects)
