"""One order for the matrix units in the FIBER-native backward pass on H100, kept by tokens.

Lockstep instructions of several groups of wefts must reach the matrix units in one order in all subpartitions. A cycle
belongs to a block of queries: its scores and dP of either block of keys, and between them dV, dK and dQ of what has
been differentiated before. So every product has the time of three or four others to wait for what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from heddle.lang import Builder, Token


@dataclass(frozen=True)
class Station:
    """A place in the cycle: `role` issues the product `name`."""

    role: str
    name: str


class Turns:
    """Tokens between the stations of a cycle; neighbours of one role need none."""

    def __init__(self, k: Builder, stations: list[Station]) -> None:
        self.stations = stations
        names = [f"after_{station.name}" for station in stations]
        self.tokens: list[Token | None] = [
            k.token(names[i]) if station.role != stations[(i + 1) % len(stations)].role else None
            for i, station in enumerate(stations)
        ]

    @property
    def last(self) -> str:
        """The role that ends a cycle."""
        return self.stations[-1].role

    def begin(self, name: str) -> None:
        """Wait until the product before has been issued."""
        before = self.tokens[self._place(name) - 1]
        if before is not None:
            before.take()

    def end(self, name: str) -> None:
        """Let the next product be issued."""
        after = self.tokens[self._place(name)]
        if after is not None:
            after.give()

    def skip(self, *names: str) -> None:
        """Let the turns of these products go by."""
        for name in names:
            self.begin(name)
            self.end(name)

    def open(self) -> None:
        """At the entry of the role that ends a cycle: let the first one begin."""
        self.end(self.stations[-1].name)

    def close(self) -> None:
        """At the end of the role that begins a cycle: take the turn that is left over."""
        self.begin(self.stations[0].name)

    def _place(self, name: str) -> int:
        return next(i for i, station in enumerate(self.stations) if station.name == name)
