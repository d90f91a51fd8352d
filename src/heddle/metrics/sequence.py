"""The result JSON of a sequence of launches, from those of its steps: sums, and shares weighted by cycles.

Works on plain documents, so that stored results add up too (docs/explanation/composites.md says what each figure is).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.machine.spec import Machine
from heddle.metrics.provenance import heddle_version, machine_hash

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A step's result: `count` launches in a row, each of which `row` describes. `note`: what is to be said of it."""

    name: str
    row: Document
    count: int = 1
    note: str = ""

    @property
    def cycles(self) -> int:
        """Cycles of all launches of the step."""
        return int(self.row["cycles"]) * self.count


def sequence_json(
    parts: Sequence[Part], machine: Machine, *, kernel: str, mode: str, params: Mapping[str, Any], clock_source: str
) -> dict[str, Any]:
    """Return the result of a sequence whose steps ran at one clock; `time_us` is without launches and without gaps."""
    cycles = sum(part.cycles for part in parts)
    time_us = _sum(parts, "time_us")
    flops = sum(part.count * part.row["tflops"] * part.row["time_us"] * 1e6 for part in parts)
    use = _share(parts, "tensor_utilization")
    longest = max(parts, key=lambda part: part.cycles)
    return {
        "kernel": kernel,
        "gpu": machine.name,
        "mode": mode,
        "params": {**params, "config": "; ".join(f"{p.name}: {p.row['params'].get('config', '')}" for p in parts)},
        "clock_mhz": longest.row["clock_mhz"],
        "cycles": cycles,
        "time_us": time_us,
        "includes_launch": False,
        "launches": sum(part.count for part in parts),
        "tflops": flops / time_us / 1e6,
        "tensor_utilization": use,
        "ceiling_speedup": 1.0 / use if use else None,
        **_utilization(parts),
        **_counts(parts, machine),
        "speed_of_light": _speed_of_light(parts, machine),
        "roofline": _roofline(parts, machine, flops),
        "verdict": f"{longest.name} takes {longest.cycles / cycles:.0%} of the cycles. {longest.row['verdict']}",
        "registers": _registers(parts),
        "simulation": _simulation(parts, cycles),
        "provenance": _provenance(parts, machine, kernel, params, clock_source),
        "choice": _choice(parts),
        "steps": [_step(part, cycles) for part in parts],
        "notes": [part.note for part in parts if part.note],
    }


def _utilization(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the shares of time, each step as long as it takes."""
    return {
        "pipes": _shares(parts, "pipes"),
        "read_ports": _shares(parts, "read_ports"),
        **{name: _share(parts, name) for name in ("issue_utilization", "occupancy", "occupancy_theoretical")},
        "stalls": _shares(parts, "stalls"),
        "stalls_by_role": {f"{p.name} {role}": row for p in parts for role, row in p.row["stalls_by_role"].items()},
    }


def _counts(parts: Sequence[Part], machine: Machine) -> dict[str, Any]:
    """Return traffic, supply and instructions of the whole chip, as steps may have simulated different numbers of SMs.

    The group of SMs that represents a chip counts for all groups: too much where the others have less to do.
    """
    scales = [_of_chip(part, machine) for part in parts]

    def chip(row: Mapping[str, Any], scale: float, names: Sequence[str] | None = None) -> dict[str, int]:
        return {n: round(scale * v) if names is None or n in names else v for n, v in row.items()}

    pairs = [(part, part.row["instructions"], scale) for part, scale in zip(parts, scales, strict=True)]
    return {
        "traffic": _totals(parts, [chip(p.row["traffic"], s, ("smem_bytes",)) for (p, _, s) in pairs]),
        "supply": _totals(parts, [chip(p.row["supply"], s) for p, _, s in pairs]),
        "instructions": {
            "total": sum(p.count * round(s * row["total"]) for p, row, s in pairs),
            "by_pipe": _totals(parts, [chip(row["by_pipe"], s) for _, row, s in pairs]),
            "by_role": {
                f"{p.name} {role}": p.count * issued
                for p, row, s in pairs
                for role, issued in chip(row["by_role"], s).items()
            },
        },
    }


def _of_chip(part: Part, machine: Machine) -> float:
    """Return how many times the SMs that a step simulated stand for the chip; in mode chip it simulated all."""
    simulation = part.row["simulation"]
    return 1.0 if simulation["mode"] == "chip" else machine.sms / int(simulation["simulated_sms"])


def _step(part: Part, cycles: int) -> dict[str, Any]:
    row = part.row
    return {
        "name": part.name,
        "kernel": row["kernel"],
        "mode": row["mode"],
        "params": dict(row["params"]),
        "count": part.count,
        "cycles": part.cycles,
        "time_us": part.count * row["time_us"],
        "share": part.cycles / cycles,
        "tensor_utilization": row["tensor_utilization"],
        "note": part.note,
    }


def _sum(parts: Iterable[Part], name: str) -> Any:
    return sum(part.count * part.row[name] for part in parts)


def _weighted(parts: Sequence[Part], values: Sequence[float]) -> float:
    """Return the mean of a share, each step as long as it takes."""
    total = sum(part.cycles for part in parts)
    return sum(part.cycles * value for part, value in zip(parts, values, strict=True)) / max(1, total)


def _share(parts: Sequence[Part], name: str) -> float:
    return _weighted(parts, [part.row[name] for part in parts])


def _shares(parts: Sequence[Part], name: str) -> dict[str, float]:
    """Return the means of a table of shares; what a step does not have counts as none."""
    keys = dict.fromkeys(key for part in parts for key in part.row[name])
    return {key: _weighted(parts, [part.row[name].get(key, 0.0) for part in parts]) for key in keys}


def _totals(parts: Sequence[Part], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: sum(p.count * row.get(key, 0) for p, row in zip(parts, rows, strict=True)) for key in keys}


def _speed_of_light(parts: Sequence[Part], machine: Machine) -> list[dict[str, Any]]:
    """Return the table: elapsed cycles and duration add up, shares are means over the cycles."""
    found = []
    for index, line in enumerate(parts[0].row["speed_of_light"]):
        values = [part.row["speed_of_light"][index]["value"] for part in parts]
        added = line["name"] in ("Elapsed Cycles", "Duration")
        value = sum(p.count * v for p, v in zip(parts, values, strict=True)) if added else _weighted(parts, values)
        found.append({**line, "value": value})
    return found


def _roofline(parts: Sequence[Part], machine: Machine, flops: float) -> dict[str, Any]:
    """Place the sum of the work under the roofs: the peak of the steps' types, the traffic of all steps."""
    cycles = max(1, sum(part.cycles for part in parts))
    clock = parts[0].row["clock_mhz"]
    rates = {
        "dram": machine.dram_bytes_per_cycle(clock),
        "l2": machine.l2_bytes_per_cycle_per_sm * machine.sms,
    }
    traffic = {level: sum(p.count * p.row["traffic"][f"{level}_bytes"] for p in parts) for level in rates}
    intensity = {level: flops / moved for level, moved in traffic.items() if moved}
    roofs = {"tensor": _weighted(parts, [part.row["roofline"]["roofs_flops_per_cycle"]["tensor"] for part in parts])}
    roofs |= {level: value * rates[level] for level, value in intensity.items()}
    bound = min(roofs, key=lambda name: roofs[name])
    return {
        "intensity": intensity,
        "roofs_flops_per_cycle": roofs,
        "achieved_flops_per_cycle": flops / cycles,
        "attainable_flops_per_cycle": roofs[bound],
        "share_of_attainable": flops / cycles / roofs[bound] if roofs[bound] else 0.0,
        "bound": bound,
    }


def _registers(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the most of any step; roles carry the name of their step."""
    sections = [part.row["registers"] for part in parts]
    found: dict[str, Any] = {name: max(row[name] for row in sections) for name in ("peak_live", "allocated")}
    found["by_role"] = {
        f"{part.name} {role}": row for part in parts for role, row in part.row["registers"]["by_role"].items()
    }
    if pools := [row["pool"] for row in sections if "pool" in row]:
        found["pool"] = max(pools)
    return found


def _simulation(parts: Sequence[Part], cycles: int) -> dict[str, Any]:
    """Return what was simulated: each step once, however often it is launched; `simulated_sms`: the most of a step."""
    rows = [part.row["simulation"] for part in parts]
    modes = dict.fromkeys(row["mode"] for row in rows)
    wall_s = sum(row.get("wall_s") or 0.0 for row in rows)
    instructions = sum(row["warp_instructions"] for row in rows)
    return {
        "mode": ", ".join(modes),
        "simulated_sms": max(row["simulated_sms"] for row in rows),
        "warp_instructions": instructions,
        "fast_forwarded": _weighted(parts, [row["fast_forwarded"] for row in rows]),
        "wall_s": wall_s,
        "instructions_per_s": instructions / wall_s if wall_s > 0 else None,
    }


def _provenance(
    parts: Sequence[Part], machine: Machine, kernel: str, params: Mapping[str, Any], clock_source: str
) -> dict[str, Any]:
    programs = [part.row["provenance"]["program_hash"] for part in parts for _ in range(part.count)]
    return {
        "heddle_version": heddle_version(),
        "machine_hash": machine_hash(machine),
        "program_hash": hashlib.sha256(" ".join(programs).encode()).hexdigest()[:16],
        "program": kernel,
        "parameters": dict(sorted(params.items())),
        "clock_source": clock_source,
    }


def _choice(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the choices of all steps, labels behind the name of the step."""
    rows = [(part.name, part.row["choice"]) for part in parts]
    return {
        **{
            name: {f"{step}: {label}": value for step, row in rows for label, value in row[name].items()}
            for name in ("cycles", "refused", "forms")
        },
        "clock_mhz": rows[0][1]["clock_mhz"],
        "from_slices": any(row["from_slices"] for _, row in rows),
        "origin": "; ".join(f"{step}: {row['origin']}" for step, row in rows),
        "form": "; ".join(f"{step}: {row['form']}" for step, row in rows if row["form"]),
    }
