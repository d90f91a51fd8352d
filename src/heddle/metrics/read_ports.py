"""How much of the register read ports a run takes, where matrix instructions take a share of them (sm_90).

Instructions take a port cycle for each register of a bank that no operand cache holds; the cache is counted as if it
held all that it can, so that a share is a lower bound. Products take at least `tensor_port_share` while they run.
"""

from __future__ import annotations

from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.metrics._pipes import issues_by_pc
from heddle.sim.prepare_fiber import bases, is_remote
from heddle.sim.prepare_ports import port_reads
from heddle.sim.result import SimResult

BANK_BITS = 8  # of a bank in `PortReads`


def read_ports(result: SimResult, program: WarpProgram, machine: Machine) -> dict[str, float]:
    """Return the shares of all port cycles that `instructions` and `products` take, at least; empty on other machines.

    Registers of other subpartitions are not counted.
    """
    if not machine.tensor_port_share:
        return {}
    base = bases(program) if program.mode == "fiber" else {}
    taken = 0
    for pc, issued in enumerate(issues_by_pc(result)):
        remote = program.mode == "fiber" and is_remote(program.instructions[pc])
        packed = port_reads(program, machine, pc, set(), base.get(pc, 0), remote=remote).reuse if issued else 0
        taken += int(issued) * sum(packed >> BANK_BITS * bank & 0xFF for bank in range(machine.register_banks))
    cycles = max(1, result.cycles) * max(1, result.simulated_sms)
    return {
        "instructions": taken / (cycles * machine.subpartitions * machine.register_banks),
        "products": machine.tensor_port_share * result.tensor_busy_cycles / cycles,
    }
