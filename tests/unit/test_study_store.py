"""Does the store return what was put in, and only for the same question?"""

from pathlib import Path

import pytest

from heddle.study import store


def test_a_result_is_computed_once(result_cache: Path) -> None:
    calls: list[int] = []

    def compute() -> store.Row:
        calls.append(1)
        return {"cycles": 5}

    rows = [store.remembered({"kernel": "gemm"}, compute) for _ in range(2)]
    assert (rows, len(calls)) == ([{"cycles": 5}] * 2, 1)


def test_another_parameter_is_another_result(result_cache: Path) -> None:
    store.remembered({"m": 1}, lambda: {"cycles": 5})
    assert store.remembered({"m": 2}, lambda: {"cycles": 6}) == {"cycles": 6}


def test_the_order_of_parameters_does_not_matter() -> None:
    assert store.key_of({"a": 1, "b": 2}) == store.key_of({"b": 2, "a": 1})


def test_the_key_depends_on_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.key_of({"a": 1})
    monkeypatch.setattr(store, "source_version", lambda rooms: "another engine")
    assert store.key_of({"a": 1}) != before


def test_a_damaged_file_counts_as_absent(result_cache: Path) -> None:
    key = store.key_of({"a": 1})
    store.save(key, {"cycles": 5})
    (result_cache / "results" / key[:2] / f"{key[2:]}.json").write_text('{"cycles": ', encoding="utf-8")
    assert store.load(key) is None


def test_a_store_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "file" / "cache"))
    assert store.remembered({"a": 1}, lambda: {"cycles": 5}) == {"cycles": 5}
