"""All functions of a unit as one module of LLVM text, with what a profile says of their branches, or counting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heddle.sim.native.expressions import INTRINSICS
from heddle.sim.native.profile import COUNTERS, Counts, digest_of, summary
from heddle.sim.native.source import Source, read
from heddle.sim.native.statements import Statements

DECLARATIONS = [
    *(f"declare i64 @{name}(i64, i64)" for name in INTRINSICS.values()),
    "declare i64 @llvm.cttz.i64(i64, i1)",
    "declare i64 @llvm.ctlz.i64(i64, i1)",
    "declare i64 @llvm.ctpop.i64(i64)",
    "declare i64 @llvm.fshr.i64(i64, i64, i64)",
]


@dataclass(frozen=True, slots=True)
class Counted:
    """Where the counters of a function are: one for its entries, then two a branch."""

    symbol: str
    digest: str
    first: int
    branches: int


def reachable(entries: Sequence[Source]) -> list[Source]:
    """Return the entries and everything that they call, by name."""
    waiting, found = list(entries), {}
    while waiting:
        source = waiting.pop()
        if source.symbol not in found:
            found[source.symbol] = source
            statements = Statements(source)
            statements.function(exported=False)
            waiting.extend(read(function) for function in statements.expressions.called.values())
    return [found[symbol] for symbol in sorted(found)]


def module_text(entries: Sequence[Source], profile: Mapping[tuple[str, str], Counts]) -> str:
    """Return the LLVM text of the entries and everything that they call; `profile`: counts by symbol and digest."""
    exported, texts, used = {entry.symbol for entry in entries}, [], {}
    for source in reachable(entries):
        counts = profile.get((source.symbol, digest_of(source.tree)))
        if counts is not None:
            used[source.symbol] = counts
        texts.append(Statements(source, counts).function(exported=source.symbol in exported))
    return "\n\n".join([*DECLARATIONS, *texts, summary(used)])


def counting_text(entries: Sequence[Source]) -> tuple[str, list[Counted]]:
    """Return text that counts entries and branches, and where it does."""
    exported, texts, counted, first = {entry.symbol for entry in entries}, [], [], 0
    for source in reachable(entries):
        statements = Statements(source, counter=first)
        texts.append(statements.function(exported=source.symbol in exported))
        counted.append(Counted(source.symbol, digest_of(source.tree), first, statements.out.branches))
        first += 1 + 2 * statements.out.branches
    counters = f"@{COUNTERS} = global [{first} x i64] zeroinitializer"
    return "\n\n".join([*DECLARATIONS, counters, *texts]), counted
