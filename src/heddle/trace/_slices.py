"""Slices of a timeline, and how they are packed onto tracks whose slices must nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Detail = str | int


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasts from cycle `begin` to `end` (excluded), with details for its tooltip."""

    begin: int
    end: int
    name: str
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(slots=True)
class Track:
    """One row of the timeline; `path` is its place in the tree, outermost first."""

    path: tuple[str, ...]
    slices: list[Slice] = field(default_factory=list)
    description: str = ""


def in_lanes(path: tuple[str, ...], slices: Iterable[Slice]) -> list[Track]:
    """Spread slices that may overlap over as few tracks as needed, each slice on the first that is free."""
    lanes: list[Track] = []
    for piece in sorted(slices, key=lambda s: (s.begin, s.end)):
        lane = next((track for track in lanes if track.slices[-1].end <= piece.begin), None)
        if lane is None:
            lane = Track((*path[:-1], f"{path[-1]} {len(lanes)}"))
            lanes.append(lane)
        lane.slices.append(piece)
    if len(lanes) == 1:
        lanes[0].path = path
    return lanes


def in_sequence(path: tuple[str, ...], slices: Iterable[Slice]) -> Track:
    """Put slices of a unit that serves one request after the other on one track; a later one begins when it is free."""
    track = Track(path)
    free = 0
    for piece in sorted(slices, key=lambda s: (s.begin, s.end)):
        begin = max(piece.begin, free)
        free = max(begin + 1, piece.end)
        track.slices.append(Slice(begin, free, piece.name, piece.details))
    return track
