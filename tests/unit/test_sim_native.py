"""The small compiler: compiled functions do what Python does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from heddle.errors import InternalError
from heddle.sim.core.bits import ctz, top
from heddle.sim.native import build_unit, compile_function

Array = NDArray[np.int64]
TEN = 10


def division(a: int, b: int) -> int:
    return a // b * 1000 + a % b


def logic(a: int, b: int) -> int:
    return (1 if (a > 2 and b > 2) or not a else 0) + (a if b < 0 else b) + min(a, b, 3) + max(a, b) + (a == b)


def membership(a: int, b: int) -> int:
    return 1 if a in (b, 7, TEN) else 0


def bits(a: int, b: int) -> int:
    return (a << 3 | b) ^ (~a >> 1) & -b


def loops(a: int, b: int) -> int:
    total = 0
    for i in range(a, b, 2):
        if i == 5:
            continue
        if i > TEN:
            break
        total += i
    while total > 100:
        total -= 7
    return total


def pair(a: int, b: int) -> tuple[int, int]:
    return b, a + b


def unpack(a: int, b: int) -> int:
    x, y = pair(a, b)
    return x * 100 + y


def short_circuit(M: Array, a: int) -> int:
    if a >= 0 and M[a] == 3:
        return 1
    return 0


def fill(M: Array, a: int) -> None:
    for i in range(a):
        M[i] += i
        M[i] *= 2


def lowest_and_highest(a: int, b: int) -> int:
    return ctz(a) * 100 + top(b)


def unknown(a: int) -> int:
    return len([a])


NUMBERS = [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (0, 5), (1, 30), (3, 9)]
INTEGER = (division, logic, membership, bits, loops, unpack)


@pytest.fixture(scope="module")
def unit() -> dict[str, object]:
    """Compile the functions of this file."""
    entries = (*INTEGER, short_circuit, fill, lowest_and_highest)
    return dict(build_unit("test", entries, [Path(__file__)]))


@pytest.mark.parametrize("function", INTEGER, ids=lambda function: function.__name__)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_integers_mean_what_python_means(unit: dict[str, object], function: object, numbers: tuple[int, int]) -> None:
    assert unit[function.__name__](*numbers) == function(*numbers)


def test_the_right_side_of_and_is_not_evaluated_in_vain(unit: dict[str, object]) -> None:
    assert unit["short_circuit"](np.array([3], dtype=np.int64), -(10**12)) == 0


def test_arrays_are_changed_in_place(unit: dict[str, object]) -> None:
    values = np.ones(5, dtype=np.int64)
    unit["fill"](values, 4)
    assert values.tolist() == [2, 4, 6, 8, 1]


def test_bit_instructions(unit: dict[str, object]) -> None:
    assert unit["lowest_and_highest"](40, 40) == lowest_and_highest(40, 40) == 305


def test_a_float_array_is_refused(unit: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="contiguous int64"):
        unit["fill"](np.ones(5), 4)


def test_what_the_compiler_does_not_know_is_an_error_with_the_line() -> None:
    with pytest.raises(InternalError, match=r"test_sim_native.py:\d+: (only plain|len is not|cannot compile)"):
        build_unit("bad", (unknown,), [Path(__file__)])


def test_compiled_code_goes_to_the_next_directory_if_the_first_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    directories = [blocked / "cache", tmp_path / "user"]
    monkeypatch.setattr("heddle.sim.native.build.cache_directories", lambda: directories)
    build_unit("kept", (division,), [Path(__file__)])
    assert [path.suffix for path in directories[1].iterdir()] == [".o"]


def test_compiled_code_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.native.build.cache_directories", lambda: [tmp_path])
    build_unit("kept", (division,), [Path(__file__)])
    monkeypatch.setattr("heddle.sim.native.build.module_text", lambda entries, profile: "this does not compile")
    assert build_unit("kept", (division,), [Path(__file__)])["division"](7, 2) == 3001


def test_a_function_inside_another_is_compiled_as_it_is_written_there() -> None:
    def outer(a, b):  # type: ignore[no-untyped-def]
        return a * TEN - b

    def unrelated() -> None:
        def outer(a, b):  # type: ignore[no-untyped-def]
            return 0

    assert compile_function(outer)(7, 4) == 66


def test_a_path_without_a_return_gives_minus_one() -> None:
    def sometimes(a: int) -> int:
        if a > 0:
            return a

    assert [compile_function(sometimes)(a) for a in (5, -5)] == [5, -1]


def test_a_variable_of_an_enclosing_function_is_not_compiled() -> None:
    offset = 5

    def shifted(a: int) -> int:
        return a + offset

    with pytest.raises(InternalError, match="offset is neither a local variable nor a global integer"):
        compile_function(shifted)
