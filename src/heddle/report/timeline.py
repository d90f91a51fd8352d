"""What a picture of a trace shows: who multiplies, who computes and who waits, as rows of spans; and what overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heddle.trace import Slice, Track

Interval = tuple[int, int]
ARITHMETIC, WAITS, COPIES = "arithmetic", "waits for others", "copies in flight"
ARITHMETIC_OPS = ("Elementwise", "RowReduce", "Mask")
WAIT_PREFIX = "wait: "
OTHERS = frozenset(
    {"mbarrier", "barrier", "gmma", "matrix_scoreboard", "long_scoreboard", "pool_empty", "pool_full", "fiber_sync"}
)
"""Reasons of waits for what other units or warps do; other waits are part of the work itself."""
LEAST_ARITHMETIC = 0.02
"""Share of the window that a role must compute to have a row."""


@dataclass(frozen=True, slots=True)
class Span:
    """From cycle `begin` to `end` (excluded) the row does what `kind` says."""

    begin: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the picture."""

    name: str
    spans: tuple[Span, ...]

    def of(self, *kinds: str) -> list[Interval]:
        """The intervals of some kinds, of all without one."""
        return union((span.begin, span.end) for span in self.spans if not kinds or span.kind in kinds)


def timeline_rows(tracks: Sequence[Track], first_cycle: int, cycles: int) -> list[Row]:
    """Return the rows of the first SM: tensor cores by role, warps that compute, and copies; empty ones left out."""
    sm = next((track.path[0] for track in tracks if track.path[0].startswith("SM ")), "")
    window = (first_cycle, first_cycle + cycles)
    here = [track for track in tracks if track.path[0] == sm]
    warps = [track for track in here if track.path[-1].startswith("warp ")]
    rows = [*_tensor_rows(here, warps, window), *_warp_rows(warps, window), *_copy_rows(here, window)]
    return [row for row in rows if row.spans]


def overlap(some: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Return the share of the time of `some` that lies in `others`; 0 if there is none."""
    total = sum(end - begin for begin, end in some)
    return sum(end - begin for begin, end in intersection(some, others)) / total if total else 0.0


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals that touch."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def intersection(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return what lies in both of two sorted lists of disjoint intervals."""
    found, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        begin, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] <= others[j][1]:
            i += 1
        else:
            j += 1
    return found


def difference(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return what lies in the first of two sorted lists of disjoint intervals only."""
    left: list[Interval] = []
    for begin, end in some:
        for first, last in intersection([(begin, end)], others):
            left += [(begin, first)] if begin < first else []
            begin = last
        left += [(begin, end)] if begin < end else []
    return left


def _clipped(slices: Iterable[Slice], window: Interval) -> list[Interval]:
    low, high = window
    return union((max(s.begin, low), min(s.end, high)) for s in slices if s.begin < high and s.end > low)


def _tensor_rows(tracks: Sequence[Track], warps: Sequence[Track], window: Interval) -> list[Row]:
    """One row a role whose products run, coloured by the line of the product; of several units the first."""
    units = [track for track in tracks if track.path[1:2] == ("units",) and track.path[-1].startswith("tensor")]
    if not units:
        return []
    role_of = {int(track.path[-1].split()[1]): track.path[1] for track in warps}
    by_role: dict[str, list[Slice]] = {}
    for piece in units[0].slices:
        by_role.setdefault(role_of.get(int(piece.details.get("warp", -1)), ""), []).append(piece)
    rows = []
    for role, slices in sorted(by_role.items()):
        names = sorted({piece.name for piece in slices})
        spans = [Span(*i, name) for name in names for i in _clipped((s for s in slices if s.name == name), window)]
        place = "" if units[0].path[-1] == "tensor" else " " + units[0].path[-1].removeprefix("tensor ")
        rows.append(Row(f"tensor cores{place}" + (f": {role}" if role else ""), _sorted(spans)))
    return rows


def _warp_rows(warps: Sequence[Track], window: Interval) -> list[Row]:
    """The first warp of each role that computes: arithmetic, and waits for others."""
    rows, seen = [], set()
    for track in warps:
        if track.path[1] in seen:
            continue
        seen.add(track.path[1])
        reasons = {WAIT_PREFIX + reason for reason in OTHERS}
        waits = _clipped((s for s in track.slices if s.name in reasons), window)
        computes = _clipped((s for s in track.slices if s.name.split(" ")[0] in ARITHMETIC_OPS), window)
        arithmetic = difference(computes, waits)
        if sum(end - begin for begin, end in arithmetic) < LEAST_ARITHMETIC * (window[1] - window[0]):
            continue
        spans = [Span(*i, ARITHMETIC) for i in arithmetic] + [Span(*i, WAITS) for i in waits]
        rows.append(Row(f"{track.path[1]} ({track.path[-1]})", _sorted(spans)))
    return rows


def _copy_rows(tracks: Sequence[Track], window: Interval) -> list[Row]:
    loads = ("TMA loads", "global memory")
    slices = [
        piece
        for track in tracks
        if track.path[1:2] == ("units",) and track.path[-1].startswith(loads)
        for piece in track.slices
        if not piece.name.startswith(("STG", "RED", "UTMASTG"))
    ]
    return [Row("loads", tuple(Span(*i, COPIES) for i in _clipped(slices, window)))]


def _sorted(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: (span.begin, span.end)))
