"""Are GEMM parameters, configurations and candidates checked and cut as the machine demands?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.errors import HeddleError, UserError
from heddle.kernels.gemm.check import check_config, shared_bytes
from heddle.kernels.gemm.raster import grouped_order, k_slices, work_items
from heddle.kernels.gemm.shape import GemmConfig, GemmProblem
from heddle.kernels.registry import KERNELS, find_kernel
from heddle.machine import machine

GEMM = KERNELS["gemm"]
GPUS = ("a100", "h100", "b200")
SIZES = [
    {"m": 4096, "n": 4096, "k": 4096},
    {"m": 8192, "n": 512, "k": 128, "dtype": "bf16"},
    {"m": 1, "n": 7168, "k": 16384},
    {"m": 128, "n": 2112, "k": 7168},
    {"m": 1000, "n": 1224, "k": 520},
    {"m": 1, "n": 1, "k": 16},
]


def message(params: dict[str, object], gpu: str = "h100", config: GemmConfig | None = None) -> str:
    """Build and return the error's text."""
    with pytest.raises(UserError) as caught:
        GEMM.build(machine(gpu), params, config)
    return str(caught.value)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("params", SIZES, ids=str)
def test_all_candidates_fit_and_build(gpu: str, params: dict[str, object]) -> None:
    found = GEMM.candidates(machine(gpu), params)
    assert 1 <= len(found) <= 15
    assert len(set(found)) == len(found)
    for config in found:
        program = GEMM.build(machine(gpu), params, config)
        assert program.flops == GEMM.flops(params)
        assert shared_bytes(GEMM.problem(params), config) <= machine(gpu).shared_memory_bytes_per_cta


@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_fp8_candidates_build(gpu: str) -> None:
    params = {"m": 2048, "n": 2048, "k": 2048, "dtype": "fp8_e4m3"}
    for config in GEMM.candidates(machine(gpu), params):
        assert config.tile_k == 128
        GEMM.build(machine(gpu), params, config)


def test_few_rows_are_cut_along_k() -> None:
    params = {"m": 128, "n": 2112, "k": 7168, "dtype": "bf16"}
    assert any(config.split_k > 1 for config in GEMM.candidates(machine("h100"), params))


def test_many_rows_are_not_cut_along_k() -> None:
    assert all(config.split_k == 1 for config in GEMM.candidates(machine("h100"), SIZES[0]))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"m": 0}, "parameter 'm' (rows of A and C) must be at least 1, got 0"),
        ({"n": -4}, "parameter 'n' (rows of B, columns of C) must be at least 1, got -4"),
        ({"k": "many"}, "parameter 'k' must be a whole number, got 'many'"),
        ({"k": 1.5}, "parameter 'k' must be a whole number, got 1.5"),
        ({"kk": 1}, "unknown parameter of gemm 'kk'; allowed: dtype, epilogue, head_dim, heads_kv, heads_q, k, m, n"),
        ({"dtype": "fp32"}, "unknown value of 'dtype': 'fp32'; allowed: bf16, fp16, fp8_e4m3"),
    ],
)
def test_bad_parameters(params: dict[str, object], expected: str) -> None:
    assert message(params).startswith(expected)


def test_fp8_on_a100() -> None:
    text = message({"dtype": "fp8_e4m3"}, "a100")
    assert text == "gemm on a100 (sm_80) multiplies fp16, bf16; got 'fp8_e4m3'"


def test_rows_that_bulk_copies_cannot_read() -> None:
    text = message({"k": 1001}, "h100")
    assert "rows of A and B have 2002 bytes; bulk copies (TMA) need rows of a multiple of 16 bytes" in text
    assert "hint: pad k = 1001 to 1008" in text


def test_rows_that_cp_async_cannot_read() -> None:
    assert "rows of A and B have 2002 bytes; cp.async copies 4, 8 or 16 aligned bytes" in message({"k": 1001}, "a100")


def tile(schedule: str, m: int, n: int, k: int = 64, **more: object) -> GemmConfig:
    """A configuration in short."""
    return GemmConfig(schedule=schedule, tile_m=m, tile_n=n, tile_k=k, **{"stages": 2, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpu", "config", "expected"),
    [
        ("h100", tile("cooperative", 128, 256, stages=5), "takes 279552 bytes of shared memory; a CTA of h100 has"),
        ("h100", tile("cooperative", 128, 128, stages=1), "the kernel needs 2 stages"),
        (
            "h100",
            tile("multistage", 128, 128),
            "gemm on h100 runs the schedules cooperative, pingpong; got 'multistage'",
        ),
        ("h100", tile("cooperative", 64, 128), "a cooperative tile has a multiple of 128 rows"),
        ("h100", tile("cooperative", 256, 256, k=32), "keeps 256 accumulator registers in each thread"),
        ("h100", tile("cooperative", 128, 128, cluster=4), "clusters of 4 CTAs are not supported by gemm on h100"),
        ("h100", tile("cooperative", 128, 128, split_k=65), "split_k must lie in 1..64 for k = 4096, got 65"),
        ("a100", tile("multistage", 128, 128, cluster=2, warps=(2, 2)), "clusters of 2 CTAs are not supported"),
        ("a100", tile("multistage", 128, 128, warps=(1, 1)), "needs 680 registers a thread; a100 has 255"),
        ("a100", tile("multistage", 24, 64, warps=(1, 4)), "each warp takes a multiple of 16 x 16 of the tile"),
        ("a100", tile("multistage", 16, 64, k=32, warps=(1, 4)), "a stage of 16 x 32 does not divide evenly"),
        ("b200", tile("tcgen05", 64, 128), "a tcgen05 tile has 128 rows a CTA"),
        ("b200", tile("tcgen05", 128, 512), "and up to 256 columns in steps of 16"),
    ],
)
def test_configurations_that_break_a_rule(gpu: str, config: GemmConfig, expected: str) -> None:
    with pytest.raises(HeddleError) as caught:
        check_config(GemmProblem(m=4096, n=4096, k=4096, dtype="fp16"), config, machine(gpu))
    assert expected in str(caught.value)


def test_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown kernel 'gem'; allowed: .*gemm, .*\n  hint: did you mean 'gemm'\?"):
        find_kernel("gem")


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_every_tile_comes_once_in_grouped_order(rows: int, cols: int, wave: int) -> None:
    order = grouped_order(rows, cols, (128, 256), wave).tolist()
    assert sorted(order) == [[row, col] for row in range(rows) for col in range(cols)]


def test_a_wave_touches_few_rows_of_a_and_b() -> None:
    first = grouped_order(64, 64, (128, 128), 132)[:132].tolist()
    assert len({row for row, _ in first}) + len({col for _, col in first}) <= 8 + 17


@given(st.integers(1, 300), st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_slices_of_k_cover_it_evenly(k_blocks: int, split_k: int) -> None:
    split_k = min(split_k, k_blocks)
    slices = k_slices(k_blocks, split_k)
    assert [first for first, _ in slices[1:]] == [first + count for first, count in slices[:-1]]
    assert sum(count for _, count in slices) == k_blocks
    assert max(count for _, count in slices) - min(count for _, count in slices) <= 1


def test_the_last_slice_comes_after_the_others_of_its_tile() -> None:
    config = tile("cooperative", 128, 128, split_k=4)
    items = work_items(GemmProblem(m=512, n=512, k=4096, dtype="fp16"), config, 132, 132)
    for index, last in enumerate(items["is_last"]):
        if last:
            assert items["semaphore"][index - 3 : index + 1] == [items["semaphore"][index]] * 4


def test_reference_is_seeded_and_in_float64() -> None:
    params = {"m": 8, "n": 4, "k": 16, "dtype": "bf16"}
    inputs, expected = GEMM.reference(params, 3)
    again, _ = GEMM.reference(params, 3)
    assert (inputs["A"] == again["A"]).all()
    assert inputs["B"].dtype.name == "bfloat16"
    assert expected["C"].dtype.name == "float64"
    assert expected["C"].shape == (8, 4)
