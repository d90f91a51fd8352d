"""Return addresses that code keeps as numbers: a MOV in front of a call holds the address of what follows the call."""

from __future__ import annotations

import numpy as np

from heddle.errors import UserError
from heddle.isa.cubin.branches import branches
from heddle.isa.cubin.cubin import Cubin, Function, opcodes
from heddle.isa.cubin.elf import REL, RELA, TYPE_REL, TYPE_RELA
from heddle.isa.cubin.symbols import PLACE_BITS
from heddle.isa.words import WORD_BYTES, Words, get

CALL, RETURN = 0x944, 0x950
MOVES = (0x802, 0x424)
"""MOV and IMAD.MOV.U32 of an immediate."""


def return_addresses(cubin: Cubin, section: int, words: Words) -> dict[int, int]:
    """Return, by index of the MOV, the return addresses (bytes) that a section's code keeps as numbers.

    Addresses with a relocation are not among them. Raises UserError where a function that returns is called and no MOV
    in the same block holds the address: it could not follow when instructions move.
    """
    codes = opcodes(words)
    calls = np.flatnonzero(codes == CALL)
    if not len(calls) or not (codes == RETURN).any():
        return {}
    found = branches(words, cubin.architecture)
    targets = dict(zip(found.index.tolist(), found.target.tolist(), strict=True))
    starts = {0, *(target // WORD_BYTES for target in targets.values())} | {i + 1 for i in targets}
    relocated = _relocated(cubin, section)
    addresses: dict[int, int] = {}
    for call in calls.tolist():
        address = (call + 1) * WORD_BYTES
        block = range(max(start for start in starts if start <= call), call)
        if any(index in relocated for index in block):
            continue
        moves = [i for i in block if int(codes[i]) in MOVES and int(get(words[i : i + 1], 63, 32)[0]) == address]
        if moves:
            addresses[moves[-1]] = address
        elif callee := _returning(cubin, section, targets[call], words):
            raise UserError(
                f"{cubin.what}: the call of {callee.name} at {call * WORD_BYTES:#x} of "
                f"{cubin.elf.sections[section].name} has no return address in its block that could be moved"
            )
    return addresses


def _returning(cubin: Cubin, section: int, target: int, words: Words) -> Function | None:
    """Return the function that begins at a place, if it returns; calls of local labels are jumps."""
    for function in cubin.functions:
        if function.section == section and function.start == target:
            code = words[function.start // WORD_BYTES : (function.start + function.size) // WORD_BYTES]
            return function if (opcodes(code) == RETURN).any() else None
    return None


def _relocated(cubin: Cubin, section: int) -> set[int]:
    """Return the instructions of a section that have a relocation."""
    found: set[int] = set()
    for one in cubin.elf.sections:
        if one.info == section and one.type in (TYPE_REL, TYPE_RELA):
            rows = one.records(RELA if one.type == TYPE_RELA else REL)
            found |= {(int(row["offset"]) & PLACE_BITS) // WORD_BYTES for row in rows}
    return found
