"""Inserts instructions anywhere in a kernel: every distance, jump table and return address is written anew.

The base that a register is added to (RET.REL, BRX) stays the beginning of the section, so that what the registers hold
must move: entries of jump tables, which attributes list, and return addresses, which a MOV before each call holds. A
call whose return address cannot be found, or a call through a table of functions, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.isa.cubin import attributes
from heddle.isa.cubin.branches import branches, put_distances
from heddle.isa.cubin.cubin import Cubin, Function, opcodes
from heddle.isa.cubin.resources import kernel_attributes
from heddle.isa.cubin.returns import return_addresses
from heddle.isa.cubin.rewrite import Code128, rewrite
from heddle.isa.cubin.shift import Shift, insert
from heddle.isa.words import WORD_BYTES, Words, put

CALL_THROUGH_TABLE = 0x344
TABLES = ".nv.constant2."
REUSE = (124, 122)
"""Bits of an instruction that keep operands for the next one."""


def relink(cubin: Cubin, inserted: Mapping[str, Mapping[int, Words]], through: bool = True) -> bytes:
    """Return the cubin with instructions inserted, by kernel and offset (bytes) of the instruction that they precede.

    Where `through`, branches to that instruction run what was inserted, too. Raises UserError, with the reason, for
    kernels that cannot be taken apart.
    """
    codes, tables = {}, {}
    for name, places in inserted.items():
        kernel = cubin.kernel(name)
        old = cubin.words(kernel.section)
        if (opcodes(old) == CALL_THROUGH_TABLE).any():
            raise UserError(f"{cubin.what}: kernel {name} calls through a table of functions, which would not follow")
        new, shift = insert(_without_reuse(old, places), dict(places), through)
        _move_branches(cubin, kernel, old, new, shift)
        _move_returns(cubin, kernel, old, new, shift)
        codes[kernel.section] = Code128(new, shift)
        tables.update(_moved_table(cubin, kernel, shift))
    sections = tuple(one.with_data(tables[one.name]) if one.name in tables else one for one in cubin.elf.sections)
    return rewrite(replace(cubin, elf=replace(cubin.elf, sections=sections)), codes)


def _without_reuse(words: Words, places: Mapping[int, Words]) -> Words:
    """Return code in which no operand is kept across an insertion."""
    out = words.copy()
    before = np.array([offset // WORD_BYTES - 1 for offset in places if offset >= WORD_BYTES], np.int64)
    chosen = out[before]
    put(chosen, *REUSE, 0)
    out[before] = chosen
    return out


def _move_branches(cubin: Cubin, kernel: Function, old: Words, new: Words, shift: Shift) -> None:
    found = branches(old, cubin.architecture)
    places = np.array([shift.place(int(i) * WORD_BYTES) for i in found.index], np.int64)
    targets = np.array(
        [_target(kernel, shift, int(t), bool(r)) for t, r in zip(found.target, found.indirect, strict=True)]
    )
    kept = places < len(new) * WORD_BYTES  # NOPs made room, but they are no branches
    index = places // WORD_BYTES
    put_distances(new, index[kept], (targets - places - WORD_BYTES)[kept].astype(np.int64), cubin.architecture)


def _target(kernel: Function, shift: Shift, target: int, indirect: bool) -> int:
    if indirect:
        if target:
            raise UserError(f"kernel {kernel.name} adds registers to {target:#x}, not to the beginning of its code")
        return 0
    if not 0 <= target <= shift.old_size:
        raise UserError(f"kernel {kernel.name} has a branch to {target:#x}, outside its code")
    return shift.target(target)


def _move_returns(cubin: Cubin, kernel: Function, old: Words, new: Words, shift: Shift) -> None:
    for index, address in return_addresses(cubin, kernel.section, old).items():
        at = shift.place(index * WORD_BYTES) // WORD_BYTES
        put(new[at : at + 1], 63, 32, shift.target(address))


def _moved_table(cubin: Cubin, kernel: Function, shift: Shift) -> dict[str, bytes]:
    """Return the kernel's constants with the entries of its jump tables moved. Raises UserError where one is not
    found.
    """
    section = cubin.elf.named(TABLES + kernel.name)
    lists = jump_tables(cubin, kernel.name)
    if not lists:
        return {}
    if section is None or len(section.data) % 4:
        raise UserError(f"kernel {kernel.name} has jump tables, but no section {TABLES + kernel.name}")
    entries = np.frombuffer(section.data, "<u4").copy()
    taken = np.zeros(len(entries), bool)
    for targets in lists:
        at = _table_at(entries, taken, targets)
        if at < 0:
            raise UserError(f"kernel {kernel.name}: the jump table of {len(targets)} entries was not found")
        taken[at : at + len(targets)] = True
    moved = [shift.target(int(entry)) if mine else int(entry) for entry, mine in zip(entries, taken, strict=True)]
    return {section.name: np.array(moved, "<u4").tobytes()}


def jump_tables(cubin: Cubin, kernel: str) -> list[tuple[int, ...]]:
    """Return the targets (bytes) of each indirect branch of a kernel, in the order of its table."""
    return list(_indirect(cubin, cubin.kernel(kernel)).values())


def indirect_targets(cubin: Cubin, section: str) -> dict[int, tuple[int, ...]]:
    """Return the targets (bytes) of each indirect branch of a section of code, by the branch's instruction."""
    for kernel in cubin.kernels:
        if cubin.elf.sections[kernel.section].name == section:
            return {at // WORD_BYTES: targets for at, targets in _indirect(cubin, kernel).items()}
    return {}


def _indirect(cubin: Cubin, kernel: Function) -> dict[int, tuple[int, ...]]:
    found = {}
    for one in kernel_attributes(cubin, kernel):
        if one.code == attributes.INDIRECT_BRANCHES:
            attributes.offset_positions(one)  # checks the counts
            numbers, at = one.numbers(), 0
            while at < len(numbers):
                found[numbers[at]] = numbers[at + 3 : at + 3 + numbers[at + 2]]
                at += 3 + numbers[at + 2]
    return found


def _table_at(entries: NDArray[np.uint32], taken: NDArray[np.bool_], targets: tuple[int, ...]) -> int:
    """Return the first place where the entries are these targets and belong to no other table, -1 if there is none."""
    for at in range(len(entries) - len(targets) + 1):
        if not taken[at : at + len(targets)].any() and tuple(entries[at : at + len(targets)].tolist()) == targets:
            return at
    return -1
