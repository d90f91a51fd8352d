"""The oracles and switches of a comparison: what today's kernel would gain if a kind of dependence were gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from heddle.study.paper import gtsim_error, oracle_speedup
from heddle.study.requests import Request

Row = dict[str, Any]

ORACLES: tuple[tuple[str, ...], ...] = (("dp",), ("fs",), ("rs",), ("dp", "fs", "rs"))
SWITCHES: tuple[tuple[str, ...], ...] = (
    ("order",),
    ("barriers",),
    ("order", "barriers"),
    ("barriers", "data"),
    ("order", "barriers", "data"),
)
ARCHITECTURE = "sm_90"
"""The paper studies FlashAttention 3 and GTSim the H100: elsewhere an ablation asks for no oracles."""


def questions(at: Request) -> dict[str, Request]:
    """Return the questions by name: the baseline's, with something idealised."""
    asked = {name_of("oracle", names): dataclasses.replace(at, oracle=names) for names in ORACLES}
    return asked | {name_of("off", names): dataclasses.replace(at, off=names) for names in SWITCHES}


def name_of(kind: str, names: tuple[str, ...]) -> str:
    """Return the name of a question among the parts of a comparison."""
    return f"{kind} {','.join(names)}"


def oracles(at: Request, baseline: Row, results: Mapping[str, Row], absent: Mapping[str, str]) -> list[Row]:
    """Return one row an oracle: cycles, speed-up, the paper's speed-up."""
    rows = []
    for names in ORACLES:
        name = name_of("oracle", names)
        found = results.get(name)
        paper = oracle_speedup(at.machine.architecture, names) if at.kernel == "attention" else None
        rows.append({"oracle": list(names), **_figures(baseline, found, absent.get(name, "")), "paper": paper})
    return rows


def switches(baseline: Row, results: Mapping[str, Row], absent: Mapping[str, str]) -> list[Row]:
    """Return one row a set of switches: cycles, change of time, GTSim's error without the same edges."""
    rows = []
    for names in SWITCHES:
        name = name_of("off", names)
        found = results.get(name)
        change = found["cycles"] / baseline["cycles"] - 1 if found else None
        figures = _figures(baseline, found, absent.get(name, ""))
        rows.append({"off": list(names), **figures, "change": change, "gtsim_error_percent": gtsim_error(names)})
    return rows


def _figures(baseline: Row, row: Row | None, absent: str) -> Row:
    return {
        "cycles": row["cycles"] if row else None,
        "speedup": baseline["cycles"] / row["cycles"] if row else None,
        "tensor_utilization": row["tensor_utilization"] if row else None,
        "absent": absent,
    }
