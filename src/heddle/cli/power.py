"""`heddle compare --power`: what FIBER's units take while the FIBER-native kernel of a comparison runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from heddle.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.study.pool import Progress


def refuse_power(kernel: str, gpu: str, values: dict[str, Any]) -> None:
    """Raise UserError for a sequence of launches, before anything is simulated."""
    from heddle.machine import machine
    from heddle.study import composites
    from heddle.study.requests import request

    if composites.composite(request(kernel, machine(gpu), texts=values)) is not None:
        raise UserError(
            f"--power takes a kernel; {kernel} is a sequence of launches", hint="compare one of its kernels"
        )


def power_of(row: dict[str, Any], gpu: str, values: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Run the FIBER kernel of a comparison once more, with a profile, and return the power of its events.

    Raises UserError where the comparison has no FIBER-native kernel.
    """
    from heddle.cost.fiber_events import count
    from heddle.cost.kernel_power import added_power
    from heddle.machine import machine
    from heddle.study import runs
    from heddle.study.compare import native_part
    from heddle.study.requests import request

    target = machine(gpu)
    today = request(
        row["kernel"], target, clock_mhz=row["clock_mhz"], l2_state=row["l2_state"],
        simulation=row["baseline"]["simulation"]["mode"], texts=values,
    )  # fmt: skip
    asked = native_part("fiber", today, target, values).asked
    if asked is None or row["fiber"] is None:
        raise UserError(f"--power needs a FIBER-native kernel: {row['absent'].get('fiber', 'there is none')}")
    asked = dataclasses.replace(asked, profile=True)
    result = runs.run(asked, progress=progress)
    events = count(runs.compiled(asked).instructions, [one["issued"] for one in result["by_instruction"]])
    return added_power(events, result, asked.machine)


def show_power(power: dict[str, Any], out: Console) -> None:
    """Print the power of an SM, what it is for, and which energies it comes from."""
    out.print(
        f"power of FIBER's units: {power['sm_mw']:.1f} mW an SM, {power['gpu_w']:.2f} W if all SMs do the same, "
        f"{power['tdp_share']:.2%} of the TDP"
    )
    parts = {**power["by_event_mw"], "wires": power["wires_mw"], "clock": power["clock_mw"]}
    parts["leakage"] = power["leakage_mw"]
    out.print("  " + ", ".join(f"{name} {value:.2f}" for name, value in sorted(parts.items(), key=lambda p: -p[1])))
    source = power["energies"]
    out.print(
        f"  bits in latches (flops: {power['flop_clock_mw']:.1f} mW more, their clock), wires of {power['wire_um']:g} "
        f"um; energies: {source['liberty']}, {source['node']}, by {source['command']}"
    )
