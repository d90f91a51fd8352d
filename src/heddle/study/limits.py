"""What keeps the FIBER kernel of a comparison from gaining more, by counters of its result; no simulation here.

A counter says where the time went, not why the kernel is written so. The words are for people and may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heddle.metrics.render import own_pipes, percent
from heddle.study.reasons import largest_stalls

Row = Mapping[str, Any]
SATURATED = 0.9
"""Busy share from which a unit counts as the limit."""
BUSIEST = 3
"""Units that are named, at most."""
NOTABLE = 0.02
"""Shares of useful work or time that are worth a word."""
FAR_FROM_THE_PAPER = 0.1
MEMORIES = {"Shared Memory Throughput": "shared memory", "L2 Cache Throughput": "L2", "DRAM Throughput": "DRAM"}


def limit(row: Row) -> dict[str, Any]:
    """Return what limits the FIBER run of a comparison: `unit`, `share`, `saturated`, `stalls`, `text`, `paper`.

    `unit`: the busiest, with its busy `share`; `stalls`: the largest of the role that issues most; `text`: all of it in
    words; `paper`: why the speed-up is far from the paper's; `no_gain`: what does not beat today's kernel and how many
    mappings were tried. The last two are empty where that is not so.
    """
    fiber = row["fiber"]
    if fiber is None:
        return {
            "unit": None,
            "share": None,
            "saturated": False,
            "stalls": {},
            "text": row["absent"]["fiber"],
            "paper": "",
            "no_gain": "",
        }
    busy = units(fiber)
    names = sorted(busy, key=lambda name: -busy[name])
    first = names[0]
    saturated = busy[first] >= SATURATED
    role, stalls = largest_stalls(fiber["stalls_by_role"])
    parts = [", ".join(f"{name} {percent(busy[name])}" for name in names[:BUSIEST])]
    if not saturated:
        parts.append(f"no unit saturated; {role} waits: " + ", ".join(f"{n} {percent(s)}" for n, s in stalls.items()))
    parts += _not_useful(fiber)
    found = {"unit": first, "share": busy[first], "saturated": saturated, "stalls": stalls, "text": "; ".join(parts)}
    return {**found, "paper": _against_the_paper(row, found), "no_gain": no_gain(row)}


def no_gain(row: Row) -> str:
    """Say where no mapping beats today's kernel; of a sequence of launches, in which of its steps."""
    if row["steps"]:
        slower = [s for s in row["steps"] if s["speedup"] and s["speedup"] <= 1 and not s["note"]]
        named = ", ".join(f"{step['name']} {step['speedup']:.2f}" for step in slower)
        return f"no searched mapping beats today's kernel of: {named}" if slower else ""
    if row["speedup"] > 1:
        return ""
    origin = row["fiber"]["choice"]["origin"]
    return f"no searched mapping beats today's kernel ({origin})"


def units(result: Row) -> dict[str, float]:
    """Return the busy share of each pipe, memory and of the issue slots of a result."""
    memories = {
        MEMORIES[line["name"]]: line["value"] / 100 for line in result["speed_of_light"] if line["name"] in MEMORIES
    }
    ports = {"read ports": sum(result["read_ports"].values())} if result["read_ports"] else {}
    return {**own_pipes(result["pipes"]), **memories, **ports, "issue slots": result["issue_utilization"]}


def dram_share(result: Row) -> float | None:
    """Return the busy share of DRAM of a result, None if it has none."""
    lines = result.get("speed_of_light", ())
    return next((line["value"] / 100 for line in lines if line["name"] == "DRAM Throughput"), None)


def _not_useful(fiber: Row) -> list[str]:
    """Say how much of the work of the simulated SM's matrix unit is useful work of an SM of the chip."""
    busy = fiber["pipes"]["tensor"]
    if not busy or busy - fiber["tensor_utilization"] < NOTABLE:
        return []
    why = "padding, SMs that end earlier, or have no work"
    if fiber["params"].get("causal"):
        why = f"masked parts of tiles, {why}"
    return [f"of the tensor time {percent(fiber['tensor_utilization'] / busy)} useful ({why})"]


def _against_the_paper(row: Row, found: Mapping[str, Any]) -> str:
    """Say why the speed-up is more than a tenth away from the paper's, if it is."""
    paper, speedup, ceiling = row["paper"].get("speedup"), row["speedup"], row["ceiling_speedup"]
    if not paper or abs(speedup / paper - 1) <= FAR_FROM_THE_PAPER:
        return ""
    base = percent(row["baseline"]["tensor_utilization"])
    dram = dram_share(row["baseline"]) or 0.0
    if dram > row["baseline"]["tensor_utilization"]:
        return f"the baseline keeps DRAM {percent(dram)} busy here"
    if speedup > paper:
        return f"the baseline uses {base} of the tensor cores here"
    if ceiling < paper:
        return f"above the ceiling of {ceiling:.2f}: the baseline uses {base} of the tensor cores already"
    if as_today := _as_today(row):
        return as_today
    busiest = f"{found['unit']} {percent(found['share'])}"
    if found["saturated"]:
        return busiest
    waits = ", ".join(f"{name} {percent(share)}" for name, share in found["stalls"].items())
    return f"no unit saturated ({busiest}); waits: {waits}"


def _as_today(row: Row) -> str:
    """Say what share of the cycles are launches without a FIBER form, where they are a notable part of a sequence."""
    share = sum(step["fiber_share"] or 0.0 for step in row["steps"] if step["note"])
    rest = [step for step in row["steps"] if not step["note"] and step["baseline_cycles"] and step["fiber_cycles"]]
    if share < NOTABLE or not rest:
        return ""
    gain = sum(step["baseline_cycles"] for step in rest) / sum(step["fiber_cycles"] for step in rest)
    return f"{percent(share)} of the cycles are launches as today; the others gain {gain:.2f}"
