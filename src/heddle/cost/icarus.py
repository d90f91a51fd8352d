"""Simulate a module by Icarus Verilog, driven by cocotb, against a trace of the simulator's unit."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from heddle.cost.tools import need
from heddle.cost.trace import Trace

TOOLS = ("iverilog", "vvp", "cocotb")
_DIFFERENCE = re.compile(r"AssertionError: (cycle .*)")


def difference(module: str, sources: Sequence[Path], parameters: dict[str, int], trace: Trace) -> str | None:
    """Return the first difference between the module and the trace, None if there is none.

    Raises UserError where a tool is missing, RuntimeError with the log if the module cannot be compiled.
    """
    need(TOOLS, "simulating Verilog")
    from cocotb_tools.runner import get_runner

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trace").write_bytes(pickle.dumps(trace))
        log, results = folder / "log", folder / "results.xml"
        runner = get_runner("icarus")
        with suppress(SystemExit, RuntimeError):  # cocotb's answers to a failure; the files tell which
            runner.build(
                sources=list(sources), hdl_toplevel=module, parameters=parameters, build_dir=folder,
                timescale=("1ns", "1ps"), build_args=["-g2012"], log_file=log,
            )  # fmt: skip
            runner.test(
                hdl_toplevel=module, test_module="heddle.cost.cocotb_bench", build_dir=folder, test_dir=folder,
                extra_env={"HEDDLE_RTL_TRACE": str(folder / "trace"), "PATH": os.environ.get("PATH", "")},
                log_file=log, results_xml=str(results),
            )  # fmt: skip
        said = _text(log)
        if not results.exists() or "<testcase" not in results.read_text("utf-8"):
            raise RuntimeError(f"{module} was not simulated:\n{said}")
        if "<failure" not in results.read_text("utf-8") and "<error" not in results.read_text("utf-8"):
            return None
        found = _DIFFERENCE.search(said)
        if found is None:
            raise RuntimeError(f"the test of {module} ended otherwise:\n{said}")
        return found.group(1)


def _text(log: Path) -> str:
    return log.read_text("utf-8") if log.exists() else ""
