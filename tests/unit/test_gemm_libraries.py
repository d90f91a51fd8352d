"""Are the tiles of a known library listed as its source has them, and does every listed tile compile?"""

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.kernels.gemm.shape import GemmConfig
from heddle.kernels.registry import find_kernel
from heddle.machine import machine

GEMM = find_kernel("gemm")


def deepgemm(m: int, n: int, k: int) -> list[GemmConfig]:
    """Return DeepGEMM's tiles for a problem."""
    return GEMM.library_candidates("deepgemm", machine("h100"), GEMM.check({"m": m, "n": n, "k": k, "dtype": "bf16"}))


def test_deepgemm_does_not_cut_k() -> None:
    assert all(config.split_k == 1 for config in deepgemm(1, 2112, 7168))


def test_deepgemm_fills_the_chip_with_narrow_tiles() -> None:
    widths = {config.tile_n for config in deepgemm(1, 2112, 7168)}
    assert widths <= set(range(16, 257, 16))
    assert min(widths) == 16


@pytest.mark.parametrize("columns", [16, 48, 80, 176, 240])
def test_a_tile_of_any_multiple_of_16_columns_compiles(columns: int) -> None:
    gpu, params = machine("h100"), GEMM.check({"m": 64, "n": 960, "k": 512, "dtype": "bf16"})
    config = GemmConfig(schedule="pingpong", tile_m=64, tile_n=columns, tile_k=64, stages=4)
    assert pipeline.compile_kernel("gemm", gpu, params, config).instructions


@pytest.mark.parametrize(
    ("library", "gpu", "words"),
    [
        ("cutlas", "h100", "unknown library 'cutlas'; allowed: deepgemm"),
        ("deepgemm", "a100", "listed for sm_90, not a100"),
    ],
)
def test_an_unknown_library_is_refused(library: str, gpu: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        GEMM.library_candidates(library, machine(gpu), GEMM.check({}))


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("columns", [128, 256])
def test_the_epilogue_of_fp8_on_b200_fits_its_registers(columns: int, cluster: int) -> None:
    gpu, params = machine("b200"), GEMM.check({"m": 512, "n": 512, "k": 512, "dtype": "fp8_e4m3"})
    config = GemmConfig(schedule="tcgen05", tile_m=128, tile_n=columns, tile_k=128, stages=3, cluster=cluster)
    assert pipeline.compile_kernel("gemm", gpu, params, config).instructions
