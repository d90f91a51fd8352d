"""NVIDIA's disassembler as the judge of liveness: what instructions read and write by the opcode tables, and which
registers are live by our analysis, against `nvdisasm -plr`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from heddle.isa.codec import Decoded
from heddle.isa.cubin.cubin import Cubin
from heddle.isa.cubin.flow import EXIT, NVIDIA, RETURN, flow_of, raw_instructions
from heddle.isa.cubin.shadow import shadow_cubin
from heddle.isa.life_ranges import Ranges, life_ranges
from heddle.isa.liveness import Flow, live_sets, names_of
from heddle.isa.words import WORD_BYTES


@dataclass
class LifeVerdict:
    """What was compared: sections of code, instructions that nvdisasm lists, those among them that the opcode table
    does not know; and what differs.
    """

    sections: int = 0
    instructions: int = 0
    raw: int = 0
    roles: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)

    def add(self, other: LifeVerdict) -> None:
        """Count another verdict in."""
        self.sections += other.sections
        self.instructions += other.instructions
        self.raw += other.raw
        self.roles += other.roles
        self.live += other.live


def judge_life(cubin: Cubin, by_tables: bool = True) -> LifeVerdict:
    """Compare a cubin's registers, by NVIDIA's convention of calls and guards. Raises UserError where nvdisasm refuses
    it.

    Instructions that the table does not know have NVIDIA's own roles in our analysis; with `by_tables=False` all have
    them, so that only the analysis is judged.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(shadow_cubin(cubin))
        listed = life_ranges(path)
    verdict = LifeVerdict()
    for section in cubin.texts:
        ranges = listed.get(cubin.elf.sections[section].name)
        if ranges is not None:
            verdict.add(_section(cubin, section, ranges, by_tables))
    return verdict


def _section(cubin: Cubin, section: int, ranges: Ranges, by_tables: bool) -> LifeVerdict:
    decoded, flow = flow_of(cubin, section, NVIDIA)
    name, shown = cubin.elf.sections[section].name, ranges.shown
    raw = set(raw_instructions(decoded).tolist())
    verdict = LifeVerdict(1, len(ranges.numbers), len(raw & set(ranges.numbers)))
    reads, writes = list(flow.reads), list(flow.writes)
    unmarked = _unmarked(decoded, flow)
    for number, read, written in zip(ranges.numbers, ranges.reads, ranges.writes, strict=True):
        read |= unmarked.get(number, 0)
        roles = _differ(reads[number], read, shown), _differ(writes[number], written, shown)
        if number not in raw and any(roles):
            what = "; ".join(f"{word} {role}" for word, role in zip(("reads", "writes"), roles, strict=True) if role)
            verdict.roles.append(f"{_place(name, number)}, {decoded[number].mnemonic}: {what}")
        if number in raw or not by_tables:
            reads[number], writes[number] = read, written
    live = live_sets(replace(flow, reads=reads, writes=writes), NVIDIA)
    for number, theirs in zip(ranges.numbers, ranges.live, strict=True):
        if differ := _differ(live[number], theirs, shown):
            verdict.live.append(f"{_place(name, number)}: {differ}")
    return verdict


def _unmarked(decoded: Decoded, flow: Flow) -> dict[int, int]:
    """Return what ends of code read by convention: it is live there, but not marked."""
    found = {index: NVIDIA.exit_reads for index, after in enumerate(flow.successors) if not after}
    for index, code in enumerate(decoded.opcode.tolist()):
        if code == RETURN:
            found[index] = NVIDIA.return_reads
        elif code == EXIT:
            found[index] = NVIDIA.exit_reads
    return found


def _place(section: str, number: int) -> str:
    return f"{section}, {number * WORD_BYTES:#x}"


def _differ(ours: int, theirs: int, shown: int) -> str:
    """Return the registers of one side only, in words; nothing where the sides are the same."""
    more, less = (" ".join(names_of(one & shown)) for one in (ours & ~theirs, theirs & ~ours))
    return ", ".join(part for part in (more and f"only ours {more}", less and f"only theirs {less}") if part)
