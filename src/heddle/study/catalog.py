"""The machines and kernels that exist, as rows for `heddle machines` and `heddle kernels`."""

from __future__ import annotations

import dataclasses
from typing import Any

from heddle.kernels import MODES, Composite
from heddle.kernels._parameters import FORMS, TileParameter
from heddle.kernels.registry import entries, find_entry
from heddle.machine import Machine, available, describe, machine


def machine_rows() -> list[dict[str, Any]]:
    """Return one row a preset with its main figures; `peak_tflops` is dense fp16 at `max_clock_mhz`."""
    return [_main_figures(machine(name)) for name in available()]


def machine_row(name: str) -> dict[str, Any]:
    """Return one machine resolved: its main figures, and under `values` every value with unit, kind and source."""
    resolved = machine(name)
    return {**_main_figures(resolved), "values": [dataclasses.asdict(row) for row in describe(resolved)]}


def kernel_rows() -> list[dict[str, Any]]:
    """Return one row a kernel or composite."""
    return [kernel_row(name) for name in entries()]


def kernel_row(name: str) -> dict[str, Any]:
    """Return one kernel: where it runs, its modes, its parameters, and under `tile` those that are chosen if not given.

    A parameter has name, type, default, allowed values and meaning. `modes_on`: the modes by machine; `native_tile`:
    what is chosen in mode fiber, by architecture. `steps`: of a sequence of launches, with default parameters, by
    machine; empty for a kernel.
    """
    kernel = find_entry(name)
    machines = {gpu: kernel.modes_on(machine(gpu).architecture) for gpu in available()}
    machines = {gpu: modes for gpu, modes in machines.items() if modes}
    return {
        "name": kernel.name,
        "summary": kernel.summary,
        "architectures": list(kernel.architectures),
        "machines": list(machines),
        "modes": [mode for mode in MODES if any(mode in modes for modes in machines.values())],
        "modes_on": {gpu: list(modes) for gpu, modes in machines.items()},
        "parameters": [
            {
                "name": parameter.name,
                "type": FORMS[parameter.type],
                "default": parameter.default,
                "choices": list(parameter.choices),
                "allowed": parameter.allowed,
                "meaning": parameter.meaning,
            }
            for parameter in kernel.parameters
        ],
        "tile": [] if isinstance(kernel, Composite) else [_tile_row(field) for field in kernel.tile],
        "native_tile": {
            architecture: [_tile_row(field) for field in native.tile]
            for architecture, native in ({} if isinstance(kernel, Composite) else kernel.native).items()
        },
        "steps": {gpu: _step_rows(kernel, gpu) for gpu in machines} if isinstance(kernel, Composite) else {},
    }


def _step_rows(composite: Composite, gpu: str) -> list[dict[str, Any]]:
    """Return the launches of today's form with default parameters."""
    steps = composite.steps(machine(gpu), composite.check({}), "simt")
    return [{"name": step.name, "kernel": step.kernel, "count": step.count} for step in steps]


def _tile_row(field: TileParameter) -> dict[str, str]:
    return {"name": field.name, "type": FORMS[field.type], "allowed": field.allowed, "meaning": field.meaning}


def _main_figures(gpu: Machine) -> dict[str, Any]:
    names = ("name", "description", "architecture", "sms", "max_clock_mhz", "l2_bytes", "dram_gbytes_per_s")
    peak = gpu.tensor_flops_per_cycle * gpu.sms * gpu.max_clock_mhz / 1e6
    return {**{name: getattr(gpu, name) for name in names}, "peak_tflops": peak}
