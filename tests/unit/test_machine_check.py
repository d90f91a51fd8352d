"""Does `replace` check what it changes, field by field and between fields?"""

import pytest

from heddle.errors import UserError
from heddle.machine import Machine, OpTiming, Pipe, machine


@pytest.fixture(scope="module")
def h100() -> Machine:
    """The H100 preset."""
    return machine("h100")


def test_replace_changes_only_what_is_named(h100: Machine) -> None:
    changed = h100.replace(sms=100)
    assert changed.sms == 100
    assert changed.replace(sms=h100.sms) == h100


def test_replace_leaves_the_original_alone(h100: Machine) -> None:
    h100.replace(ops={"FFMA": {"initiation_cycles": 2}})
    assert h100.ops["FFMA"].initiation_cycles == 1.0


def test_replace_takes_part_of_an_opcode(h100: Machine) -> None:
    timing = h100.replace(ops={"FFMA": {"initiation_cycles": 2}}).ops["FFMA"]
    assert timing == OpTiming(pipe="fma", initiation_cycles=2.0, latency_cycles=4)


def test_replace_takes_a_dotted_name(h100: Machine) -> None:
    assert h100.replace(**{"ops.HMMA.16816.initiation_cycles": 4}).ops["HMMA.16816"].initiation_cycles == 4.0
    assert h100.replace(**{"tensor_rate_scale.fp8_e4m3": 1.5}).tensor_rate_scale["fp8_e4m3"] == 1.5


def test_replace_takes_dataclasses(h100: Machine) -> None:
    fast = OpTiming(pipe="exp", initiation_cycles=1.0, latency_cycles=10)
    changed = h100.replace(pipes={"exp": Pipe(name="exp", scope="subpartition")}, ops={"MUFU": fast})
    assert changed.ops["MUFU"] == fast


def test_replace_records_that_it_was_the_user(h100: Machine) -> None:
    assert h100.replace(sms=100).provenance["sms"].source == "replace()"


BROKEN = {
    "unknown field": ({"sm": 3}, "unknown machine field 'sm'"),
    "zero SMs": ({"sms": 0}, "sms = 0: input should be greater than 0"),
    "text for a number": ({"sms": "12"}, "sms = '12': input should be a valid integer"),
    "not finite": ({"dram_gbytes_per_s": float("inf")}, "dram_gbytes_per_s = inf: input should be a finite number"),
    "port share of one": (
        {"tensor_port_share": 1.0},
        "tensor_port_share = 1.0: input should be less than or equal to 0.999999",
    ),
    "CTA above SM": ({"shared_memory_bytes_per_cta": 300000}, "must not exceed shared_memory_bytes = 233472"),
    "near above far": (
        {"l2_far_latency_cycles": 100},
        "l2_near_latency_cycles = 260 must not exceed l2_far_latency_cycles",
    ),
    "burst below sustained": ({"clock_burst_mhz": 1000.0}, "must not exceed clock_burst_mhz = 1000"),
    "LDS and field disagree": (
        {"shared_load_latency_cycles": 30},
        "must equal ops.LDS.latency_cycles = 29; change both",
    ),
    "registers": ({"vector_registers": 2047}, "vector_registers = 2047 must be a multiple of subpartitions = 4"),
    "too many registers": ({"max_registers_per_thread": 256}, "max_registers_per_thread must be at most 255"),
    "unknown opcode": (
        {"ops": {"FFMAX": {"pipe": "fma", "initiation_cycles": 1, "latency_cycles": 4}}},
        "unknown opcode 'FFMAX'",
    ),
    "unknown pipe": ({"ops.FFMA.pipe": "nowhere"}, "unknown pipe of ops.FFMA 'nowhere'"),
    "half an opcode": ({"ops": {"FFMA.new": {"pipe": "fma"}}}, "ops.FFMA.new.initiation_cycles is missing"),
    "no queue": ({"wgmma_queue_depth": 0}, "wgmma_queue_depth must be positive on sm_90"),
    "other architecture": ({"architecture": "sm_100"}, "ops has no timing for FADD2, which sm_100 executes"),
    "unknown architecture": (
        {"architecture": "sm_75"},
        "architecture = 'sm_75': input should be 'sm_80', 'sm_90' or 'sm_100'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_replace_refuses(name: str, h100: Machine) -> None:
    changes, message = BROKEN[name]
    with pytest.raises(UserError) as caught:
        h100.replace(**changes)
    assert message in str(caught.value)


def test_tcgen05_table_must_be_complete() -> None:
    b200 = machine("b200")
    table = {k: v for k, v in b200.tcgen05_latency_cycles.items() if k != "ts_m64_1cta"}
    from heddle.machine.check import built, plain

    values = plain(b200) | {"tcgen05_latency_cycles": table}
    with pytest.raises(UserError, match="tcgen05_latency_cycles has no entry for ts_m64_1cta"):
        built(values, {}, lambda _: None)
