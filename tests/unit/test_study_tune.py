"""Does the search find the fastest configuration, keep what is pinned, confirm the winner, and go on where it was?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heddle.errors import UserError
from heddle.study import runs
from heddle.study.requests import Request
from heddle.study.tune import searched_fields, steps, tune

SIZES = {"m": 1024, "n": 1024, "k": 1024}
Cost = Callable[[Any], int]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, result_cache: Path) -> dict[str, Any]:
    """Replace the simulator by `sliced` and `full`, functions of a configuration; count what is asked of it."""
    state: dict[str, Any] = {"sliced": lambda config: 1, "full": lambda config: 1, "asked": []}

    def estimated(asked: Request, config: Any) -> dict[str, Any]:
        state["asked"].append(config)
        return {"cycles": state["sliced"](config)}

    def run(asked: Request) -> dict[str, Any]:
        return {"cycles": state["full"](asked.config), "tensor_utilization": 0.5}

    monkeypatch.setattr(runs, "estimated", estimated)
    monkeypatch.setattr(runs, "run", run)
    return state


def cost(config: Any) -> int:
    """Cycles of a configuration whose best is 88 columns and 3 stages."""
    return 1000 + abs(config.tile_n - 88) + 50 * abs(config.stages - 3) + 500 * abs(2 - config.groups)


def test_the_search_goes_to_the_best_and_beyond_the_candidates(engine: dict[str, Any]) -> None:
    engine["sliced"] = engine["full"] = cost
    row = tune("gemm", "h100", jobs=1, texts=SIZES)
    assert row["winner"]["pins"]["groups"] == 2
    assert row["winner"]["cycles"] < row["start"]["cycles"]
    assert row["winner"]["cycles"] == min(row["tried"].values())


def test_a_pinned_field_is_not_searched(engine: dict[str, Any]) -> None:
    engine["sliced"] = engine["full"] = cost
    row = tune("gemm", "h100", jobs=1, texts={**SIZES, "groups": 1})
    assert "groups" not in row["searched"]
    assert {config.groups for config in engine["asked"]} == {1}


def test_the_start_wins_where_the_slice_was_wrong(engine: dict[str, Any]) -> None:
    engine["sliced"], engine["full"] = cost, lambda config: 5000 - cost(config)
    row = tune("gemm", "h100", jobs=1, texts=SIZES)
    assert row["gain"] == 1.0
    assert row["winner"]["config"] == row["start"]["config"]


def test_a_winner_that_is_found_wrong_in_full_is_refused(engine: dict[str, Any]) -> None:
    def full(config: Any) -> int:
        if config == min(engine["asked"], key=cost):
            raise UserError("the wefts wait for each other for ever:\nhere")
        return cost(config)

    engine["sliced"], engine["full"] = cost, full
    row = tune("gemm", "h100", jobs=1, texts=SIZES)
    assert "the wefts wait for each other for ever:" in row["refused"].values()
    assert row["winner"]["config"] not in row["refused"]


def test_what_cannot_be_built_is_listed_with_the_reason(engine: dict[str, Any]) -> None:
    def refusing(config: Any) -> int:
        if config.stages != 8:
            raise UserError("only 8 stages\nmore text")
        return 1

    engine["sliced"] = refusing
    row = tune("gemm", "h100", jobs=1, texts={**SIZES, "tile_n": 64})
    assert set(row["refused"].values()) == {"only 8 stages"}


def test_a_repeated_search_simulates_nothing(engine: dict[str, Any]) -> None:
    first = tune("gemm", "h100", jobs=1, texts=SIZES)
    count = len(engine["asked"])
    assert (tune("gemm", "h100", jobs=1, texts=SIZES), len(engine["asked"])) == (first, count)


def test_without_a_native_kernel_there_is_nothing_to_tune() -> None:
    with pytest.raises(UserError, match="attention_fa2 has no kernel of mode fiber for h100"):
        tune("attention_fa2", "h100")


def test_the_fields_are_those_that_people_can_set(result_cache: Path) -> None:
    assert searched_fields(runs.request("gemm", "h100", mode="fiber", texts=SIZES)) == [
        "tile_n", "stages", "groups", "cluster", "fiber_threads",
    ]  # fmt: skip


def test_what_data_do_is_not_searched(result_cache: Path) -> None:
    assert "rescaled" not in searched_fields(runs.request("attention", "b200", mode="fiber"))


@pytest.mark.parametrize(("value", "next_to"), [(0, [1]), (1, [0, 2]), (4, [2, 3, 5, 6]), (128, [64, 96, 160, 256])])
def test_steps_are_small_where_the_value_is(value: int, next_to: list[int]) -> None:
    assert steps(value) == next_to
