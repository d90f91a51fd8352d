"""Does every cell of the feature table come from the machine that it is about?"""

from __future__ import annotations

from typing import Any

import pytest

from heddle.machine import machine
from heddle.study.exhibits.table1 import FEATURES, GPUS, table

CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("fine-grained scheduling", "h100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("register sharing", "h100+fiber", {"register_sharing": False}),
    ("registers belong to a", "a100+fiber", {"sharing_scope": "subpartition"}),
    ("registers a source can name", "a100+fiber", {"sharing_scope": "subpartition"}),
    ("registers a source can name", "a100", {"max_registers_per_thread": 127}),
    ("register read ports in reach", "b200", {"register_banks": 4}),
    ("register read ports in reach", "b200+fiber", {"register_sharing": False}),
    ("contexts of an SM", "h100", {"max_warps_per_sm": 48}),
    ("contexts of an SM", "h100+fiber", {"max_wefts_per_subpartition": 16}),
    ("dependences across warps by", "h100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("matrix instructions", "h100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("operands of products from", "a100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("operands of products from", "a100+fiber", {"register_sharing": False}),
    ("a fetch of B is used by", "h100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("a fetch of B is used by", "b200", {"max_cluster_size": 1}),
    ("accumulators in", "a100+fiber", {"fine_scheduling": False, "register_sharing": False}),
    ("CTAs of a cluster at most", "b200", {"max_cluster_size": 1}),
    ("fp16 FLOP a cycle and SM", "a100", {"tensor_flops_per_cycle": 4096}),
    ("shared memory of an SM", "a100", {"shared_memory_bytes": 233472}),
]


def cell(feature: str, *machines: Any) -> list[str]:
    """Return the cells of a line."""
    [row] = [row for row in table(machines)["rows"] if row["feature"] == feature]
    return [row["cells"][name] for name in table(machines)["gpus"]]


@pytest.mark.parametrize(("feature", "gpu", "changes"), CHANGES)
def test_a_cell_follows_its_machine(feature: str, gpu: str, changes: dict[str, Any]) -> None:
    before = machine(gpu)
    old, new = cell(feature, before, before.replace(**changes, name="changed"))
    assert old != new


def test_dynamic_parallelism_is_what_a_machine_with_it_has() -> None:
    assert cell("dynamic parallelism", machine("h100"), machine("h100+fiber")) == ["no", "yes"]


def test_instructions_are_those_that_the_machine_has_timings_for() -> None:
    cells = cell("parallel instances in a kernel", *(machine(name) for name in GPUS[:4]))
    assert cells == ["fixed", *["fixed; registers move: USETMAXREG"] * 2, "changes: SETFIBER"]
    assert cell("asynchronous copies", machine("a100"), machine("h100")) == ["LDGSTS", "LDGSTS, UTMALDG"]


def test_every_line_names_fields_of_a_machine() -> None:
    fields = machine("h100").as_dict()
    assert [name for feature in FEATURES for name in feature.fields if name not in fields] == []
