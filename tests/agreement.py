"""Compares two results of one program, count by count."""

from __future__ import annotations

import numpy as np

from heddle.ir.warp import WarpProgram
from heddle.ir.warp_text import print_program
from heddle.sim.result import SimResult, Stall

NUMBERS = [
    "cycles",
    "sm_cycles",
    "warp_instructions",
    "issue_slots_used",
    "active_warp_cycles",
    "tensor_busy_cycles",
    "dram_read_bytes",
    "dram_write_bytes",
    "l2_read_bytes",
    "l2_write_bytes",
    "shared_bytes",
    "simulated_sms",
    "pipe_busy",
    "pipe_instances",
    "fiber",
    "warnings",
]
TABLES = ["stalls", "stalls_pc", "warp_role"]
SHOWN = 6  # differing entries of a table


def differences(expected: SimResult, got: SimResult) -> list[str]:
    """Return what differs between two results, in words."""
    lines = []
    for name in NUMBERS:
        want, have = getattr(expected, name), getattr(got, name)
        if want != have:
            lines.append(f"{name}: expected {want}, got {have}")
    for name in TABLES:
        lines += _table(name, getattr(expected, name), getattr(got, name))
    return lines


def _table(name: str, expected: np.ndarray, got: np.ndarray) -> list[str]:
    if expected.shape != got.shape:
        return [f"{name}: expected shape {expected.shape}, got {got.shape}"]
    places = np.argwhere(expected != got)
    return [
        f"{name}[{place[0]}{', ' + Stall(int(place[1])).name if len(place) > 1 else ''}]: "
        f"expected {expected[tuple(place)]}, got {got[tuple(place)]} ({len(places)} places differ)"
        for place in places[:SHOWN]
    ]


def report(seed: int, program: WarpProgram, options: dict[str, str], lines: list[str]) -> str:
    """Return a message from which the case can be run again."""
    head = [f"engines disagree on random_case({seed}) with {options}:", *lines]
    return "\n".join([*head, "the program:", print_program(program)])
