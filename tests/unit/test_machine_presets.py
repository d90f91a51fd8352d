"""Are the presets complete, sourced and within the budget of fitted values?"""

import dataclasses
import tomllib

import pytest

from heddle.ir.opcodes import OPCODES
from heddle.machine import available, describe, fitted, json_schema, machine
from heddle.machine.fields import FIELDS, MAPPING_UNITS, OPTIONAL_GROUP
from heddle.machine.load import PRESETS, sources
from heddle.machine.opset import FIBER_OPCODES, HYPOTHETICAL_OPCODES, opcodes_of
from heddle.machine.spec import Machine

CLOCK = ("clock_burst_mhz", "clock_sustained_mhz", "clock_time_constant_ms")


def test_the_four_presets_are_available() -> None:
    assert available() == ["a100", "b200", "h100", "h200"]


def test_fields_and_dataclass_name_the_same_things() -> None:
    names = {field.name for field in dataclasses.fields(Machine)} - {"provenance"}
    assert names == FIELDS.keys() | MAPPING_UNITS.keys()


@pytest.mark.parametrize("name", [*available(), "a100+fiber", "h100+fiber", "b200+fiber"])
def test_every_value_has_unit_kind_source(name: str) -> None:
    bare = [row.field for row in describe(machine(name)) if not row.source and FIELDS.get(row.field, None) is None]
    bare += [r.field for r in describe(machine(name)) if r.unit != "text" and not (r.unit and r.kind and r.source)]
    assert [field for field in bare if not field.startswith("pipes.")] == []


@pytest.mark.parametrize("name", available())
def test_every_source_is_resolved(name: str) -> None:
    rows = describe(machine(name))
    assert {row.source for row in rows if row.source in sources() or "/src/" in row.source} == set()


def test_every_source_key_in_a_preset_exists() -> None:
    used = set()
    for name in available():
        raw = tomllib.loads((PRESETS / f"{name}.toml").read_text(encoding="utf-8"))
        entries = [v for v in raw.values() if isinstance(v, dict)]
        entries += [e for v in entries for e in v.values() if isinstance(e, dict)]
        used |= {entry["source"] for entry in entries if "source" in entry}
    assert used - sources().keys() == set()


@pytest.mark.parametrize("name", available())
def test_at_most_eight_fitted_values_three_of_them_clock(name: str) -> None:
    rows = fitted(machine(name))
    assert len(rows) <= 8
    assert sum(row.field.startswith("clock_") for row in rows) <= 3


@pytest.mark.parametrize("name", available())
def test_fitted_values_name_their_cases(name: str) -> None:
    assert [row.field for row in fitted(machine(name)) if "-" not in row.note] == []


@pytest.mark.parametrize("name", available())
def test_every_opcode_of_the_architecture_has_a_timing(name: str) -> None:
    gpu = machine(name)
    assert opcodes_of(gpu.architecture) - gpu.ops.keys() == set()


def test_opcodes_of_other_generations_are_absent() -> None:
    assert "HGMMA" not in machine("b200").ops
    assert "UTCHMMA" not in machine("h100").ops
    assert "UTMALDG" not in machine("a100").ops


def test_h200_is_an_h100_with_more_memory() -> None:
    h100, h200 = machine("h100"), machine("h200")
    assert h200.ops == h100.ops
    assert h200.dram_gbytes_per_s > h100.dram_gbytes_per_s


@pytest.mark.parametrize(("name", "tflops"), [("a100", 312), ("h100", 989), ("b200", 2225)])
def test_the_vendor_peak_follows_from_the_preset(name: str, tflops: float) -> None:
    gpu = machine(name)
    peak = gpu.sms * gpu.tensor_flops_per_cycle * gpu.tensor_peak_clock_mhz * 1e6 / 1e12
    assert peak == pytest.approx(tflops, rel=0.01)


def test_op_timing_prefers_the_most_specific_key() -> None:
    h100 = machine("h100")
    half = h100.op_timing("HMMA", shape=(16, 8, 8), dtype="fp16")
    tf32 = h100.op_timing("HMMA", shape=(16, 8, 8), dtype="tf32")
    assert tf32.initiation_cycles == 2 * half.initiation_cycles
    assert h100.op_timing("HGMMA", form="rs").initiation_cycles < h100.op_timing("HGMMA", form="ss").initiation_cycles
    assert h100.op_timing("FFMA", dtype="fp16") == h100.ops["FFMA"]


def test_op_timing_refuses_an_opcode_of_another_generation() -> None:
    from heddle.errors import UserError

    with pytest.raises(UserError, match=r"(?s)unknown opcode on a100 \(sm_80\) 'HGMMA'.*did you mean 'HMMA'") as caught:
        machine("a100").op_timing("HGMMA")
    assert "UTMALDG" not in str(caught.value)


def test_every_opcode_exists_somewhere() -> None:
    assert (
        frozenset().union(*(opcodes_of(a) for a in ("sm_80", "sm_90", "sm_100"))) | FIBER_OPCODES | HYPOTHETICAL_OPCODES
        == OPCODES.keys()
    )


@pytest.mark.parametrize("name", available())
def test_fiber_is_laid_over_a_machine_without_changing_the_rest(name: str) -> None:
    plain, fiber = machine(name).as_dict(), machine(f"{name}+fiber").as_dict()
    changed = {field for field in plain if plain[field] != fiber[field]}
    optional = {field for field, info in FIELDS.items() if info.group == OPTIONAL_GROUP}
    assert changed <= optional | {"name", "ops"}
    assert fiber["ops"].keys() - plain["ops"].keys() == FIBER_OPCODES


def test_the_schema_knows_every_field() -> None:
    assert json_schema()["properties"].keys() == FIELDS.keys() | MAPPING_UNITS.keys()


def test_loading_twice_gives_equal_machines() -> None:
    assert machine("b200") == machine("b200")
