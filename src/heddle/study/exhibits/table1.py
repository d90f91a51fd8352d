"""Table I: what GPU generations have and what FIBER adds. Every cell is read from a machine description."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from heddle.ir.opcodes import OPCODES, Unit
from heddle.machine.load import machine as load_machine
from heddle.machine.spec import Machine
from heddle.study.exhibits._exhibit import Answer, Exhibit
from heddle.study.pool import Progress

GPUS = ("a100", "h100", "b200", "a100+fiber", "h100+fiber", "b200+fiber")
WARP_GROUP = 4
"""Warps of a warp-group matrix instruction (engine.md, section 4)."""
PAIR = 2
"""CTAs of a tcgen05 pair."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A line of the table: what it says, the fields of a machine that its cells come from, and the cell."""

    name: str
    fields: tuple[str, ...]
    cell: Callable[[Machine], str]


def table(machines: Iterable[Machine]) -> Answer:
    """Return `gpus` and `rows`, each with `feature`, `fields` and a cell for each GPU, by name."""
    columns = list(machines)
    rows = [
        {"feature": line.name, "fields": list(line.fields), "cells": {m.name: line.cell(m) for m in columns}}
        for line in FEATURES
    ]
    return {"gpus": [machine.name for machine in columns], "rows": rows}


def _answer(jobs: int | None, progress: Progress | None) -> Answer:
    return table(load_machine(name) for name in GPUS)


def _flag(name: str) -> Callable[[Machine], str]:
    return lambda machine: "yes" if getattr(machine, name) else "no"


def _value(name: str, unit: str = "") -> Callable[[Machine], str]:
    return lambda machine: f"{getattr(machine, name):,}{unit}"


def opcodes(machine: Machine, *units: Unit, named: str = "") -> list[str]:
    """Return the opcodes of these units, or whose name begins so, that the machine has a timing for."""
    return [
        name
        for name, opcode in OPCODES.items()
        if name in machine.ops and (opcode.unit in units or (named and name.startswith(named)))
    ]


def matrix_unit(machine: Machine) -> Unit | None:
    """Return the unit of the machine's latest matrix instructions; None where products are mma.sync alone."""
    newest = (Unit.WEFT_MMA, Unit.TCGEN05_MMA, Unit.WGMMA)
    fits = [unit for unit in newest if opcodes(machine, unit)]
    if not machine.fine_scheduling and Unit.WEFT_MMA in fits:
        fits.remove(Unit.WEFT_MMA)
    return fits[0] if fits else None


def _owner(machine: Machine) -> str:
    if not machine.dynamic_parallelism:
        return "thread"
    return "SM" if _shared_by_sm(machine) else "subpartition"


def _shared_by_sm(machine: Machine) -> bool:
    return machine.register_sharing and machine.sharing_scope == "sm"


def _addressable(machine: Machine) -> str:
    """Registers that a source operand can name."""
    if not machine.dynamic_parallelism:
        return f"{machine.max_registers_per_thread:,}"
    return f"{machine.vector_registers // (1 if _shared_by_sm(machine) else machine.subpartitions):,}"


def _parallelism(machine: Machine) -> str:
    changes = opcodes(machine, Unit.SET_FIBER_NUM) if machine.dynamic_parallelism else []
    moves = opcodes(machine, Unit.SET_REGISTERS)
    if changes:
        return f"changes: {changes[0]}"
    return f"fixed; registers move: {moves[0]}" if moves else "fixed"


def _contexts(machine: Machine) -> str:
    wefts = machine.max_wefts_per_subpartition * machine.subpartitions
    return f"{wefts if machine.dynamic_parallelism else machine.max_warps_per_sm:,}"


def _matrix(machine: Machine) -> str:
    unit = matrix_unit(machine)
    names = opcodes(machine, unit) if unit else opcodes(machine, named="HMMA")
    return ", ".join(name for name in names if machine.tensor_memory_columns or not name.endswith(".TM"))


def _supply(machine: Machine) -> str:
    unit = matrix_unit(machine)
    if unit is None:
        return "registers of the warp"
    if unit is Unit.WEFT_MMA:
        return f"registers of the {_owner(machine)}, shared memory"
    return "shared memory, tensor memory" if machine.tensor_memory_columns else "shared memory, registers of the warp"


def _accumulators(machine: Machine) -> str:
    if machine.tensor_memory_columns:
        return "tensor memory"
    return f"registers of the {'weft' if matrix_unit(machine) is Unit.WEFT_MMA else 'warp'}"


def _one_fetch(machine: Machine) -> str:
    """Which warps use what one product fetches of B."""
    spans = {
        None: "1 warp",
        Unit.WGMMA: f"{WARP_GROUP} warps",
        Unit.TCGEN05_MMA: f"{PAIR if machine.max_cluster_size >= PAIR else 1} SMs",
        Unit.WEFT_MMA: f"{machine.subpartitions} wefts",
    }
    return spans[matrix_unit(machine)]


def _granularity(machine: Machine) -> str:
    """The unit in which dependences between warps are tracked."""
    if machine.fine_scheduling:
        return f"register: {2 * machine.vector_registers:,} full and empty bits"
    phases = opcodes(machine, Unit.MBARRIER_WAIT)
    return f"phase of a barrier: {phases[0]}" if phases else "barrier of warps: BAR.SYNC"


def _copies(machine: Machine) -> str:
    return ", ".join([*opcodes(machine, named="LDGSTS"), *opcodes(machine, Unit.BULK_LOAD)])


def _ports(machine: Machine) -> str:
    per_bank = machine.register_banks * machine.register_reads_per_bank_per_cycle
    return f"{per_bank * (machine.subpartitions if _shared_by_sm(machine) else 1)}"


FEATURES = (
    Feature("dynamic parallelism", ("dynamic_parallelism",), _flag("dynamic_parallelism")),
    Feature("fine-grained scheduling", ("fine_scheduling",), _flag("fine_scheduling")),
    Feature("register sharing", ("register_sharing",), _flag("register_sharing")),
    Feature("registers belong to a", ("dynamic_parallelism", "register_sharing", "sharing_scope"), _owner),
    Feature(
        "registers a source can name",
        ("max_registers_per_thread", "vector_registers", "subpartitions", "register_sharing", "sharing_scope"),
        _addressable,
    ),
    Feature("register read ports in reach",
            ("register_banks", "register_reads_per_bank_per_cycle", "subpartitions", "register_sharing"), _ports),
    Feature("parallel instances in a kernel", ("dynamic_parallelism", "ops"), _parallelism),
    Feature("contexts of an SM", ("max_warps_per_sm", "max_wefts_per_subpartition", "dynamic_parallelism"), _contexts),
    Feature("dependences across warps by", ("fine_scheduling", "vector_registers", "ops"), _granularity),
    Feature("matrix instructions", ("ops", "fine_scheduling", "tensor_memory_columns"), _matrix),
    Feature("operands of products from", ("ops", "fine_scheduling", "tensor_memory_columns", "register_sharing"),
            _supply),
    Feature("a fetch of B is used by", ("ops", "fine_scheduling", "max_cluster_size", "subpartitions"), _one_fetch),
    Feature("accumulators in", ("tensor_memory_columns", "ops", "fine_scheduling"), _accumulators),
    Feature("asynchronous copies", ("ops",), _copies),
    Feature("CTAs of a cluster at most", ("max_cluster_size",), _value("max_cluster_size")),
    Feature("fp16 FLOP a cycle and SM", ("tensor_flops_per_cycle",), _value("tensor_flops_per_cycle")),
    Feature("shared memory of an SM", ("shared_memory_bytes",), _value("shared_memory_bytes", " B")),
)  # fmt: skip

TABLE1 = Exhibit(
    name="table1", title="Features of GPU generations and of FIBER", where="Table I, end of the motivation",
    answer=_answer,
)  # fmt: skip
