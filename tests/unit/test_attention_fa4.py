"""Does FlashAttention 4 compute right numbers without hazards, for all masks, groupings and lengths?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from heddle.errors import UserError
from heddle.interp import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.kernel import ATTENTION
from heddle.kernels.attention.shape import AttentionConfig
from heddle.machine import machine
from heddle.passes import compile_program

B200 = machine("b200").replace(sms=4)
BASE = {"batch": 1, "heads_q": 2, "seqlen_q": 384, "head_dim": 64, "dtype": "fp16"}


def config(params: dict[str, Any], **changes: Any) -> AttentionConfig:
    """The open kernel's configuration with changes."""
    return dataclasses.replace(ATTENTION.candidates(B200, params)[0], **changes)


def compiled(params: dict[str, Any], **changes: Any) -> WarpProgram:
    """The program of a configuration."""
    return compile_program(ATTENTION.build(B200, params, config(params, **changes)), B200)


def run(params: dict[str, Any], **changes: Any) -> CheckReport:
    """Execute it against the reference."""
    program = compiled(params, **changes)
    inputs, expected = ATTENTION.reference(params)
    outputs = {t.name for t in program.tensors if t.role == "output"}
    given = {name: inputs[name] for name in inputs if name in {t.name for t in program.tensors}}
    return check(program, B200, given, {name: expected[name] for name in outputs})


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"causal": 1},
        {"head_dim": 128, "dtype": "bf16", "seqlen_q": 256},
        {"head_dim": 128, "causal": 1, "seqlen_q": 333},
        {"seqlen_q": 200, "seqlen_kv": 333},
        {"seqlen_q": 100, "seqlen_kv": 333, "causal": 1},
        {"seqlen_q": 333, "seqlen_kv": 100, "causal": 1},
        {"heads_q": 8, "heads_kv": 2, "seqlen_q": 77, "causal": 1},
        {"heads_q": 8, "heads_kv": 1, "seqlen_q": 90},
        {"heads_q": 3, "heads_kv": 1, "seqlen_q": 130, "causal": 1},
        {"seqlen_q": 1, "seqlen_kv": 1},
        {"head_dim": 256, "seqlen_q": 200},
        {"head_dim": 256, "seqlen_q": 333, "causal": 1, "heads_q": 4, "heads_kv": 2},
        {"head_dim": 256, "seqlen_q": 50},
    ],
    ids=str,
)
def test_numbers_are_right_and_no_hazard_is_found(params: dict[str, Any]) -> None:
    report = run({**BASE, **params})
    assert report.hazards == ()
    assert report.ok, report.errors


def test_a_stale_maximum_gives_the_same_numbers_as_rescaling() -> None:
    stale, fresh = run(BASE, rescaled=0), run(BASE, rescaled=8)
    assert stale.ok
    assert fresh.ok
    assert not np.array_equal(stale.tensors["O"], fresh.tensors["O"])  # rounded at other places


def test_rescaling_takes_longer_than_checking() -> None:
    assert run(BASE, rescaled=8).cycles > run(BASE, rescaled=0).cycles


def test_the_share_of_polynomials_moves_exponentials_off_the_special_function_unit() -> None:
    counts = {}
    for share in (0, 4, 16):
        ops = [i.op for i in compiled(BASE, exp_share=share).instructions]
        counts[share] = (ops.count("MUFU"), ops.count("LEA"))
    assert counts[0][1] == 0
    pairs = 2 * 2 * 32 // 16 * 4 // 2  # two tiles, two inner fragments of 32 columns, 4 of 16 columns, in pairs
    assert counts[4][1] == 2 * pairs
    assert counts[0][0] - counts[4][0] == 2 * pairs
    assert counts[16][1] == 2 * 2 * 2 * 32 // 2 * 2 // 2 * 1


def test_numbers_are_right_with_all_inner_exponentials_by_polynomial() -> None:
    assert run(BASE, exp_period=16, exp_share=16).ok


def test_the_longest_tiles_of_a_causal_problem_come_first() -> None:
    program = compiled({**BASE, "causal": 1, "seqlen_q": 1024})
    rows = program.work.items[:, program.work.attributes.index("row")].tolist()
    assert rows == sorted(rows, reverse=True)
    assert program.work.schedule == "launch"


def test_a_tile_without_a_visible_key_in_the_first_block_is_rescaled() -> None:
    """The upper tile of a causal pair lies above the diagonal of the last block: its first maximum comes later."""
    causal, full = compiled({**BASE, "causal": 1}), compiled(BASE)
    for program, stores in ((causal, True), (full, False)):
        role = next(r for r in program.roles if r.name == "correction")
        following = min((r.entry for r in program.roles if r.entry > role.entry), default=len(program.instructions))
        ops = {i.op for i in program.instructions[role.entry : following]}
        assert ("STTM" in ops) == stores


@pytest.mark.parametrize(
    ("params", "changes", "match"),
    [
        ({"head_dim": 256}, {"tile_m": 64, "tile_n": 32, "stages": 1}, "works on 1 tile of 128 rows"),
        ({"dtype": "fp8_e4m3"}, {}, "takes fp16, bf16"),
        ({}, {"tile_m": 128}, "works on 2 tiles of 128 rows"),
        ({}, {"stages": 1}, "2 stages or more"),
        ({}, {"exp_share": 3}, "in pairs"),
        ({}, {"exp_share": 18}, "from 0 to exp_period"),
        ({"head_dim": 128}, {"stages": 4}, "bytes of shared memory"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(params: dict[str, Any], changes: dict[str, Any], match: str) -> None:
    chosen = config({**BASE, "dtype": "fp16"}, **changes)
    with pytest.raises(UserError, match=match):
        ATTENTION.build(B200, {**BASE, **params}, chosen)


@pytest.mark.parametrize(("head_dim", "causal"), [(64, 0), (128, 0), (128, 1)])
def test_a_block_takes_the_instructions_of_the_open_algorithm(head_dim: int, causal: int) -> None:
    """Per row of 128 scores: half as many packed operations and maxima, an eighth of the exponentials by polynomial."""
    program = compiled({**BASE, "head_dim": head_dim, "causal": causal, "seqlen_q": 1024})
    entries = [role.entry for role in program.roles if role.name.startswith("softmax")]
    code = program.instructions[entries[0] : entries[1]]
    last = max(i for i, row in enumerate(code) if row.op == "LOOP")  # of the blocks without a mask
    target = code[last].target
    assert target is not None
    counts = Counter(row.op for row in code[target - entries[0] : last])
    pairs = 8  # of elements by polynomial: 4 of 16 columns in two fragments of 32
    assert counts["MUFU"] == 128 - 2 * pairs + 1  # and what the maximum's change does to the sums
    assert counts["FFMA2"] == 128 // 2 + 3 * pairs
    assert counts["FADD2"] == 128 // 2 - 1 + 3 * pairs
    assert counts["FMNMX3"] + counts["FMNMX"] == 128 // 2 + 2 + 2 * pairs
    assert (counts["F2FP"], counts["LEA"], counts["LDTM"], counts["STTM"]) == (64, 2 * pairs, 4, 4)


def test_its_parameters_are_refused_where_another_kernel_runs() -> None:
    h100 = machine("h100")
    chosen = dataclasses.replace(ATTENTION.candidates(h100, BASE)[0], exp_share=0)
    with pytest.raises(UserError, match="exp_share is a parameter of fa4; h100 runs fa3"):
        ATTENTION.build(h100, BASE, chosen)
