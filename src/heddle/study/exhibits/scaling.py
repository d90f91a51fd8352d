"""Tensor-core scaling: how fast GEMM runs at several rates of the matrix unit, by what supplies its operands.

Every point is a simulation of a kernel of this project, with the fastest of its tiles, on a machine of `scaled`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from heddle.errors import UserError
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.study import runs
from heddle.study.exhibits._exhibit import Answer, Exhibit
from heddle.study.exhibits.scaling_machine import scaled
from heddle.study.limits import SATURATED, units
from heddle.study.paper import figures
from heddle.study.pool import Progress, run_all
from heddle.study.reasons import largest_stalls
from heddle.study.requests import request

RATES = (2048, 4096, 8192)
"""FLOP a cycle and SM: the dense fp16 rates of A100, H100 and B200."""
SIZES = {"m": 4096, "n": 6144, "k": 2048}
"""Tiles of all the kernels fill 128 SMs in whole rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """A way to supply operands: the GPU and the mode whose GEMM does so."""

    name: str
    gpu: str
    mode: str
    what: str


SUPPLIES = (
    Supply(name="private registers", gpu="a100", mode="simt", what="HMMA: each warp loads its A and B by ldmatrix"),
    Supply(name="shared memory", gpu="h100", mode="simt", what="wgmma: A and B from shared memory, by four warps"),
    Supply(name="tensor memory", gpu="b200", mode="simt",
           what="tcgen05: sums in tensor memory, A and B from the shared memory of a pair of SMs"),
    Supply(name="shared registers", gpu="a100", mode="fiber", what="FIBER on A100: A and B in registers of the SM"),
    Supply(name="shared registers, B in shared memory", gpu="h100", mode="fiber",
           what="FIBER on H100: A in registers of the SM"),
    Supply(name="shared registers, sums in tensor memory", gpu="b200", mode="fiber",
           what="FIBER on B200: A in registers of the SM, B in shared memory"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One simulation: a supply at a rate, for a GEMM of some size."""

    supply: Supply
    rate: int
    sizes: tuple[tuple[str, int], ...]


PRIVATE = SUPPLIES[0].name


def study(
    rates: Iterable[int] = RATES,
    sizes: Mapping[str, int] = SIZES,
    *,
    supplies: Iterable[Supply] = SUPPLIES,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return one row a point (docs/reference/results.md); one that cannot run has `failed`, the reason."""
    asked = [Point(supply=supply, rate=rate, sizes=tuple(sizes.items())) for supply in supplies for rate in rates]
    rows = run_all(_row, asked, jobs=jobs, progress=progress)
    return [{**row, **beside(row, rows)} for row in rows]


def beside(row: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `intensity_over_private`, over the point of that supply at the same rate, and what the `paper` says."""
    paper = figures()["scaling"]
    private = [other for other in rows if other["supply"] == PRIVATE and other["rate"] == row["rate"]]
    base = private[0].get("intensity") if private else None
    ratio = row["intensity"] / base if base and "intensity" in row else None
    if row["supply"] == PRIVATE:
        return {"intensity_over_private": ratio, "paper": {"text": paper["private"].get(str(row["rate"]), "")}}
    return {
        "intensity_over_private": ratio,
        "paper": {"intensity_over_private": paper["intensity_over_private"]},
    }


def _row(point: Point) -> dict[str, Any]:
    machine = scaled(load_machine(point.supply.gpu), point.rate)
    named = {"supply": point.supply.name, "what": point.supply.what, "gpu": point.supply.gpu,
             "mode": point.supply.mode, "rate": point.rate}  # fmt: skip
    try:
        asked = request("gemm", machine, mode=point.supply.mode, clock_mhz=machine.tensor_peak_clock_mhz,
                        simulation="representative", texts=dict(point.sizes))  # fmt: skip
        asked = dataclasses.replace(asked, form="own")  # a supply is what the point is about, not the best kernel
        return {**named, **measured(runs.run(asked), machine)}
    except UserError as error:
        return {**named, "failed": error.message.partition("\n")[0]}


def measured(result: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Return what a point shows, from the counters of its result; rates are of an SM, in a cycle."""
    sm_cycles = result["cycles"] * result["simulation"]["simulated_sms"]
    shared, registers = (result["supply"][name] / sm_cycles for name in ("smem_read_bytes", "register_read_bytes"))
    achieved = result["tensor_utilization"] * machine.tensor_flops_per_cycle
    busy = _busy(result, machine)
    unit = max(busy, key=lambda name: busy[name])
    role = max(result["stalls_by_role"], key=lambda name: result["instructions"]["by_role"][name])
    return {
        "config": str(result["params"]["config"]),
        "cycles": result["cycles"],
        "achieved": achieved,
        "tensor_utilization": result["tensor_utilization"],
        "intensity": achieved / shared,
        "shared_read_bytes_per_cycle": shared,
        "register_read_bytes_per_cycle": registers,
        "operand_wait": result["pipes"]["tensor"] - busy["products"],
        "busy": busy,
        "unit": unit,
        "saturated": busy[unit] >= SATURATED,
        "role": role,
        "stalls": largest_stalls({role: result["stalls_by_role"][role]})[1],
    }


def _busy(result: Mapping[str, Any], machine: Machine) -> dict[str, float]:
    """Return the busy share of what may limit a product; `products`: useful ones alone.

    Read ports: the port that an instruction needs longest; four wefts that wait for one port count it each.
    """
    found = units(result)
    sm_cycles = result["cycles"] * result["simulation"]["simulated_sms"]
    return {
        "products": result["tensor_utilization"],
        "shared memory": found["shared memory"],
        "read ports": min(1.0, result["supply"]["read_port_cycles"] / (sm_cycles * machine.subpartitions)),
        "L2": found["L2"],
        "DRAM": found["DRAM"],
        "load/store": found["lsu"],
        "issue slots": found["issue slots"],
    }


def _answer(jobs: int | None, progress: Progress | None) -> Answer:
    base = load_machine(SUPPLIES[0].gpu)
    return {
        "rates": list(RATES),
        "sizes": dict(SIZES),
        "shared_bytes_per_cycle": base.shared_bytes_per_cycle,
        "rows": study(jobs=jobs, progress=progress),
    }


SCALING = Exhibit(
    name="scaling", title="Tensor-core scaling of GEMM by operand supply",
    where="Justifying Shared Register Supply for TCs, and its figure", answer=_answer,
)  # fmt: skip
