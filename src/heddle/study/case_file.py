"""Published measurements: the schema of a cases file, and reading one.

A cases file is CSV, one measurement a row. Heddle ships its own (`cases/*.csv`), every row with its public source; a
user's file has the same columns. Conventions (FLOPs, masks, layouts) are those of docs/reference/results.md.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heddle.errors import SourceLocation, UserError, unknown_name

PARAMETERS = ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "m", "n", "k")
"""Columns with sizes of a kernel; empty where the kernel has no such size."""

COLUMNS = (
    *("case_id", "gpu", "kernel", "direction", "causal", "dtype", *PARAMETERS, "measured", "unit", "measured_min"),
    *("measured_max", "clock_mhz", "implementation", "l2_state", "includes_launch", "power_note", "quality", "source"),
)
LEAST, MOST = 1e-6, 1e12
"""Bounds of every number of a case: beyond them it is a slip, and times would overflow."""
REQUIRED = ("case_id", "gpu", "kernel", "measured", "unit")
UNITS = ("us", "tflops", "cycles")
L2_STATES = ("warm", "cold", "flushed")
BACKWARD_FLOPS = {"fwd": 1.0, "bwd": 2.5, "fwd+bwd": 3.5}
LARGE = 1024  # a GEMM is large when m, n and k reach this
OWN_CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published measurement. `measured` in `unit`; the interval is that of several boxes, or the value itself."""

    case_id: str
    gpu: str
    kernel: str
    direction: str
    causal: bool
    dtype: str
    sizes: dict[str, int]
    measured: float
    unit: str
    measured_min: float
    measured_max: float
    clock_mhz: float | None
    implementation: str
    l2_state: str
    includes_launch: bool
    power_note: str
    quality: str
    source: str
    where: SourceLocation

    @property
    def family(self) -> str:
        """The rows of one campaign and kernel: the case id without its number and sizes."""
        return re.split(r"-(?=[bhs]?\d)", self.case_id, maxsplit=1)[0]

    @property
    def large(self) -> bool:
        """Whether m, n and k are all large (for kernels other than GEMM: whether there is no m, n, k)."""
        return all(self.sizes.get(name, LARGE) >= LARGE for name in ("m", "n", "k"))

    @property
    def flops(self) -> float:
        """Useful FLOPs: 2mnk, or those of attention, half if causal, times 2.5 or 3.5 with the backward pass."""
        s = self.sizes
        if "m" in s:
            return 2.0 * s["m"] * s["n"] * s["k"]
        forward = 4.0 * s["batch"] * s["heads_q"] * s["seqlen_q"] * s["seqlen_kv"] * s["head_dim"]
        return forward * (0.5 if self.causal else 1.0) * BACKWARD_FLOPS[self.direction]

    def microseconds(self, value: float) -> float:
        """Convert a value in the case's unit to microseconds."""
        if self.unit == "us":
            return value
        if self.unit == "tflops":
            return self.flops / value / 1e6
        if self.clock_mhz is None:
            raise UserError(f"case {self.case_id!r} is in cycles and states no clock_mhz", where=self.where)
        return value / self.clock_mhz

    def in_unit(self, microseconds: float) -> float:
        """Convert a time to the case's unit."""
        if self.unit == "us":
            return microseconds
        if self.unit == "tflops":
            return self.flops / microseconds / 1e6
        return microseconds * (self.clock_mhz or 0.0)

    @property
    def interval_us(self) -> tuple[float, float]:
        """The shortest and the longest measured time."""
        ends = self.microseconds(self.measured_min), self.microseconds(self.measured_max)
        return min(ends), max(ends)


class Lines(Protocol):
    """A reader of CSV: rows, and the line of the file in which the last one ended."""

    line_num: int

    def __next__(self) -> list[str]: ...

    def __iter__(self) -> Lines: ...


class _Row:
    """One row while it is read: typed access, errors that name line and column."""

    def __init__(self, cells: dict[str, str], where: SourceLocation) -> None:
        self.cells, self.where = cells, where

    def error(self, column: str, problem: str) -> UserError:
        return UserError(f"column {column!r}: {problem}", where=self.where)

    def text(self, column: str, default: str = "") -> str:
        return self.cells.get(column, "").strip() or default

    def choice(self, column: str, allowed: Iterable[str], default: str = "") -> str:
        value = self.text(column, default)
        if value not in allowed:
            raise unknown_name(f"value in column {column!r}:", value, allowed, where=self.where)
        return value

    def positive(self, column: str, default: float | None = None) -> float:
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"{text!r} is not a number") from None
        if not 0 < value < float("inf"):
            raise self.error(column, f"{text!r} must be a positive number")
        if not LEAST <= value <= MOST:
            raise self.error(column, f"{text!r} is not a size, time, rate or clock; allowed: {LEAST:g} to {MOST:g}")
        return value

    def size(self, column: str) -> int:
        value = self.positive(column)
        if value != int(value):
            raise self.error(column, f"{self.text(column)!r} must be a whole number")
        return int(value)

    def flag(self, column: str) -> bool:
        return self.choice(column, ("0", "1"), "0") == "1"


def _case(row: _Row) -> Case:
    for column in REQUIRED:
        if not row.text(column):
            raise row.error(column, "is empty; it is required")
    measured = row.positive("measured")
    case = Case(
        case_id=row.text("case_id"),
        gpu=row.text("gpu"),
        kernel=row.text("kernel"),
        direction=row.choice("direction", BACKWARD_FLOPS, "fwd"),
        causal=row.flag("causal"),
        dtype=row.text("dtype", "fp16"),
        sizes={name: row.size(name) for name in PARAMETERS if row.text(name)},
        measured=measured,
        unit=row.choice("unit", UNITS),
        measured_min=row.positive("measured_min", measured),
        measured_max=row.positive("measured_max", measured),
        clock_mhz=row.positive("clock_mhz") if row.text("clock_mhz") else None,
        implementation=row.text("implementation", "not stated"),
        l2_state=_l2_state(row),
        includes_launch=row.flag("includes_launch"),
        power_note=row.text("power_note"),
        quality=row.text("quality"),
        source=row.text("source", "not stated"),
        where=row.where,
    )
    needed = ("m", "n", "k") if "m" in case.sizes or case.kernel == "gemm" else PARAMETERS[:6]
    if missing := [name for name in needed if name not in case.sizes]:
        raise row.error(missing[0], f"is empty; {case.kernel} needs {', '.join(needed)}")
    if case.measured_min > case.measured_max:
        raise row.error("measured_min", f"{case.measured_min:g} is above measured_max {case.measured_max:g}")
    return case


def _l2_state(row: _Row) -> str:
    """The engine's state: `cold` rows whose note says that L2 was flushed hold the flush's data, partly dirty."""
    state = row.choice("l2_state", L2_STATES, "warm")
    return "flushed" if state == "cold" and "flush" in row.text("power_note").lower() else state


def read_cases(path: Path) -> list[Case]:
    """Read a cases file. Raises UserError with file, line and column on the first thing that is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise UserError(f"cannot read the cases file {str(path)!r}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the cases file {str(path)!r} is not UTF-8 text") from None
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        return _rows(reader, path)
    except csv.Error as problem:
        raise UserError(f"malformed CSV: {problem}", where=SourceLocation(str(path), reader.line_num)) from None


def _rows(lines: Lines, path: Path) -> list[Case]:
    header = [name.strip() for name in next(lines, [])]
    top = SourceLocation(str(path), 1)
    if missing := [name for name in REQUIRED if name not in header]:
        raise UserError(f"no column {missing[0]!r}; required are {', '.join(REQUIRED)}", where=top)
    for name in header:
        if name not in COLUMNS:
            raise unknown_name("column", name, COLUMNS, where=top)
        if header.count(name) > 1:
            raise UserError(f"column {name!r} is given {header.count(name)} times", where=top)
    cases: dict[str, Case] = {}
    for cells in lines:
        where = SourceLocation(str(path), lines.line_num)
        if not cells:
            continue
        if len(cells) != len(header):
            raise UserError(f"{len(cells)} columns, the header has {len(header)}", where=where)
        case = _case(_Row(dict(zip(header, cells, strict=True)), where))
        if case.case_id in cases:
            raise UserError(
                f"case {case.case_id!r} was already given in line {cases[case.case_id].where.line}", where=where
            )
        cases[case.case_id] = case
    return list(cases.values())


def own_cases() -> list[Case]:
    """The cases that Heddle ships, all files."""
    return [case for path in sorted(OWN_CASES.glob("*.csv")) for case in read_cases(path)]
