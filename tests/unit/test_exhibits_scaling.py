"""Does the scaling study vary what it says, and show what its counters say?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heddle import pipeline
from heddle.machine import machine
from heddle.report.exhibits import scaling as view
from heddle.report.exhibits.views import draw_all
from heddle.study.exhibits.registry import EXHIBITS
from heddle.study.exhibits.scaling import SUPPLIES, beside, measured, study
from heddle.study.exhibits.scaling_machine import HEADROOM, scaled

SMALL = {"m": 512, "n": 512, "k": 512}


def test_mma_sync_has_the_rate_of_the_machine() -> None:
    fast = scaled(machine("a100"), 8192)
    assert 2 * 16 * 8 * 16 * fast.subpartitions / fast.ops["HMMA.16816"].initiation_cycles == 8192
    assert fast.ops["HMMA.1688.tf32"].initiation_cycles == machine("a100").ops["HMMA.1688.tf32"].initiation_cycles / 4


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_memory_keeps_its_bytes_a_flop_times_the_headroom(gpu: str) -> None:
    base = machine(gpu)
    fast = scaled(base, 2 * base.tensor_flops_per_cycle)
    assert fast.l2_bytes_per_cycle_per_sm == 2 * HEADROOM * base.l2_bytes_per_cycle_per_sm
    assert fast.dram_gbytes_per_s / fast.sms == pytest.approx(2 * HEADROOM * base.dram_gbytes_per_s / base.sms)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_what_supplies_operands_inside_an_sm_stays(gpu: str) -> None:
    base, fast = machine(gpu), scaled(machine(gpu), 8192)
    for name in ("shared_bytes_per_cycle", "register_banks", "shared_memory_bytes", "tma_bytes_per_cycle",
                 "shared_load_latency_cycles", "vector_registers"):  # fmt: skip
        assert getattr(fast, name) == getattr(base, name)


def test_products_take_as_many_port_reads_a_flop_up_to_what_the_engine_leaves() -> None:
    base = machine("h100")
    assert scaled(base, 2048).tensor_port_share == pytest.approx(base.tensor_port_share / 2)
    assert scaled(base, 8192).tensor_port_share == 15 / 16


def result(shared: float = 0.75) -> dict[str, Any]:
    """A result of 1,000 cycles on one SM of four, whose products take half of the time, and shared memory a share."""
    return {
        "cycles": 1000,
        "params": {"config": "tile"},
        "tensor_utilization": 0.5,
        "pipes": {"tensor": 0.75, "lsu": 0.25},
        "read_ports": {},
        "issue_utilization": 0.125,
        "speed_of_light": [
            {"name": f"{name} Throughput", "value": value}
            for name, value in (("L2 Cache", 10.0), ("DRAM", 5.0), ("Shared Memory", 100 * shared))
        ],
        "simulation": {"simulated_sms": 1},
        "stalls_by_role": {"worker": {"issued": 0.5, "wait": 0.5}},
        "instructions": {"by_role": {"worker": 10}},
        "supply": {"smem_read_bytes": 64_000, "register_read_bytes": 512_000, "read_port_cycles": 1000},
    }


def test_a_point_is_the_rate_and_the_bytes_that_counters_say() -> None:
    point = measured(result(), machine("h100"))
    assert point["achieved"] == 2048
    assert (point["shared_read_bytes_per_cycle"], point["register_read_bytes_per_cycle"]) == (64, 512)
    assert point["intensity"] == 2048 / 64
    assert point["busy"]["read ports"] == 1000 / 4000
    assert point["operand_wait"] == 0.75 - 0.5
    assert point["busy"]["shared memory"] == 0.75


@pytest.mark.parametrize(("shared", "saturated"), [(0.75, False), (0.95, True)])
def test_a_full_unit_is_named_as_the_limit(shared: float, saturated: bool) -> None:
    point = measured(result(shared), machine("h100"))
    assert (point["unit"], point["saturated"]) == ("shared memory", saturated)
    assert ("waits" in view.limit(point)) != saturated


def test_points_that_are_stored_are_not_simulated_again(result_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ([2048], {"m": 128, "n": 64, "k": 128})
    before = study(*asked, supplies=[SUPPLIES[1]], jobs=1)

    def fails(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("simulated again")

    monkeypatch.setattr(pipeline, "run_once", fails)
    assert study(*asked, supplies=[SUPPLIES[1]], jobs=1) == before


def test_a_size_that_a_supply_cannot_run_is_a_row_with_the_reason() -> None:
    [row] = study([2048], {"m": 512, "n": 512, "k": 64}, supplies=[SUPPLIES[4]], jobs=1)
    assert "needs k above" in row["failed"]


def test_intensity_is_over_that_of_private_registers_at_the_same_rate() -> None:
    rows = [{"supply": SUPPLIES[0].name, "rate": rate, "intensity": 32.0 * rate} for rate in (1, 2)]
    found = beside({"supply": "shared memory", "rate": 2, "intensity": 128.0}, rows)
    assert (found["intensity_over_private"], found["paper"]["intensity_over_private"]) == (2.0, 2.0)


def answer() -> dict[str, Any]:
    """Two points and one that failed."""
    point = {
        **{"supply": "shared memory", "what": "wgmma", "gpu": "h100", "mode": "simt"},
        **{"intensity_over_private": 1.5, "paper": {"intensity_over_private": 2.0}},
        **measured(result(), machine("h100")),
    }
    failed = {"supply": "tensor memory", "what": "tcgen05", "gpu": "b200", "mode": "simt", "rate": 2048}
    exhibit = EXHIBITS["scaling"]
    return {
        "name": exhibit.name, "title": exhibit.title, "where": exhibit.where, "rates": [2048, 4096, 8192],
        "sizes": SMALL, "shared_bytes_per_cycle": 128,
        "rows": [{**point, "rate": 2048}, {**point, "rate": 4096}, {**failed, "failed": "no tile"}],
    }  # fmt: skip


def test_the_table_shows_points_and_reasons() -> None:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(view.show(answer()))
    text = shown.get()
    assert all(part in text for part in ("2,048", "50.0 %", "32.0", "no tile", "wgmma"))


def test_the_roofline_is_drawn_with_its_roofs_and_points(tmp_path: Path) -> None:
    [file] = draw_all([answer()], tmp_path)
    picture = file.read_text(encoding="utf-8")
    assert all(part in picture for part in ("128 B a cycle", "peak 8,192", "shared memory", "FLOP a cycle and SM"))
