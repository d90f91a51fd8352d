"""Is a sequence of launches asked, answered, compared, tuned and checked like a kernel, and is its result the sum?"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.kernels import Composite, Parameter, Step, registry
from heddle.kernels._composite import Arrays
from heddle.kernels.gemm.reference import reference as product
from heddle.kernels.norm.shape import EPSILON
from heddle.machine import machine
from heddle.machine.spec import Machine
from heddle.metrics.render import report, stall_table
from heddle.metrics.sequence import Part, sequence_json
from heddle.study import api, catalog, composites, runs, tune
from heddle.study.case_file import read_cases
from heddle.study.requests import request, request_of

SIZES = {"rows": 64, "hidden": 256}
TILE = {"schedule": "pingpong", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 2, "cluster": 1, "split_k": 1}
PINNED = SIZES | {f"product.{name}": value for name, value in TILE.items()}
TWICE = 2


class Normed(Composite):
    """Y = rmsnorm(A B^T): a product, and twice the norm of it."""

    name, summary, architectures = "normed", "a product and its norm", ("sm_80", "sm_90")
    parameters = (Parameter("rows", int, 4096, "rows"), Parameter("hidden", int, 256, "columns"))

    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        sizes = {"m": params["rows"], "n": params["hidden"], "k": params["hidden"], "dtype": "fp16"}
        return (
            Step("product", "gemm", sizes),
            Step("norm", "rmsnorm", dict(params), TWICE, feeds={"X": "product.C"}, l2_state="warm"),
        )

    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        problem = registry.KERNELS["gemm"].problem({"m": params["rows"], "n": params["hidden"], "k": params["hidden"]})
        inputs, expected = product(problem, seed)
        inputs["W"] = np.full((1, params["hidden"]), 0.5, np.float16)
        rows = expected["C"].astype(np.float16).astype(np.float64)
        root = np.sqrt((rows**2).mean(axis=1, keepdims=True) + EPSILON)
        return inputs, {"norm.Y": 0.5 * rows / root}


@pytest.fixture(autouse=True)
def normed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A composite with a step that has no FIBER-native form."""
    monkeypatch.setitem(registry.COMPOSITES, "normed", Normed())
    monkeypatch.setattr(registry.KERNELS["rmsnorm"], "native", {})


@pytest.fixture
def row() -> dict[str, Any]:
    return runs.run(request("normed", "h100", clock_mhz=1500.0, texts=PINNED))


def own(step: dict[str, Any]) -> dict[str, Any]:
    """Run a step of a result as the kernel that it is."""
    sizes = {name: value for name, value in step["params"].items() if name != "config"}
    tile = TILE if step["kernel"] == "gemm" else {}
    return runs.run(request(step["kernel"], "h100", clock_mhz=1500.0, texts=sizes | tile))


def test_the_sum_is_that_of_the_kernels(row: dict[str, Any]) -> None:
    parts = [(step["count"], own(step)) for step in row["steps"]]
    assert [count for count, _ in parts] == [1, TWICE]
    assert row["cycles"] == sum(count * part["cycles"] for count, part in parts)
    assert row["time_us"] == pytest.approx(sum(count * part["time_us"] for count, part in parts))
    for name in ("dram_bytes", "l2_bytes"):
        assert row["traffic"][name] == sum(count * part["traffic"][name] for count, part in parts)


def simulated_on(row: dict[str, Any], mode: str, sms: int) -> dict[str, Any]:
    """Return a result as if so many SMs had been simulated for it."""
    return {**row, "simulation": {**row["simulation"], "mode": mode, "simulated_sms": sms}}


def test_counts_are_of_the_chip_whatever_each_step_simulated(row: dict[str, Any]) -> None:
    h100, alone = machine("h100"), own(row["steps"][1])
    parts = [
        Part(name="whole", row=simulated_on(alone, "chip", h100.sms)),
        Part(name="one", row=simulated_on(alone, "representative", 2), count=TWICE),
    ]
    found = sequence_json(parts, h100, kernel="x", mode="simt", params={}, clock_source="given")
    times = 1 + TWICE * h100.sms // 2
    for section, name in (("instructions", "total"), ("supply", "smem_read_bytes"), ("traffic", "smem_bytes")):
        assert found[section][name] == times * alone[section][name]
    assert found["traffic"]["l2_bytes"] == (1 + TWICE) * alone["traffic"]["l2_bytes"]
    assert sum(found["instructions"]["by_pipe"].values()) == times * sum(alone["instructions"]["by_pipe"].values())


def test_instructions_by_role_add_up_to_the_total(row: dict[str, Any]) -> None:
    roles = row["instructions"]["by_role"]
    assert {name.split()[0] for name in roles} == {"product", "norm"}
    assert sum(roles.values()) == pytest.approx(row["instructions"]["total"], rel=1e-6)  # rounded by role


def test_stalls_are_printed_for_all_roles_together(row: dict[str, Any]) -> None:
    assert [str(column.header) for column in stall_table(row).columns] == ["state", "all"]


def test_a_sequence_without_any_native_kernel_has_no_fiber_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Normed, "steps", lambda self, machine, params, mode: (Step("norm", "rmsnorm", dict(params)),))
    row = api.compare("normed", "h100", clock_mhz=1500.0, **SIZES)
    assert (row["fiber"], row["speedup"]) == (None, None)
    assert row["absent"]["fiber"] == "no launch of normed has a FIBER-native kernel on h100"


def test_a_comparison_has_no_pins() -> None:
    with pytest.raises(UserError, match=r"compare takes no pins; got 'product\.schedule'"):
        api.compare("normed", "h100", **PINNED)


def test_shares_are_weighted_by_cycles_and_add_up(row: dict[str, Any]) -> None:
    assert sum(step["share"] for step in row["steps"]) == pytest.approx(1.0)
    assert sum(row["stalls"].values()) == pytest.approx(1.0)
    first, second = row["steps"]
    used = first["share"] * first["tensor_utilization"] + second["share"] * second["tensor_utilization"]
    assert row["tensor_utilization"] == pytest.approx(used)
    assert row["tensor_utilization"] == pytest.approx(
        row["tflops"] * row["time_us"] * 1e6 / row["cycles"] / row["roofline"]["roofs_flops_per_cycle"]["tensor"],
        rel=0.1,  # the norm's operations are no work of the matrix unit
    )


def test_a_sequence_has_every_field_of_a_kernel(row: dict[str, Any]) -> None:
    kernel = own(row["steps"][0])
    assert set(kernel) - set(row) == set()
    assert set(kernel["instructions"]) == set(row["instructions"])
    assert set(kernel["simulation"]) - set(row["simulation"]) == set()
    assert set(kernel["choice"]) == set(row["choice"])
    json.dumps(row, allow_nan=False)


def test_launches_are_counted_where_a_time_includes_them(row: dict[str, Any]) -> None:
    asked = request("normed", "h100", clock_mhz=1500.0, texts=PINNED)
    timed = runs.run(dataclasses.replace(asked, includes_launch=True))
    h100 = machine("h100")
    gap = (1 + TWICE) * (h100.kernel_launch_us + h100.kernel_drain_us)
    assert timed["time_us"] - row["time_us"] == pytest.approx(gap)
    besides = runs.run(dataclasses.replace(asked, includes_launch=True, extra_launches=2))
    assert besides["time_us"] - timed["time_us"] == pytest.approx(2 * gap / (1 + TWICE))


def test_all_steps_have_the_clock_of_the_sum() -> None:
    row = runs.run(request("normed", "h100", texts=PINNED))
    alone = runs.run(request("gemm", "h100", texts={"m": 64, "n": 256, "k": 256} | TILE))
    assert row["provenance"]["clock_source"] == "clock model"
    assert row["clock_mhz"] >= alone["clock_mhz"]  # the norm uses no matrix unit


def test_a_step_without_a_native_kernel_is_asked_as_today_and_named() -> None:
    product, norm = composites.questions(request("normed", "h100", mode="fiber", texts=SIZES))
    assert (product.asked.mode, product.asked.machine.name, product.note) == ("fiber", "h100+fiber", "")
    assert (norm.asked.mode, norm.asked.machine.name) == ("simt", "h100")
    assert norm.note == "step norm has no FIBER-native kernel (rmsnorm): it runs as today"


def test_a_comparison_sets_the_steps_side_by_side() -> None:
    row = api.compare("normed", "h100", clock_mhz=1500.0, **SIZES)
    product, norm = row["steps"]
    assert norm["baseline_cycles"] == norm["fiber_cycles"]
    assert norm["speedup"] == 1.0
    assert product["speedup"] == product["baseline_cycles"] / product["fiber_cycles"]
    assert row["speedup"] == row["baseline"]["cycles"] / row["fiber"]["cycles"]
    assert row["fiber"]["notes"] == [norm["note"]]
    assert norm["note"].startswith("step norm has no FIBER-native kernel")


def test_pins_go_to_the_step_that_they_name() -> None:
    asked = request("normed", "h100", texts={**SIZES, "product.tile_n": "64"})
    product, norm = composites.questions(asked)
    assert (product.asked.pins, norm.asked.pins) == ({"tile_n": "64"}, {})


@pytest.mark.parametrize("name", ["tile_n", "middle.tile_n", "product.nothing"])
def test_a_pin_of_no_step_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown parameter of .*{name.rpartition('.')[2]}"):
        composites.questions(request("normed", "h100", texts={**SIZES, name: "64"}))


@pytest.mark.parametrize("ask", [runs.compiled, lambda asked: runs.write_timeline(asked, {}, "x")])
def test_what_is_of_one_launch_is_refused(ask: Any) -> None:
    with pytest.raises(UserError, match=r"product \(gemm\), norm \(rmsnorm\)"):
        ask(request("normed", "h100", texts=SIZES))


def test_the_chain_is_right_and_so_is_each_step() -> None:
    row = api.check("normed", "h100", **PINNED)
    assert row["passed"]
    assert [step["name"] for step in row["steps"]] == ["product", "norm"]
    assert [output["tensor"] for output in row["outputs"]] == ["norm.Y"]


def test_a_step_that_reads_the_wrong_tensor_fails_in_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step by itself stays right."""
    steps = Normed.steps

    def crossed(self: Normed, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        first, second = steps(self, machine, params, mode)
        return first, dataclasses.replace(second, feeds={"X": "A"})

    monkeypatch.setattr(Normed, "steps", crossed)
    row = api.check("normed", "h100", **PINNED)
    assert not row["passed"]
    assert all(step["passed"] for step in row["steps"])


def test_tuning_tunes_the_steps_that_have_a_native_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = []
    monkeypatch.setattr(tune, "_tune", lambda asked, jobs, progress: tuned.append(asked.kernel) or {"winner": {}})
    row = tune.tune("normed", "h100", texts=SIZES)
    assert tuned == ["gemm"]
    assert [bool(step["note"]) for step in row["steps"]] == [False, True]


def test_composites_nest() -> None:
    class Twice(Normed):
        name = "twice"

        def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
            return Step("outer", "normed", dict(params), 3), Step("norm", "rmsnorm", dict(params))

    registry.COMPOSITES["twice"] = Twice()
    try:
        asked = request("twice", "h100", mode="fiber", texts=SIZES)
        assert [(q.name, q.count, q.asked.mode) for q in composites.questions(asked)] == [
            ("outer.product", 3, "fiber"), ("outer.norm", 3 * TWICE, "simt"), ("norm", 1, "simt"),
        ]  # fmt: skip
    finally:
        del registry.COMPOSITES["twice"]


def test_the_report_has_a_line_a_step(row: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(report(row))
    text = console.export_text()
    assert "Steps" in text
    assert any("norm" in line and "rmsnorm" in line for line in text.splitlines())


def test_it_is_listed_with_its_launches() -> None:
    found = catalog.kernel_row("normed")
    assert found["steps"]["h100"] == [
        {"name": "product", "kernel": "gemm", "count": 1}, {"name": "norm", "kernel": "rmsnorm", "count": TWICE}
    ]  # fmt: skip
    assert "normed" in [line["name"] for line in catalog.kernel_rows()]


def test_a_case_of_a_direction_that_a_kernel_has_not_is_not_taken_for_another(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("case_id,gpu,kernel,direction,m,n,k,measured,unit\nx-1,h100,gemm,bwd,64,64,64,5,us\n")
    with pytest.raises(UserError, match="gemm has no direction"):
        request_of(read_cases(path)[0])
