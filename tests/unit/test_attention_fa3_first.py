"""Does the first release of FlashAttention 3 compute the right numbers without hazards, with the schedule it had?"""

import dataclasses
from collections import Counter
from typing import Any

import pytest

from heddle.errors import UserError
from heddle.kernels.attention.forward.sm90_fa3_first import items_of_first_release
from heddle.kernels.attention.raster import work_items
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.pipeline import compile_kernel, tile_program, warp_program
from heddle.study.checks import check, check_sizes
from heddle.study.requests import request

NARROW = {"dtype": "fp8_e4m3", "tile_n": 256}
TWO_SMS = machine("h100").replace(sms=2)


def config(params: dict[str, Any], **changes: Any) -> Any:
    return dataclasses.replace(find_kernel("attention").candidates(machine("h100"), params)[0], release=1, **changes)


@pytest.mark.parametrize(
    "params",
    [
        {"head_dim": 128, "causal": 1, "seqlen_q": 333},
        pytest.param(
            {"head_dim": 128, "seqlen_q": 200, "seqlen_kv": 700, "heads_q": 1, **NARROW}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_numbers_are_right_and_nothing_races(params: dict[str, Any]) -> None:
    row = check(request("attention", "h100", texts=check_sizes("attention", {**params, "release": 1})))
    assert row["passed"], (row["relative_error"], row["hazards"])


def several_tiles(params: dict[str, Any], *, waits: bool) -> dict[str, Any]:
    """Check three tiles of a pair of CTAs one after the other, with the producer's wait for the store or without."""
    params = find_kernel("attention").check({"batch": 1, "heads_q": 3, "seqlen_q": 256, "head_dim": 128, **params})
    changes = {"tile_n": 256, "cluster": 2} if params["dtype"] == "fp8_e4m3" else {}
    tiles = tile_program("attention", TWO_SMS, params, config(params, **changes))
    if not waits:
        roles = tuple(
            dataclasses.replace(role, body=_without_wait(role.body)) if role.name == "producer" else role
            for role in tiles.roles
        )
        tiles = dataclasses.replace(tiles, roles=roles)
    asked = dataclasses.replace(request("attention", "h100", texts=params), machine=TWO_SMS)
    return check(asked, program=warp_program(tiles, TWO_SMS))


def _without_wait(body: tuple[Any, ...]) -> tuple[Any, ...]:
    kept = [op for op in body if getattr(getattr(op, "barrier", None), "name", "") != "o_stored"]
    return tuple(dataclasses.replace(op, body=_without_wait(op.body)) if hasattr(op, "body") else op for op in kept)


@pytest.mark.parametrize("dtype", [pytest.param("fp16", marks=pytest.mark.slow), "fp8_e4m3"])
def test_the_late_wait_for_the_store_is_enough(dtype: str) -> None:
    row = several_tiles({"dtype": dtype}, waits=True)
    assert row["passed"], (row["relative_error"], row["hazards"])


@pytest.mark.parametrize(
    ("dtype", "where"), [pytest.param("fp16", " v[", marks=pytest.mark.slow), ("fp8_e4m3", " v_turned[")]
)
def test_without_it_a_hazard_is_reported_where_o_lies(dtype: str, where: str) -> None:
    row = several_tiles({"dtype": dtype}, waits=False)
    assert any(where in hazard for hazard in row["hazards"]), row["hazards"]


def test_causal_tiles_are_handed_out_head_by_head_from_the_first_rows_on() -> None:
    params = {"batch": 1, "heads_q": 2, "seqlen_q": 384, "causal": 1, "head_dim": 128}
    items = work_items(find_kernel("attention").problem(params), config(params))
    assert list(zip(items["q_plane"], items["row"], strict=True)) == [
        (0, 0), (0, 128), (0, 256), (1, 0), (1, 128), (1, 256),
    ]  # fmt: skip


def test_only_later_tiles_of_a_cluster_wait_for_a_store() -> None:
    items = items_of_first_release({"row": [0, 1, 2, 3], "more": [0, 1, 2, 3]}, 3)
    assert (items["later"], items["second"], items["rest"]) == ([0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 1, 2])


def test_weights_of_8_bits_are_rounded_in_pairs_and_regrouped_by_two_permutes_for_two_registers() -> None:
    params = {"batch": 1, "heads_q": 1, "seqlen_q": 1024, "head_dim": 128, "dtype": "fp8_e4m3"}
    program = compile_kernel("attention", machine("h100"), params, config(params, tile_n=256))
    end = program.roles[1].entry
    first, last = [(row.target, pc) for pc, row in enumerate(program.instructions[:end]) if row.op == "LOOP"][-1]
    mix = Counter(row.op for row in program.instructions[first or 0 : last])
    assert (mix["QGMMA"], mix["F2FP"], mix["PRMT"]) == (4 + 8, 64, 32)


def test_elements_of_o_are_stored_one_by_one_with_an_address_each() -> None:
    params = {"batch": 1, "heads_q": 1, "seqlen_q": 512, "head_dim": 128, "dtype": "fp8_e4m3"}
    program = compile_kernel("attention", machine("h100"), params, config(params, tile_n=256))
    code = program.instructions[: program.roles[1].entry]
    end = next(pc for pc, row in enumerate(code) if row.op == "FENCE")
    start = max(pc for pc, row in enumerate(code[:end]) if row.op == "BAR.SYNC")
    mix = Counter(row.op for row in code[start:end])
    assert [mix[op] for op in ("STS", "LOP3", "IADD3", "SHF", "PRMT", "F2FP")] == [64, 128, 64, 64, 32, 32]
    assert len(code[start:end]) == pytest.approx(450, rel=0.02)  # compiled with CUDA 13.0


def test_o_is_rescaled_before_the_turn() -> None:
    params = {"batch": 1, "heads_q": 1, "seqlen_q": 1024, "head_dim": 128}
    program = compile_kernel("attention", machine("h100"), params, config(params))
    code = program.instructions[: program.roles[1].entry]
    first, last = [(row.target or 0, pc) for pc, row in enumerate(code) if row.op == "LOOP"][-1]
    turn = next(pc for pc in range(first, last) if code[pc].op == "BAR.SYNC")
    assert Counter(row.op for row in code[first:turn])["FMUL"] == 64


@pytest.mark.parametrize(
    ("params", "changes", "problem"),
    [
        ({}, {"release": 2}, "release must be 0 or 1"),
        ({"dtype": "fp8_e4m3", "causal": 1}, {"tile_n": 256}, "full attention of head size 128"),
        ({}, {"early_release": 1}, "no early_release"),
    ],
)
def test_what_is_not_built_is_refused(params: dict[str, Any], changes: dict[str, Any], problem: str) -> None:
    kernel, h100 = find_kernel("attention"), machine("h100")
    with pytest.raises(UserError, match=problem):
        kernel.build(h100, params, dataclasses.replace(config(params), **changes))


def test_it_is_a_parameter_of_fa3() -> None:
    b200, kernel = machine("b200"), find_kernel("attention")
    with pytest.raises(UserError, match="parameter of fa3"):
        kernel.build(b200, {}, dataclasses.replace(kernel.candidates(b200, {})[0], release=1))
