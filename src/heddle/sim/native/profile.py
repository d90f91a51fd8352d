"""How often each branch of a unit goes which way, measured beforehand: LLVM places and inlines code by it.

A profile is text: a line a function with its symbol, a digest of its syntax tree, how often it was entered, and for
each conditional branch, in the order of its writing, how often it was not taken and taken (`7/2`), scaled down alike.
A function that has changed since is compiled without; so is one that was never entered. Results do not depend on it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COUNTERS = "branch_counters"  # symbol of the counters in a unit that counts
LARGEST = 1 << 30  # LLVM's weights have 32 bits
SHARES = (10_000, 100_000, 500_000, 900_000, 990_000, 999_000, 999_900, 999_999)  # millionths of all counts


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one function: its entries, and (not taken, taken) of each branch."""

    entries: int
    branches: tuple[tuple[int, int], ...]

    def weights(self, branch: int) -> str:
        """Return what a branch instruction says about its weights; nothing if it was never reached."""
        passed, taken = self.branches[branch]
        return f', !prof !{{!"branch_weights", i32 {taken}, i32 {passed}}}' if passed + taken else ""

    def mark(self) -> str:
        """Return what the head of the function says."""
        return f' !prof !{{!"function_entry_count", i64 {self.entries}}}'


Profile = Mapping[str, Counts]


def digest_of(tree: ast.FunctionDef) -> str:
    """Return a digest of a function: equal as long as nothing but comments, documentation and layout changes."""
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return hashlib.sha256("".join(ast.dump(each) for each in body).encode()).hexdigest()[:12]


def read_profile(path: Path) -> dict[tuple[str, str], Counts]:
    """Read a profile: counts by symbol and digest."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        symbol, digest, entries, *branches = line.split()
        pairs = (branch.split("/") for branch in branches)
        found[symbol, digest] = Counts(int(entries), tuple((int(passed), int(taken)) for passed, taken in pairs))
    return found


def profile_text(functions: Sequence[tuple[str, str, Counts]]) -> str:
    """Return counts as the text of a profile: symbol, digest, counts."""
    every = (n for *_, each in functions for n in (each.entries, *(n for pair in each.branches for n in pair)))
    largest = max(every, default=0)
    scale = max(1, -(-largest // LARGEST))
    lines = []
    for symbol, digest, counts in sorted(functions, key=lambda each: each[0]):
        if counts.entries:
            pairs = [f"{-(-passed // scale)}/{-(-taken // scale)}" for passed, taken in counts.branches]
            lines.append(" ".join([symbol, digest, str(-(-counts.entries // scale)), *pairs]))
    return "\n".join(lines) + "\n"


def summary(profile: Profile) -> str:
    """Return the module's note of what is much: for each share of all counts, the least of the counts that make it."""
    counts = sorted((n for each in profile.values() for pair in each.branches for n in pair if n), reverse=True)
    if not counts:
        return ""
    total, rows = sum(counts), []
    for share in SHARES:
        reached = number = 0
        while reached * 1_000_000 < total * share:
            reached += counts[number]
            number += 1
        rows.append(f"!{{i32 {share}, i64 {counts[number - 1]}, i32 {number}}}")
    entries = max(each.entries for each in profile.values())
    figures = {"TotalCount": total, "MaxCount": counts[0], "MaxInternalCount": counts[0], "MaxFunctionCount": entries}
    figures |= {"NumCounts": len(counts), "NumFunctions": len(profile)}
    parts = ['!{!"ProfileFormat", !"InstrProf"}', *(f'!{{!"{name}", i64 {n}}}' for name, n in figures.items())]
    parts.append(f'!{{!"DetailedSummary", !{{{", ".join(rows)}}}}}')
    return f'!0 = !{{i32 1, !"ProfileSummary", !{{{", ".join(parts)}}}}}\n!llvm.module.flags = !{{!0}}'
