"""The cocotb test of every unit: it plays a trace to the module and compares each output in each cycle.

Run by `heddle.cost.icarus` inside the Verilog simulator; the trace's file is named by HEDDLE_RTL_TRACE.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from heddle.cost.trace import Trace


@cocotb.test()  # type: ignore[untyped-decorator, unused-ignore]
async def plays_as_the_simulator(dut: Any) -> None:
    """Fail with the first output that differs, its cycle and the inputs of that cycle."""
    trace: Trace = pickle.loads(Path(os.environ["HEDDLE_RTL_TRACE"]).read_bytes())
    inputs = {name: (getattr(dut, name), values) for name, values in trace.inputs.items()}
    outputs = {name: (getattr(dut, name), values) for name, values in trace.outputs.items()}
    clocked = hasattr(dut, "clk")
    if clocked:
        await _reset(dut, inputs)
    for cycle in range(len(trace)):
        for handle, values in inputs.values():
            handle.value = int(values[cycle])
        await Timer(1, "ns")
        for name, (handle, values) in outputs.items():
            _compare(trace, name, cycle, str(handle.value), int(values[cycle]))
        if clocked:
            await _edge(dut)


async def _edge(dut: Any) -> None:
    dut.clk.value = 1
    await Timer(1, "ns")
    dut.clk.value = 0
    await Timer(1, "ns")


async def _reset(dut: Any, inputs: dict[str, Any]) -> None:
    dut.clk.value = 0
    dut.reset.value = 1
    for handle, _ in inputs.values():
        handle.value = 0
    await Timer(1, "ns")
    await _edge(dut)
    dut.reset.value = 0


def _compare(trace: Trace, name: str, cycle: int, text: str, want: int) -> None:
    care = trace.cares[name][cycle] if name in trace.cares else (1 << len(text)) - 1
    got = int(text, 2) if set(text) <= {"0", "1"} else None
    if got is None or (got ^ want) & care:
        given = ", ".join(f"{port}={values[cycle]:#x}" for port, values in trace.inputs.items())
        raise AssertionError(f"cycle {cycle}: {name} is {text}, the simulator says {want:0{len(text)}b}; {given}")
