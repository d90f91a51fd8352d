"""The metric registry: what every number of a result means, its unit, its formula and Nsight Compute's name for it.

A metric that the model does not produce is absent from a result; it is never reported as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.errors import unknown_name
from heddle.metrics.stalls import stall_name
from heddle.sim.result import Stall


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `id` is its path in the result JSON, `nsight` the nearest metric of Nsight Compute, if any."""

    id: str
    unit: str
    formula: str
    meaning: str
    nsight: str = ""


_PLAIN = (
    Metric(
        "cycles",
        "SM cycles",
        "last completion - first launch",
        "Length of the kernel without launch overhead.",
        "sm__cycles_elapsed.max",
    ),
    Metric(
        "time_us",
        "us",
        "cycles / clock_mhz (+ launch and drain if includes_launch)",
        "Time of the kernel.",
        "gpu__time_duration.sum",
    ),
    Metric("clock_mhz", "MHz", "given, or the machine's clock model", "SM clock.", "sm__cycles_elapsed.avg.per_second"),
    Metric("tflops", "TFLOP/s", "useful FLOPs / time", "Useful arithmetic rate; padding and masked work do not count."),
    Metric(
        "tensor_utilization",
        "share",
        "useful FLOPs / (cycles * peak tensor FLOPs a cycle of all SMs)",
        "How much of the matrix units' peak the kernel turns into useful work.",
    ),
    Metric("ceiling_speedup", "ratio", "1 / tensor_utilization", "Largest speed-up that better scheduling could give."),
    Metric(
        "pipes.tensor",
        "share",
        "busy cycles of the matrix unit / cycles",
        "Busy share of the matrix unit, padding included.",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "pipes",
        "share",
        "busy cycles / (instances * cycles)",
        "Busy share of each pipe of the simulated SMs.",
        "sm__inst_executed_pipe_*.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "read_ports.instructions",
        "share",
        "registers read / (banks * subpartitions * cycles)",
        "Share of the register read ports that instructions take, at least.",
    ),
    Metric(
        "read_ports.products",
        "share",
        "tensor_port_share * busy share of the matrix unit",
        "Share of the register read ports that matrix instructions take, at least.",
    ),
    Metric(
        "issue_utilization",
        "share",
        "issued warp instructions / (subpartitions * cycles)",
        "Share of issue slots that were used.",
        "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    ),
    Metric(
        "occupancy",
        "share",
        "resident warp cycles / (warp contexts * cycles)",
        "Achieved occupancy.",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    Metric(
        "occupancy_theoretical",
        "share",
        "warps of the CTAs that fit / warp contexts",
        "Occupancy that registers, shared memory, tensor memory and warp limits allow.",
        "sm__maximum_warps_per_active_cycle_pct",
    ),
    Metric("traffic.dram_bytes", "bytes", "read + written", "DRAM traffic of the whole chip.", "dram__bytes.sum"),
    Metric(
        "traffic.l2_bytes", "bytes", "read + written", "Bytes between the SMs and L2, whole chip.", "lts__t_bytes.sum"
    ),
    Metric(
        "traffic.smem_bytes",
        "bytes",
        "sum over accesses",
        "Bytes moved by shared memory on the simulated SMs.",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum (x 128)",
    ),
    Metric("traffic.dram_read_bytes", "bytes", "missed loads", "DRAM reads of the whole chip.", "dram__bytes_read.sum"),
    Metric("traffic.dram_write_bytes", "bytes", "write-backs", "DRAM writes of the chip.", "dram__bytes_write.sum"),
    Metric("traffic.l2_read_bytes", "bytes", "loads", "Bytes loaded from L2; a multicast counts once."),
    Metric("traffic.l2_write_bytes", "bytes", "stores and reductions", "Bytes stored to L2."),
    Metric(
        "supply.smem_read_bytes",
        "bytes",
        "loads + operands of products",
        "Bytes that loads and products read from shared memory on the simulated SMs.",
    ),
    Metric(
        "supply.register_read_bytes",
        "bytes",
        "registers read * 128",
        "Bytes read from the register files of the simulated SMs: operands, and accumulators of products.",
    ),
    Metric(
        "supply.read_port_cycles",
        "cycles",
        "sum over instructions of the reads of their fullest port",
        "Cycles for which instructions take register read ports on the simulated SMs, four wefts that share one too.",
    ),
    Metric(
        "roofline.intensity.dram", "FLOP/byte", "useful FLOPs / traffic.dram_bytes", "Arithmetic intensity of DRAM."
    ),
    Metric("roofline.intensity.l2", "FLOP/byte", "useful FLOPs / traffic.l2_bytes", "Arithmetic intensity of L2."),
    Metric("roofline.roofs_flops_per_cycle.tensor", "FLOP/cycle", "peak of all SMs", "Compute roof."),
    Metric(
        "roofline.roofs_flops_per_cycle.dram", "FLOP/cycle", "intensity * DRAM rate", "DRAM roof at this intensity."
    ),
    Metric("roofline.roofs_flops_per_cycle.l2", "FLOP/cycle", "intensity * L2 rate", "L2 roof at this intensity."),
    Metric("roofline.achieved_flops_per_cycle", "FLOP/cycle", "useful FLOPs / cycles", "Rate of the run."),
    Metric("roofline.attainable_flops_per_cycle", "FLOP/cycle", "minimum of the roofs", "Lowest roof."),
    Metric("roofline.share_of_attainable", "share", "achieved / attainable", "How near the run is to its roof."),
    Metric(
        "instructions.total",
        "warp instructions",
        "count",
        "Warp instructions issued on the simulated SMs.",
        "sm__inst_executed.sum",
    ),
    Metric("instructions.by_pipe", "warp instructions", "count by pipe", "The same, by the pipe that executes them."),
    Metric("instructions.by_role", "warp instructions", "count by role", "The same, by the role that issues them."),
    Metric(
        "registers.peak_live", "registers a thread", "maximum over instructions", "Most registers with a needed value."
    ),
    Metric(
        "registers.allocated",
        "registers a thread",
        "maximum over roles",
        "Registers that the kernel asks for.",
        "launch__registers_per_thread",
    ),
    Metric(
        "registers.pool",
        "vector registers a subpartition",
        "pool_limit - pool_first",
        "Registers that pool tensors take, for all wefts together (mode fiber only).",
    ),
    Metric(
        "simulation.instructions_per_s", "warp instructions/s", "issued / wall_s", "Speed of the simulation itself."
    ),
    Metric("simulation.fast_forwarded", "share", "skipped cycles / cycles", "Cycles skipped as exact repeats."),
)

_STALL_MEANINGS = {
    Stall.SELECTED: "The warp issued an instruction; not a stall.",
    Stall.NOT_SELECTED: "Ready, but another warp of the subpartition was chosen; not a problem by itself.",
    Stall.WAIT: "Fixed latency: the stall count of the previous instruction.",
    Stall.LONG_SCOREBOARD: "Waits for a global-memory result or a group of asynchronous copies.",
    Stall.SHORT_SCOREBOARD: "Waits for shared memory, special functions, shuffles or tensor memory.",
    Stall.MATH_PIPE_THROTTLE: "The math pipe it wants is busy.",
    Stall.MIO_THROTTLE: "The queue for shared memory or bulk copies is full.",
    Stall.LG_THROTTLE: "The queue for global memory is full.",
    Stall.DISPATCH_STALL: "The register read ports are taken.",
    Stall.BARRIER: "Waits at a named barrier or a cluster barrier.",
    Stall.MBARRIER: "Waits for a phase of an mbarrier.",
    Stall.GMMA: "Waits for warp-group matrix instructions, their queue, or the order of registers before them.",
    Stall.MATRIX_SCOREBOARD: "Waits for the result of an mma.sync.",
    Stall.BRANCH_RESOLVING: "Waits after a taken branch.",
    Stall.NO_INSTRUCTION: "The CTA has just been launched, or the instruction is not fetched yet.",
    Stall.SEMAPHORE: "Waits for a semaphore in global memory.",
    Stall.DRAIN: "Exited with stores outstanding, or waits for bulk stores.",
    Stall.POOL_EMPTY: "FIBER: a source register is not filled yet.",
    Stall.POOL_FULL: "FIBER: the destination register is still in use.",
    Stall.READ_PORT: "FIBER: lost the arbitration for a read port.",
    Stall.FIBER_SYNC: "FIBER: waits at SET_FIBER_NUM.",
}
# Nsight attributes these waits to the instruction that spins or to the nearest reason of its own.
_NO_NSIGHT_NAME = {
    Stall.MATRIX_SCOREBOARD: "wait",
    Stall.MBARRIER: "long_scoreboard",
    Stall.SEMAPHORE: "long_scoreboard",
}


def nsight_stall(reason: Stall) -> str:
    """Return Nsight Compute's reason for a stall (`..._issue_stalled_<reason>_...`), empty for FIBER's own."""
    if reason >= Stall.POOL_EMPTY:
        return ""
    return _NO_NSIGHT_NAME.get(reason, reason.name.lower())


def _stall_metric(reason: Stall) -> Metric:
    nsight = nsight_stall(reason)
    return Metric(
        f"stalls.{stall_name(reason)}",
        "share",
        "warp cycles in this state / resident warp cycles",
        _STALL_MEANINGS[reason],
        f"smsp__average_warps_issue_stalled_{nsight}_per_issue_active.ratio" if nsight else "",
    )


METRICS: dict[str, Metric] = {m.id: m for m in (*_PLAIN, *(_stall_metric(reason) for reason in Stall))}
"""All metrics by id."""


def metric(identifier: str) -> Metric:
    """Return a metric by its id. Raises UserError with the legal ids for an unknown one."""
    if identifier not in METRICS:
        raise unknown_name("metric", identifier, METRICS)
    return METRICS[identifier]
