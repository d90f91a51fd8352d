"""Rules between fields of a machine, and `checked`: a changed machine, checked as a file is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from heddle.errors import SourceLocation, UserError, unknown_name
from heddle.ir.opcodes import OPCODES
from heddle.machine.fields import FIELDS, MAPPING_UNITS
from heddle.machine.model import Place, validated
from heddle.machine.opset import FIBER_OPCODES, opcodes_of
from heddle.machine.spec import Machine, OpTiming, Pipe, Provenance

Problem = tuple[tuple[str, ...], str, str]
"""Key path at fault, what is wrong, and a hint."""

_TCGEN05_FORMS = [
    f"{form}_m{m}_{ctas}cta" for form in ("ss", "ts") for m, ctas in ((64, 1), (128, 1), (128, 2), (256, 2))
]
_EITHER = "change one of them, in this file or in the one it inherits from"
_AT_MOST = [
    ("shared_memory_bytes_per_cta", "shared_memory_bytes"),
    ("l2_near_latency_cycles", "l2_far_latency_cycles"),
    ("shared_load_latency_cycles", "l2_near_latency_cycles"),
    ("clock_sustained_mhz", "clock_burst_mhz"),
    ("clock_burst_mhz", "max_clock_mhz"),
    ("tensor_peak_clock_mhz", "max_clock_mhz"),
    ("subpartitions", "max_warps_per_sm"),
]


def problems(machine: Machine) -> Iterator[Problem]:
    """Yield every rule between fields that the machine breaks."""
    for rule in (_name, _orders, _shared_memory, _register_file, _opcodes, _asynchronous_units, _fiber):
        yield from rule(machine)


def _name(machine: Machine) -> Iterator[Problem]:
    if not (machine.name.strip() and machine.name.isprintable()):
        yield ("name",), f"name = {machine.name!r} must be a short name of printable letters", ""


def _orders(machine: Machine) -> Iterator[Problem]:
    for low, high in _AT_MOST:
        a, b = getattr(machine, low), getattr(machine, high)
        if a > b:
            yield (low,), f"{low} = {a:g} must not exceed {high} = {b:g}", _EITHER


def _shared_memory(machine: Machine) -> Iterator[Problem]:
    if machine.ops["LDS"].latency_cycles != machine.shared_load_latency_cycles:
        yield (
            ("shared_load_latency_cycles",),
            f"shared_load_latency_cycles = {machine.shared_load_latency_cycles} must equal"
            f" ops.LDS.latency_cycles = {machine.ops['LDS'].latency_cycles}; change both",
            "",
        )


def _register_file(machine: Machine) -> Iterator[Problem]:
    if machine.vector_registers % machine.subpartitions:
        yield (
            ("vector_registers",),
            f"vector_registers = {machine.vector_registers} must be a multiple of"
            f" subpartitions = {machine.subpartitions}",
            "",
        )
    if machine.max_registers_per_thread > 255:
        yield (
            ("max_registers_per_thread",),
            "max_registers_per_thread must be at most 255 (8-bit index; 255 reads as zero)",
            "",
        )


def _opcodes(machine: Machine) -> Iterator[Problem]:
    for key, timing in machine.ops.items():
        if key not in OPCODES and key.rsplit(".", 1)[0] not in OPCODES and key.split(".", 1)[0] not in OPCODES:
            error = unknown_name("opcode", key, OPCODES)
            yield ("ops", key), error.message, error.hint
        if timing.pipe not in machine.pipes:
            error = unknown_name(f"pipe of ops.{key}", timing.pipe, machine.pipes)
            yield ("ops", key, "pipe"), error.message, error.hint
    for missing in sorted(opcodes_of(machine.architecture) - machine.ops.keys()):
        yield ("ops",), f"ops has no timing for {missing}, which {machine.architecture} executes", ""


def _asynchronous_units(machine: Machine) -> Iterator[Problem]:
    if machine.architecture == "sm_90" and not machine.wgmma_queue_depth:
        yield ("wgmma_queue_depth",), "wgmma_queue_depth must be positive on sm_90", ""
    if machine.architecture == "sm_100":
        if not machine.tcgen05_queue_depth:
            yield ("tcgen05_queue_depth",), "tcgen05_queue_depth must be positive on sm_100", ""
        for name in (
            "tensor_memory_columns",
            "tensor_memory_read_bytes_per_cycle",
            "tensor_memory_write_bytes_per_cycle",
        ):
            if not getattr(machine, name):
                yield (name,), f"{name} must be positive on sm_100", ""
        for form in _TCGEN05_FORMS:
            if form not in machine.tcgen05_latency_cycles:
                yield ("tcgen05_latency_cycles",), f"tcgen05_latency_cycles has no entry for {form}", ""
    for dtype in ("fp16", "bf16"):
        if dtype not in machine.tensor_rate_scale:
            yield ("tensor_rate_scale",), f"tensor_rate_scale has no entry for {dtype}", ""


def _fiber(machine: Machine) -> Iterator[Problem]:
    """Features build on each other, and need their opcodes and sizes."""
    features = ("dynamic_parallelism", "fine_scheduling", "register_sharing")
    on = [name for name in features if getattr(machine, name)]
    if not on:
        return
    for name in on:
        if not machine.dynamic_parallelism:
            yield (name,), f"{name} needs dynamic_parallelism: registers that belong to no warp", ""
    for name in ("max_wefts_per_subpartition", "matrix_queue_depth", "operand_prefetch_steps"):
        if getattr(machine, name) < 1:
            yield (name,), f"{name} = {getattr(machine, name)}: machines with {on[0]} need 1 or more", ""
    for missing in sorted(FIBER_OPCODES - machine.ops.keys()):
        yield ("ops",), f"ops has no timing for {missing}, which {on[0]} needs", ""


def built(values: Mapping[str, Any], provenance: Mapping[str, Provenance], place: Place) -> Machine:
    """Turn plain values into a Machine. Raises UserError for the first bad value or broken rule."""
    checked_values = dict(validated(values, place))
    pipes = {k: Pipe(name=k, scope=v.scope) for k, v in checked_values.pop("pipes").items()}
    ops = {k: OpTiming(**dict(v)) for k, v in checked_values.pop("ops").items()}
    machine = Machine(**checked_values, pipes=pipes, ops=ops, provenance=dict(provenance))
    for path, message, hint in problems(machine):
        raise UserError(message, where=_nearest_place(path, place), hint=hint)
    return machine


def _nearest_place(path: tuple[str, ...], place: Place) -> SourceLocation | None:
    for length in range(len(path), 0, -1):
        if found := place(path[:length]):
            return found
    return None


def plain(machine: Machine) -> dict[str, Any]:
    """Return all values of a machine as numbers, strings and dictionaries, without provenance."""
    values = machine.as_dict()
    values["pipes"] = {k: {"scope": p.scope} for k, p in machine.pipes.items()}
    values["ops"] = {k: dataclasses.asdict(t) for k, t in machine.ops.items()}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def unknown_field(name: str, where: SourceLocation | None = None) -> UserError:
    """Build the error for a field that machines do not have; the full list is long, so it names the page."""
    error = unknown_name("machine field", name, [*FIELDS, *MAPPING_UNITS], where)
    hint = f"{error.hint} " if error.hint else ""
    hint += "all fields: `heddle machines h100`, docs/reference/machine.md"
    return UserError(f"unknown machine field {name!r}", where=where, hint=hint)


def merge(values: dict[str, Any], field: str, change: Any, where: SourceLocation | None) -> list[str]:
    """Set a field in plain values; a mapping field keeps the entries, and an opcode the parts, that `change` omits.

    Returns the keys that changed, as `provenance` names them. Raises UserError on an unknown field.
    """
    if field not in FIELDS and field not in MAPPING_UNITS:
        raise unknown_field(field, where)
    if field not in MAPPING_UNITS:
        values[field] = change
        return [field]
    if not isinstance(change, Mapping):
        raise UserError(f"{field} = {change!r}: needs a table of entries", where=where)
    merged = dict(values.get(field, {}))
    for key, entry in change.items():
        if isinstance(entry, (OpTiming, Pipe)):
            entry = {k: v for k, v in dataclasses.asdict(entry).items() if k != "name"}
        old = merged.get(key)
        merged[key] = {**old, **entry} if isinstance(old, Mapping) and isinstance(entry, Mapping) else entry
    values[field] = merged
    return [f"{field}.{key}" for key in change]


def checked(machine: Machine, changes: Mapping[str, Any]) -> Machine:
    """Return `machine` with fields changed and everything checked again.

    A change is `field=value`, `ops={"FFMA": {"initiation_cycles": 2}}`, or with a dotted name
    `**{"ops.FFMA.initiation_cycles": 2}` (the opcode may itself contain dots). Raises UserError.
    """
    values = plain(machine)
    provenance = dict(machine.provenance)
    for name, change in changes.items():
        field, nested = _nested(name, change)
        for key in merge(values, field, nested, None):
            unit = MAPPING_UNITS.get(field) or FIELDS[field].unit
            provenance[key] = Provenance(unit=unit, kind="assumed", source="replace()", note="changed by the user")
    return built(values, provenance, lambda _: None)


def _nested(name: str, change: Any) -> tuple[str, Any]:
    """Turn a dotted name into a field and a nested change."""
    field, _, rest = name.partition(".")
    if not rest:
        return field, change
    if field != "ops":
        return field, {rest: change}
    opcode, _, part = rest.rpartition(".")
    return (
        ("ops", {opcode: {part: change}})
        if part in {"pipe", "initiation_cycles", "latency_cycles"}
        else ("ops", {rest: change})
    )
