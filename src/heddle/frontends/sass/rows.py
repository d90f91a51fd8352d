"""Rows of single words: registers, control field and the few instructions whose bits say more than the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.frontends.sass.table import Entry, find
from heddle.ir.warp import RZ, Control, Instruction, Register
from heddle.ir.warp_fiber import FIBERS
from heddle.isa.emission.control import get_control, has_cache_bits
from heddle.isa.emission.form import SLOT_BITS, code_of
from heddle.isa.emission.places import REUSE_BITS
from heddle.isa.words import get_bits

REGISTER_BYTES = 128  # of the 32 lanes
SPARSE_BIT = 73
HMMA_DTYPES = ("fp16", "bf16", "tf32", "tf32")


def control_of(word: int) -> Control:
    """Return the control field; hardware's stall of 0 (issue together) counts as 1."""
    control = get_control(word)
    return control if control.stall else Control(
        stall=1, wait=control.wait, write_barrier=control.write_barrier, read_barrier=control.read_barrier
    )  # fmt: skip


def rows_of(word: int, warps: int) -> list[Instruction] | None:
    """Return the rows of a word, but for branches and streams; None where warp programs have nothing for it."""
    code = code_of(word)
    special = _SPECIAL.get(code)
    if special is not None:
        return special(word, warps)
    entry = find(code)
    return None if entry is None else [_row(word, code, entry)]


def _row(word: int, code: int, entry: Entry) -> Instruction:
    count = entry.destination(word)
    dst = register(word, "d", count) if count else None
    fields: dict[str, Any] = {}
    slots = entry.source_slots(code)
    src = tuple(r for slot in slots if (r := register(word, slot, entry.width(slot, word))) is not None)
    if entry.op in ("LDS", "STS", "LDSM", "STSM") or entry.memory:
        moved = count or entry.width("bytes" if entry.op == "LDGSTS" else "b", word)
        fields["bytes"] = moved * REGISTER_BYTES
    return Instruction(op=entry.op, dst=dst, src=src, control=control_of(word), **fields)


def register(word: int, slot: str, count: int) -> Register | None:
    """Return the registers of a slot, None for RZ; a pair at an odd number is one register (a 32-bit address)."""
    index = get_bits(word, *SLOT_BITS[slot])
    if index == RZ:
        return None
    reuse = slot in REUSE_BITS and has_cache_bits(word) and bool(word >> REUSE_BITS[slot] & 1)
    return Register(index, 1 if index % count else count, reuse)


def _hmma(word: int, warps: int) -> list[Instruction] | None:
    if word >> SPARSE_BIT & 1:
        return None
    deep, dtype = bool(word >> 75 & 1), HMMA_DTYPES[get_bits(word, 83, 82)]
    k = (16 if deep else 8) if dtype != "tf32" else (4 if deep else 8)
    large = k * (4 if dtype == "tf32" else 2) == 32
    outputs = 4 if word >> 76 & 1 else 2
    sources = [("a", 4 if large else 2), ("b", 2 if large else 1), ("c", outputs)]
    src = [register(word, slot, count) or Register(RZ) for slot, count in sources]
    dst = register(word, "d", outputs)
    if src[2] == dst:
        src.pop()
    return [
        Instruction(
            op="HMMA", dst=dst, src=tuple(src), control=control_of(word), shape=(16, 8, k), form="rr", dtype=dtype
        )
    ]


def _hgmma(word: int, warps: int) -> list[Instruction]:
    columns = 8 * (get_bits(word, 58, 53) + 1)
    fp8 = code_of(word) & 3 == 3
    from_registers = code_of(word) >> 9 & 7 == 6
    row = Instruction(
        op="QGMMA" if fp8 else "HGMMA",
        dst=register(word, "d", columns // 2),
        src=tuple(filter(None, [register(word, "a", 4)])) if from_registers else (),
        control=control_of(word),
        shape=(64, columns, 32 if fp8 else 16),
        form="rs" if from_registers else "ss",
        dtype="fp8_e4m3" if fp8 else HMMA_DTYPES[get_bits(word, 77, 76) and 1],
    )
    commits = get_bits(word, 86, 84) == 0
    return [row, Instruction(op="WARPGROUP.COMMIT")] if commits else [row]


def _warpgroup(word: int, warps: int) -> list[Instruction]:
    if word >> 80 & 1:
        return [Instruction(op="WARPGROUP.DEPBAR", control=control_of(word), pending=get_bits(word, 74, 72))]
    return [Instruction(op="WARPGROUP.ARRIVE", control=control_of(word))]


def _bar(word: int, warps: int) -> list[Instruction] | None:
    mode = get_bits(word, 79, 77)
    if mode > 1:
        return None
    threads = get_bits(word, 53, 42)
    return [
        Instruction(
            op="BAR.ARV" if mode else "BAR.SYNC", control=control_of(word), barrier_id=get_bits(word, 57, 54),
            warps=threads // FIBERS or warps,
        )
    ]  # fmt: skip


def _depbar(word: int, warps: int) -> list[Instruction] | None:
    if word >> 48 & 1 or not word >> 47 & 1:
        return None
    return [Instruction(op="DEPBAR", control=control_of(word), pending=get_bits(word, 43, 38))]


def _set_fiber_num(word: int, warps: int) -> list[Instruction]:
    return [
        Instruction(
            op="SETFIBER", control=control_of(word), fibers=get_bits(word, 31, 16), all_scope=bool(word >> 92 & 1)
        )
    ]  # fmt: skip


def _exit(word: int, warps: int) -> list[Instruction]:
    taken = get_bits(word, 15, 12) == 7
    return [Instruction(op="EXIT" if taken else "NOP", control=control_of(word))]


_SPECIAL: dict[int, Callable[[int, int], list[Instruction] | None]] = {
    0x23C: _hmma, 0xB1D: _bar, 0x91A: _depbar, 0x9F8: _set_fiber_num, 0x94D: _exit, 0x19C5: _warpgroup,
    0x9C5: _warpgroup, 0x19F0: _hgmma, 0x19F3: _hgmma, 0x1DF0: _hgmma, 0x1DF3: _hgmma,
}  # fmt: skip
