"""Run commands in this process, with a pipeline that answers at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heddle import pipeline
from heddle.cli import main
from heddle.kernels.registry import find_kernel
from heddle.machine.spec import Machine
from heddle.study import runs


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def heddle(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command and return its exit code and output."""

    def run(*arguments: str) -> Ended:
        code = main(list(arguments))
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run


def fake_row(
    kernel: str, machine: Machine, params: Mapping[str, Any], config: Any = None, *, clock_mhz: float, **options: Any
) -> dict[str, Any]:
    """Answer like `pipeline.run_once`: 80 % tensor use, whatever the tile; wider tiles (`tile_n`) take more cycles."""
    flops = find_kernel(kernel).flops(params)
    peak = machine.tensor_flops_per_cycle * machine.sms
    cycles = int(flops / (0.8 * peak)) + 1000 + getattr(config, "tile_n", 0)
    use = flops / (cycles * peak)
    return {
        "kernel": kernel,
        "gpu": machine.name,
        "mode": "simt",
        "params": {**params, "config": config.label()},
        "clock_mhz": clock_mhz,
        "cycles": cycles,
        "time_us": cycles / clock_mhz,
        "tflops": flops * clock_mhz / cycles / 1e6,
        "tensor_utilization": use,
        "pipes": {"tensor": use, "fma": 0.0},
        "read_ports": {},
        "issue_utilization": 0.1,
        "occupancy": 0.2,
        "stalls": {"issued": 0.25, "mbarrier": 0.75},
        "stalls_by_role": {"consumer": {"issued": 0.25, "mbarrier": 0.75}},
        "traffic": {"dram_bytes": 1000},
        "speed_of_light": [{"name": "Elapsed Cycles", "unit": "cycle", "value": cycles}],
        "verdict": "No unit is above 80 %.",
        "roofline": {"intensity": {"dram": 100.0}, "bound": "tensor", "share_of_attainable": 0.8},
        "provenance": {"clock_source": "given"},
    }


@pytest.fixture
def fake_pipeline(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> None:
    """Replace the simulation by `fake_row`, with an empty result cache."""
    monkeypatch.setattr(pipeline, "run_once", fake_row)
    monkeypatch.setattr(runs, "_simulation", lambda asked: "representative")  # asks for no compiled program
