"""The Verilog of the units: where it is, and the parameters that a machine gives it."""

from __future__ import annotations

import re
from pathlib import Path

from heddle.errors import UserError
from heddle.machine.spec import Machine

FOLDER = Path(__file__).resolve().parents[3] / "rtl"
QUAD = 4
"""Registers that an operand of a SIMD instruction has at most; a quad lies in all banks."""
_PARAMETER = re.compile(r"^\s*parameter\s+(?:\[[^]]*\]\s*)?(\w+)\s*=", re.MULTILINE)


def sources() -> list[Path]:
    """Return all modules, one a file. Raises UserError where the folder is missing (an installed package has none)."""
    files = sorted(FOLDER.glob("*.v"))
    if not files:
        raise UserError(f"there is no Verilog in {FOLDER}", hint="run from a clone of the repository")
    return files


def parameters_of(machine: Machine, module: str) -> dict[str, int]:
    """Return the parameters of a module for a machine with FIBER features.

    Raises UserError where the units cannot be built so: the addresses of registers need powers of two.
    """
    registers = machine.vector_registers // machine.subpartitions
    _check(machine, registers)
    values = {
        "SUBPARTITIONS": machine.subpartitions,
        "BANKS": machine.register_banks,
        "REGISTERS": registers,
        "CONTEXTS": machine.max_wefts_per_subpartition,
        "DELAY": machine.busy_bit_broadcast_cycles,
        "SYNC_CYCLES": machine.set_fiber_num_cycles,
    }
    declared = _PARAMETER.findall((FOLDER / f"{module}.v").read_text("utf-8"))
    return {name: value for name, value in values.items() if name in declared}


def _check(machine: Machine, registers: int) -> None:
    powers = {
        "subpartitions": machine.subpartitions,
        "register_banks": machine.register_banks,
        "vector_registers / subpartitions": registers,
        "max_wefts_per_subpartition": machine.max_wefts_per_subpartition,
    }
    for name, value in powers.items():
        if value < 1 or value & (value - 1):
            raise UserError(f"{name} of {machine.name} is {value}; the hardware units need a power of two")
    if machine.register_banks > QUAD:
        raise UserError(f"register_banks of {machine.name} is {machine.register_banks}; the units have at most {QUAD}")
    if machine.register_reads_per_bank_per_cycle != 1:
        raise UserError(f"register_reads_per_bank_per_cycle of {machine.name} is not 1, as the units have it")
