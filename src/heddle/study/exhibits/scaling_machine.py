"""The machine of a point of the scaling study: a GPU whose matrix unit has another rate, and what goes with that."""

from __future__ import annotations

from typing import Any

from heddle.machine.spec import Machine

SMS = 128
"""Of all machines of the study, so that tiles fill them in whole rounds."""
HEADROOM = 4.0
"""L2 and DRAM give so many times the bytes a FLOP that the GPU has: what is studied is supply inside an SM."""
MOST_PORT_SHARE = 15 / 16
"""Of the read ports that products may take: what the engine leaves to others (docs/reference/fiber.md, section 6)."""
LEAST_TICK = 1 / 256


def scaled(base: Machine, rate: int) -> Machine:
    """Return `base` with `rate` FLOP a cycle and SM.

    What scales: the rate of mma.sync; the share of the read ports that products with accumulators in registers take
    (as many reads a FLOP); L2, its ports and DRAM. What stays: shared memory, register ports, load/store unit, copy
    engine, tensor memory, sizes, latencies, clock.
    """
    factor = rate / base.tensor_flops_per_cycle
    changes: dict[str, Any] = {
        "name": f"{base.name} at {rate}",
        "sms": SMS,
        "tensor_flops_per_cycle": rate,
        "ops": {name: {"initiation_cycles": _ticks(base.ops[name].initiation_cycles / factor)}
                for name in base.ops if name.split(".")[0] == "HMMA"},
        "tensor_port_share": min(base.tensor_port_share * factor, MOST_PORT_SHARE),
        "l2_bytes_per_cycle_per_sm": base.l2_bytes_per_cycle_per_sm * factor * HEADROOM,
        "l2_port_bytes_per_cycle": base.l2_port_bytes_per_cycle * factor * HEADROOM,
        "dram_gbytes_per_s": base.dram_gbytes_per_s * factor * HEADROOM * SMS / base.sms,
    }  # fmt: skip
    return base.replace(**changes)


def _ticks(cycles: float) -> float:
    """Return the nearest duration that a pipe may have."""
    return max(1, round(cycles / LEAST_TICK)) * LEAST_TICK
