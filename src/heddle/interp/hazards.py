"""Hazards: two accesses to the same elements, one of them a write, that nothing orders; and reads of nothing.

Every access is recorded with its span of cycles and the event that makes its end known. An earlier access is *ordered*
before a later one if the later one's issuer knows that it is finished (vector clocks), and was finished when it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from heddle.interp._arrays import Box, TileArray
from heddle.interp._clocks import Knowledge
from heddle.ir.warp import WarpProgram

Mode = Literal["read", "write", "reduce"]


@dataclass(slots=True, eq=False)
class Site:
    """Who made an access: pc, SM, slot and warp."""

    pc: int
    sm: int
    slot: int
    warp: int


@dataclass(slots=True, eq=False)
class Touch:
    """One access: its box, its span in cycles, and the (cluster, component, value) that tells that it is finished."""

    mode: Mode
    box: Box
    begin: int
    end: int
    cluster: int
    component: int
    value: int
    site: Site
    chain: bool = False  # matrix instructions of one component are in order among themselves
    proxy: bool = False  # made by an asynchronous unit


@dataclass(slots=True)
class Hazard:
    """A hazard found; `times` counts its repetitions at the same two instructions, `text` says all of it."""

    kind: str
    object: str
    text: str
    lines: tuple[str, ...]
    cycle: int
    times: int = 1

    def __str__(self) -> str:
        return self.text if self.times == 1 else f"{self.text} (and {self.times - 1} more times)"


class History:
    """Touches of one stage of an array that a later access may still conflict with, kept by bands of rows."""

    __slots__ = ("_band_rows", "_bands")

    def __init__(self, band_rows: int) -> None:
        self._band_rows = band_rows
        self._bands: dict[int, list[tuple[int, int, int, int, Touch]]] = {}  # box, flat for speed

    def enter(self, touch: Touch, knowledge: Knowledge) -> list[Touch]:
        """Record a touch and return the recorded ones that conflict with it.

        Forgets what a write covers, and what a later touch of the same source repeats: either would be found again.
        """
        conflicts: dict[int, Touch] = {}
        box, mode = touch.box, touch.mode
        row, row_end, col, col_end = box.row, box.row_end, box.col, box.col_end
        for band in range(row // self._band_rows, (row_end - 1) // self._band_rows + 1):
            entries = self._bands.setdefault(band, [])
            stale = False
            for first, last, left, right, old in entries:
                if row >= last or first >= row_end or col >= right or left >= col_end:
                    continue
                if (old.mode != mode or mode == "write") and not _is_ordered(old, touch, knowledge):
                    conflicts[id(old)] = old
                stale = stale or _is_replaced(old, touch)
            if stale:
                entries[:] = [entry for entry in entries if not _is_replaced(entry[4], touch)]
            entries.append((row, row_end, col, col_end, touch))
        return list(conflicts.values())

    def overlapping(self, box: Box) -> list[Touch]:
        """Return the recorded touches that share an element with a box."""
        row, row_end, col, col_end = box.row, box.row_end, box.col, box.col_end
        found = {
            id(old): old
            for band in range(row // self._band_rows, (row_end - 1) // self._band_rows + 1)
            for first, last, left, right, old in self._bands.get(band, ())
            if row < last and first < row_end and col < right and left < col_end
        }
        return list(found.values())


def _is_replaced(old: Touch, new: Touch) -> bool:
    if new.mode != "write":
        same = old.component == new.component and old.cluster == new.cluster and old.mode == new.mode
        if not same or old.value > new.value:
            return False
    return new.box.covers(old.box)


def _is_ordered(old: Touch, new: Touch, knowledge: Knowledge) -> bool:
    if old.chain and new.chain and (old.cluster, old.component) == (new.cluster, new.component):
        return True
    return old.end <= new.begin and knowledge.knows(old.cluster, old.component, old.value)


@dataclass(slots=True)
class HazardList:
    """Collects hazards, one for each pair of instructions and object."""

    program: WarpProgram
    found: dict[tuple[object, ...], Hazard] = field(default_factory=dict)

    def race(self, array: TileArray, old: Touch, new: Touch) -> None:
        """Report two touches that nothing orders; the kind says what their times in this run were."""
        kind = _race_kind(old, new)
        box = _common(old.box, new.box)
        first, second = (new, old) if new.mode != "read" and old.mode == "read" else (old, new)
        text = f"hazard: {kind} {_region(array, box)}: {self._made(first)}, {self._made(second)}; {_advice(kind)}"
        self._add((kind, array.description.name, old.site.pc, new.site.pc), kind, array, text, (old, new))

    def uninitialised(self, array: TileArray, touch: Touch) -> None:
        """Report a read of elements that nothing has written."""
        kind = "uninitialised read"
        text = f"hazard: {kind} {_region(array, touch.box)}: never written before, {self._made(touch)}"
        self._add((kind, array.description.name, touch.site.pc), kind, array, text, (touch,))

    def out_of_bounds(self, array: TileArray, touch: Touch) -> None:
        """Report an access that leaves its array (global tensors are clipped instead)."""
        kind = "out of bounds"
        shape = " x ".join(str(n) for n in array.description.shape)
        text = f"hazard: {kind} {_region(array, touch.box)} of an array of {shape}: {self._made(touch)}"
        self._add((kind, array.description.name, touch.site.pc), kind, array, text, (touch,))

    def unfinished(self, store_pc: int, exit_site: Site, cycle: int, *, copy: bool = False) -> None:
        """Report a warp that ends without knowing that its bulk stores have read shared memory.

        `copy`: a CTA that ends without knowing that a copy from it to its peer, or from there to it, has landed.
        """
        kind = "exit during copy to the peer" if copy else "exit during bulk store"
        effect = self.program.instructions[store_pc].effect
        label = self.program.effects[effect].reads[0].object if effect is not None else "shared memory"
        lines = (place_of(self.program, store_pc), place_of(self.program, exit_site.pc))
        advice = (
            "wait until it has landed, and let both CTAs know that (a cluster barrier after the wait)"
            if copy
            else "wait for the store's reads"
        )
        text = (
            f"hazard: {kind} from {label}: issued by {lines[0]}, exit at {lines[1]}"
            f" (SM {exit_site.sm}, slot {exit_site.slot}, warp {exit_site.warp}, cycle {cycle});"
            f" {advice} before the end, shared memory is given away there"
        )
        self._count((kind, label, store_pc, exit_site.pc), Hazard(kind, label, text, lines, cycle))

    def touched_at_end(self, pc: int, exit_site: Site, cycle: int) -> None:
        """Report a CTA that ends without knowing that another one has signalled it, or used its tiles, to the end."""
        kind = "exit before another CTA is done"
        label, lines = self._target(pc), (place_of(self.program, pc), place_of(self.program, exit_site.pc))
        text = (
            f"hazard: {kind} with {label}: {lines[0]}, exit at {lines[1]}"
            f" (SM {exit_site.sm}, slot {exit_site.slot}, warp {exit_site.warp}, cycle {cycle});"
            " wait for it, or meet at a cluster barrier, before the end: shared memory is given away there"
        )
        self._count((kind, label, pc, exit_site.pc), Hazard(kind, label, text, lines, cycle))

    def too_early(self, site: Site, cycle: int) -> None:
        """Report a signal, copy or product that reaches a CTA of which the warp does not know whether it has begun."""
        kind = "peer may not have begun"
        line, label = place_of(self.program, site.pc), self._target(site.pc)
        text = (
            f"hazard: {kind}: {line} reaches its {label}"
            f" (SM {site.sm}, slot {site.slot}, warp {site.warp}, cycle {cycle});"
            " meet at a cluster barrier first"
        )
        self._count((kind, label, site.pc), Hazard(kind, label, text, (line,), cycle))

    def _target(self, pc: int) -> str:
        """The barrier that an instruction signals, or what it reads."""
        instruction = self.program.instructions[pc]
        if instruction.barrier is not None:
            return f"barrier {instruction.barrier.name}"
        return self.program.effects[instruction.effect].reads[0].object if instruction.effect is not None else ""

    def missing_fence(self, array: TileArray, old: Touch, new: Touch) -> None:
        """Report a shared store that an asynchronous unit reads without a proxy fence between."""
        kind = "no fence before asynchronous read of"
        text = (
            f"hazard: {kind} {_region(array, _common(old.box, new.box))}: {self._made(old)}, {self._made(new)};"
            " fence the stores before the barrier that announces them"
        )
        self._add((kind, array.description.name, old.site.pc, new.site.pc), kind, array, text, (old, new))

    def _add(self, key: tuple[object, ...], kind: str, array: TileArray, text: str, touches: tuple[Touch, ...]) -> None:
        lines = tuple(place_of(self.program, touch.site.pc) for touch in touches)
        self._count(key, Hazard(kind, array.description.name, text, lines, max(t.begin for t in touches)))

    def _count(self, key: tuple[object, ...], hazard: Hazard) -> None:
        if key in self.found:
            self.found[key].times += 1
        else:
            self.found[key] = hazard

    def _made(self, touch: Touch) -> str:
        site = touch.site
        verb = {"read": "read", "write": "written", "reduce": "added to"}[touch.mode]
        span = f"cycle {touch.begin}" if touch.end <= touch.begin + 1 else f"cycles {touch.begin} to {touch.end}"
        return f"{verb} by {place_of(self.program, site.pc)} (SM {site.sm}, slot {site.slot}, warp {site.warp}, {span})"


def place_of(program: WarpProgram, pc: int) -> str:
    """Return "file:line operation" of an instruction; "pc N opcode" if it has no source."""
    instruction = program.instructions[pc]
    if instruction.source < len(program.sources):
        source = program.sources[instruction.source]
        return f"{source.file}:{source.line} {source.operation or instruction.op}"
    return f"pc {pc} {instruction.op}"


def _race_kind(old: Touch, new: Touch) -> str:
    at_once = old.end > new.begin
    if old.mode != "read" and new.mode == "read":
        return "read while being written" if at_once else "read not ordered after write"
    if old.mode == "read":
        if not at_once:
            return "overwritten without order after read"
        return "read while being written" if old.begin >= new.begin else "overwritten while being read"
    return "written twice at once" if at_once else "written twice without order"


def _advice(kind: str) -> str:
    if kind in ("read while being written", "read not ordered after write"):
        return "wait for the write (its barrier, group or phase) before the read"
    if kind.startswith("overwritten"):
        return "let the reader release the buffer, and the writer wait for that"
    return "put a barrier between the two writes"


def _common(a: Box, b: Box) -> Box:
    return Box(a.stage, max(a.row, b.row), min(a.row_end, b.row_end), max(a.col, b.col), min(a.col_end, b.col_end))


def _region(array: TileArray, box: Box) -> str:
    stage = f"[{box.stage}]" if array.values.shape[0] > 1 else ""
    return f"{array.label}{stage} rows {box.row}:{box.row_end} cols {box.col}:{box.col_end}"
