"""Does tile choice take the fastest, keep pins, and say what would not compile?"""

from dataclasses import dataclass

import pytest

from heddle.errors import UserError
from heddle.kernels.registry import find_kernel
from heddle.machine import machine
from heddle.study.choose import SIMULATED, choose, shortlist
from heddle.study.rank import least_cycles
from heddle.study.tiles import config_fields, pinned


@dataclass(frozen=True)
class Tile:
    tile_n: int
    warps: tuple[int, int] = (1, 1)
    schedule: str = "plain"

    def label(self) -> str:
        return f"n{self.tile_n}"


TILES = [Tile(64), Tile(128), Tile(256)]


def test_the_fastest_candidate_wins() -> None:
    assert choose(TILES, lambda tile: abs(tile.tile_n - 128)).config == Tile(128)


def test_of_equals_the_first_wins() -> None:
    assert choose(TILES, lambda tile: 7).config == Tile(64)


def test_a_single_candidate_is_not_simulated() -> None:
    def cycles_of(tile: Tile) -> int:
        raise AssertionError("simulated")

    assert choose(TILES[:1], cycles_of).config == Tile(64)


def test_what_would_not_compile_is_named() -> None:
    def cycles_of(tile: Tile) -> int:
        if tile.tile_n == 256:
            raise UserError("spills")
        return tile.tile_n

    choice = choose(TILES, cycles_of)
    assert (choice.config, choice.cycles, choice.refused) == (Tile(64), {"n64": 64, "n128": 128}, {"n256": "spills"})


def test_if_nothing_compiles_the_error_is_raised() -> None:
    def cycles_of(tile: Tile) -> int:
        raise UserError(f"{tile.label()} spills")

    with pytest.raises(UserError, match="n256 spills"):
        choose(TILES, cycles_of)


def test_pins_keep_the_candidates_that_agree() -> None:
    assert pinned(TILES, {"tile_n": "128"}) == [Tile(128)]


def test_a_tile_outside_the_list_can_be_tried() -> None:
    assert pinned(TILES, {"tile_n": "96", "warps": "2x4", "schedule": "deep"}) == [Tile(96, (2, 4), "deep")]


@pytest.mark.parametrize(
    ("name", "value", "message"), [("tile_n", "big", "a whole number"), ("warps", "2,4", "numbers joined by x")]
)
def test_a_pin_of_the_wrong_type_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(UserError, match=f"parameter '{name}' must be {message}"):
        pinned(TILES, {name: value})


def test_the_fields_of_a_configuration_are_its_pins() -> None:
    assert list(config_fields(TILES)) == ["tile_n", "warps", "schedule"]


def test_the_shortlist_puts_the_lowest_bound_first_and_is_short() -> None:
    gpu, gemm = machine("h100"), find_kernel("gemm")
    params = gemm.check({"m": 4096, "n": 4096, "k": 4096})
    found = shortlist("gemm", gpu, params, gemm.candidates(gpu, params))
    bounds = [least_cycles(gemm.build(gpu, params, config), gpu) for config in found]
    assert (len(found), bounds) == (SIMULATED, sorted(bounds))


def test_the_bound_of_a_large_gemm_is_near_its_tensor_time() -> None:
    gpu, gemm = machine("h100"), find_kernel("gemm")
    params = gemm.check({"m": 8448, "n": 8192, "k": 8192})  # 66 x 32 tiles of 128 x 256: 16 full waves of 132
    config = next(c for c in gemm.candidates(gpu, params) if (c.tile_m, c.tile_n) == (128, 256))
    tensor = gemm.flops(params) / (gpu.tensor_flops_per_cycle * gpu.sms)
    assert tensor <= least_cycles(gemm.build(gpu, params, config), gpu) <= 1.05 * tensor
