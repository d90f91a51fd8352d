"""Profiles of branches: counted, written, read, used by the compiler, without a change of results."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from heddle.sim.core_loader import ENTRIES, PROFILE
from heddle.sim.native import build_counting, build_unit
from heddle.sim.native.module import module_text, reachable
from heddle.sim.native.profile import Counts, digest_of, profile_text, read_profile
from heddle.sim.native.source import read


def collatz(a: int, b: int) -> int:
    steps = 0
    while a > 1 and steps < b:
        if a & 1:
            a = 3 * a + 1
        else:
            a >>= 1
        steps += 1
    return steps


def counted() -> list[tuple[str, str, Counts]]:
    """Count the branches of two calls."""
    unit, counts = build_counting((collatz,))
    assert [unit["collatz"](5, 3), unit["collatz"](5, 99)] == [3, 5]
    return counts()


def test_branches_are_counted() -> None:
    ((symbol, _, counts),) = counted()
    assert (symbol, counts.entries) == ("test_sim_profile.collatz", 2)
    # a > 1 (fails once), the whole condition of `while`, a odd: for 5 only
    assert counts.branches == ((1, 9), (2, 8), (6, 2))


def test_a_profile_can_be_read_again(tmp_path: Path) -> None:
    rows = counted()
    (tmp_path / "profile").write_text(profile_text(rows))
    assert read_profile(tmp_path / "profile") == {(symbol, digest): counts for symbol, digest, counts in rows}


def test_counts_beyond_32_bits_are_scaled_and_what_happened_stays_above_zero() -> None:
    text = profile_text([("f", "d", Counts(1, ((1 << 40, 1), (0, 0))))])
    assert text == f"f d 1 {1 << 30}/1 0/0\n"


def test_a_unit_with_a_profile_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heddle.sim.native.build.cache_directories", lambda: [tmp_path])
    (tmp_path / "profile").write_text(profile_text(counted()))
    unit = build_unit("profiled", (collatz,), [Path(__file__)], tmp_path / "profile")
    assert unit["collatz"](27, 999) == collatz(27, 999) == 111


def test_branches_have_the_weights_of_the_profile() -> None:
    text = module_text([read(collatz)], {(symbol, digest): counts for symbol, digest, counts in counted()})
    assert [text.count(f'"branch_weights", i32 {pair}') for pair in ("9, i32 1}", "8, i32 2}", "2, i32 6}")] == [
        1,
        1,
        1,
    ]


def test_a_changed_function_is_compiled_without() -> None:
    ((symbol, _, counts),) = counted()
    assert "branch_weights" not in module_text([read(collatz)], {(symbol, "other"): counts})


def test_comments_and_documentation_change_no_digest() -> None:
    texts = ("def f(a):\n    return a", 'def f(a):\n    """Say so."""\n    return a  # why', "def f(a):\n    return -a")
    plain, explained, other = (digest_of(ast.parse(text).body[0]) for text in texts)
    assert (plain == explained, plain == other) == (True, False)


def test_the_profile_of_the_core_fits_the_core() -> None:
    """If it does not: `python benchmarks/profile_core.py`."""
    now = {(source.symbol, digest_of(source.tree)) for source in reachable([read(entry) for entry in ENTRIES])}
    entries = {key: counts.entries for key, counts in read_profile(PROFILE).items()}
    stale = sum(count for key, count in entries.items() if key not in now)
    assert stale < sum(entries.values()) / 10
