"""Our own check of a patched cubin against its original: every place that names an instruction still names the same
one.

Independent of what inserted the instructions: which instruction is which is found again from the code itself, and every
table is read anew and compared instruction by instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.isa.cubin import attributes
from heddle.isa.cubin.branches import Branches, branches, put_distances
from heddle.isa.cubin.cubin import SYMBOL_FUNCTION, SYMBOL_SECTION, Cubin, opcodes
from heddle.isa.cubin.elf import REL, RELA, TYPE_NULL, TYPE_REL, TYPE_RELA
from heddle.isa.cubin.lines import ASSEMBLY_LINES, LINES, read_lines
from heddle.isa.cubin.note import NAME as NOTE
from heddle.isa.cubin.relink import REUSE, jump_tables
from heddle.isa.cubin.returns import return_addresses
from heddle.isa.cubin.shadow import DEPENDENCE, EXTENSION_BIT, FIBER_OPCODES
from heddle.isa.cubin.shift import used_instructions
from heddle.isa.words import WORD_BYTES, Words, get, put

TABLES = ".nv.constant2."
_LINE_TABLES = (LINES, ASSEMBLY_LINES)
_RECALCULATED = (".debug_frame", ".shstrtab", *_LINE_TABLES)


@dataclass(frozen=True, slots=True)
class Places:
    """One section of code: the old number of each new instruction, -1 for an inserted one."""

    numbers: NDArray[np.int64]
    old_count: int

    def old(self, offset: int) -> int:
        """Return the offset in the old code of what is at an offset of the new one; -1 for an inserted instruction.

        The end of the code is the end of the old one.
        """
        index, rest = divmod(offset, WORD_BYTES)
        if index < 0:
            return -1
        if index >= len(self.numbers):
            return self.old_count * WORD_BYTES if index == len(self.numbers) and not rest else -1
        number = int(self.numbers[index])
        return number * WORD_BYTES + rest if number >= 0 else -1


def compare(original: Cubin, patched: Cubin) -> list[str]:
    """Return what differs between two cubins beside inserted FIBER instructions; nothing if all is well."""
    count = len(original.elf.sections)
    if len(patched.elf.sections) < count:
        return [f"{count - len(patched.elf.sections)} sections are gone"]
    extra = [one.name for one in patched.elf.sections[count:] if one.name != NOTE]
    found = [f"section {name} is new" for name in extra]
    if original.texts.keys() != patched.texts.keys():
        return [*found, "sections of code are not the same"]
    places = {index: _places(patched.words(index), len(original.words(index))) for index in original.texts}
    for index in original.texts:
        found += _code(original, patched, index, places[index])
    found += _symbols(original, patched, places)
    for check in (_relocations, _attributes, _lines, _others):
        found += check(original, patched, places)
    return found


PlacesOf = dict[int, Places]


def _places(words: Words, old_count: int) -> Places:
    codes = opcodes(words)
    extended = (codes == DEPENDENCE) & (get(words, EXTENSION_BIT, EXTENSION_BIT) == 1)
    inserted = np.isin(codes, FIBER_OPCODES) | extended
    numbers = np.where(inserted, -1, np.cumsum(~inserted) - 1)
    return Places(np.where(numbers < old_count, numbers, -1), old_count)


def _code(original: Cubin, patched: Cubin, index: int, places: Places) -> list[str]:
    """Words are equal but for distances, which must lead to the same instructions."""
    name = original.elf.sections[index].name
    old, new = original.words(index), patched.words(index)
    used, kept = used_instructions(old), new[places.numbers >= 0]
    if len(kept) < used:
        return [f"{name}: {used - len(kept)} instructions are gone"]
    before, after = branches(old[:used], original.architecture), branches(kept[:used], original.architecture)
    plain = [words.copy() for words in (old[:used], kept[:used])]
    for words, found in zip(plain, (before, after), strict=True):
        put_distances(words, found.index, np.zeros(len(found.index), np.int64), original.architecture)
    _without_reuse(plain, places)
    returns = return_addresses(original, index, old)
    differences = _returns(name, returns, kept, _base(new, original.architecture), places)
    unequal = np.setdiff1d(np.flatnonzero((plain[0] != plain[1]).any(axis=1)), list(returns))
    differences += [f"{name}, instruction {i}: {_hex(old[i])} became {_hex(kept[i])}" for i in unequal.tolist()]
    if not unequal.size:
        differences += _targets(name, before, new, places, original.architecture, used)
    return differences


def _without_reuse(plain: list[Words], places: Places) -> None:
    """Ignore bits that keep operands, where the next instruction is an inserted one."""
    following = np.flatnonzero(places.numbers < 0) - 1
    numbers = places.numbers[following[following >= 0]]
    before = numbers[(numbers >= 0) & (numbers < len(plain[0]))]
    for words in plain:
        chosen = words[before]
        put(chosen, *REUSE, 0)
        words[before] = chosen


def _base(words: Words, architecture: str) -> int:
    """Return what the code adds registers to for returns and jump tables; -1 where it is not one place."""
    found = branches(words, architecture)
    bases = set(found.target[found.indirect].tolist())
    return bases.pop() if len(bases) == 1 else 0 if not bases else -1


def _returns(name: str, returns: dict[int, int], kept: Words, base: int, places: Places) -> list[str]:
    """Each return address, added to the base of returns, leads to the same instruction."""
    found = []
    for index, address in returns.items():
        now = base + int(get(kept[index : index + 1], 63, 32)[0])
        if base < 0 or _landing(places, now) != address:
            found.append(f"{name}, instruction {index}: the return address {address:#x} is {now:#x} now")
    return found


def _targets(name: str, before: Branches, new: Words, places: Places, architecture: str, used: int) -> list[str]:
    found = branches(new, architecture)
    numbers = places.numbers[found.index]
    targets = {int(n): int(t) for n, t in zip(numbers, found.target, strict=True) if n >= 0}
    return [
        f"{name}, instruction {i}: leads to {places.old(targets[i]):#x}, led to {target:#x}"
        for k, (i, target) in enumerate(zip(before.index.tolist(), before.target.tolist(), strict=True))
        if i < used and not _same_target(places, targets[i], target, bool(before.indirect[k]))
    ]


def _same_target(places: Places, now: int, target: int, indirect: bool) -> bool:
    """A base may stay at 0 where the code begins, although something was inserted there."""
    return _landing(places, now) == target or (indirect and now == target == 0)


def _landing(places: Places, target: int) -> int:
    """Return the old place of a target; instructions inserted there lead to what follows them."""
    old = places.old(target)
    while old < 0 and 0 <= target < len(places.numbers) * WORD_BYTES:
        target += WORD_BYTES
        old = places.old(target)
    return old if old >= 0 else target


def _hex(word: NDArray[np.uint64]) -> str:
    return f"{int(word[1]):016x}{int(word[0]):016x}"


def _symbols(original: Cubin, patched: Cubin, places: PlacesOf) -> list[str]:
    if len(original.symbols) != len(patched.symbols):
        return [f"{len(original.symbols)} symbols became {len(patched.symbols)}"]
    found = []
    for index, (old, new) in enumerate(zip(original.symbols, patched.symbols, strict=True)):
        name, at = original.symbol_name(index), places.get(int(old["section"]))
        fixed = all(old[field] == new[field] for field in ("name", "info", "other", "section"))
        start, now = int(old["value"]), int(new["value"])
        moved = at is not None and old["info"] & 15 != SYMBOL_SECTION and start
        if not fixed or (_landing(at, now) if moved and at else now) != start:
            found.append(f"symbol {name} was at {start:#x}, is at {now:#x}")
        elif at is None or old["info"] & 15 != SYMBOL_FUNCTION:
            if old["size"] != new["size"]:
                found.append(f"symbol {name} had {old['size']} bytes, has {new['size']}")
        elif _end(at, now + int(new["size"])) != min(start + int(old["size"]), at.old_count * WORD_BYTES):
            found.append(f"symbol {name} does not end at the same instruction")
    return found


def _end(places: Places, end: int) -> int:
    """Return the old end of a range: after the last instruction in it that is not inserted."""
    if end >= len(places.numbers) * WORD_BYTES:
        return places.old_count * WORD_BYTES
    last = end - WORD_BYTES
    while last >= 0 and places.old(last) < 0:
        last -= WORD_BYTES
    return places.old(last) + WORD_BYTES if last >= 0 else 0


def _relocations(original: Cubin, patched: Cubin, places: PlacesOf) -> list[str]:
    found = []
    for old, new in zip(original.elf.sections, patched.elf.sections, strict=False):
        if old.type not in (TYPE_REL, TYPE_RELA) or original.elf.sections[old.info].name in _LINE_TABLES:
            continue
        kind = RELA if old.type == TYPE_RELA else REL
        before, after = old.records(kind), new.records(kind)
        if len(before) != len(after):
            found.append(f"{old.name}: {len(before)} relocations became {len(after)}")
            continue
        at = places.get(old.info)
        for a, b in zip(before, after, strict=True):
            high, place = divmod(int(b["offset"]), 1 << 32)
            back = at.old(place) if at is not None else place
            if a["info"] != b["info"] or high << 32 | back != int(a["offset"]):
                found.append(f"{old.name}: relocation at {int(a['offset']):#x} is at {int(b['offset']):#x}")
            elif kind is RELA and _addend(original, places, int(a["info"]) >> 32, int(b["addend"])) != a["addend"]:
                found.append(f"{old.name}: addend {int(a['addend']):#x} became {int(b['addend']):#x}")
    return found


def _addend(original: Cubin, places: PlacesOf, symbol: int, addend: int) -> int:
    row = original.symbols[symbol]
    at = places.get(int(row["section"]))
    return addend if at is None or row["value"] or addend <= 0 else _landing(at, addend)


def _attributes(original: Cubin, patched: Cubin, places: PlacesOf) -> list[str]:
    found = []
    for old, new in zip(original.elf.sections, patched.elf.sections, strict=False):
        at = places.get(old.info & 0xFFFFFF)
        if not old.name.startswith(attributes.INFO + ".") or at is None:
            continue
        back = _back(at)
        before = attributes.parse(old.data, old.name)
        after = tuple(attributes.moved(one, back) for one in attributes.parse(new.data, new.name))
        found += [f"{old.name}: {a.name} is no longer the same" for a, b in zip(before, after, strict=False) if a != b]
        if len(before) != len(after):
            found.append(f"{old.name}: {len(before)} attributes became {len(after)}")
    return found


def _back(places: Places) -> Callable[[int], int]:
    return lambda offset: max(places.old(offset), 0) if places.old(offset) >= 0 else 0xFFFFFFFF


def _lines(original: Cubin, patched: Cubin, places: PlacesOf) -> list[str]:
    found = []
    for name in _LINE_TABLES:
        before, after = read_lines(original, name), read_lines(patched, name)
        if len(before) != len(after):
            found.append(f"{name}: {len(before)} rows became {len(after)}")
            continue
        for a, b in zip(before, after, strict=True):
            at = places.get(a.section)
            size = len(at.numbers) * WORD_BYTES if at else 0
            back = b.offset if at is None else _end(at, b.offset) if a.end else at.old(b.offset)
            used_up = at is not None and b.offset >= size  # rows in NOPs that made room
            if (a.section, a.file, a.line, a.end) != (b.section, b.file, b.line, b.end) or (
                back != a.offset and not used_up
            ):
                found.append(f"{name}: the row of {a.file}:{a.line} was at {a.offset:#x}, is at {b.offset:#x}")
    return found


def _others(original: Cubin, patched: Cubin, places: PlacesOf) -> list[str]:
    """Sections that hold no place of an instruction keep every byte, and all keep what their headers say."""
    found = []
    implicit = {one.info for one in original.elf.sections if one.type == TYPE_REL}
    for index, (old, new) in enumerate(zip(original.elf.sections, patched.elf.sections, strict=False)):
        if new.type == TYPE_NULL:
            continue
        header = ("name", "type", "flags", "link", "info", "alignment", "entry_size")
        if any(getattr(old, field) != getattr(new, field) for field in header):
            found.append(f"{old.name}: its header is no longer the same")
        kept = index in places or index in implicit or index == original.symbol_table or old.name in _RECALCULATED
        if kept or old.type in (TYPE_REL, TYPE_RELA) or old.name.startswith(attributes.INFO + "."):
            continue
        if old.name.startswith(TABLES):
            found += _tables(original, patched, index, places)
        elif old.data != new.data:
            found.append(f"{old.name}: its bytes are no longer the same")
    return found


def _tables(original: Cubin, patched: Cubin, index: int, places: PlacesOf) -> list[str]:
    """Constants that have changed are entries of jump tables and lead, from the base, to the same instructions."""
    old, new = original.elf.sections[index], patched.elf.sections[index]
    code = old.info & 0xFFFFFF
    lists = jump_tables(original, old.name.removeprefix(TABLES))
    if code not in places or not lists or len(old.data) != len(new.data) or len(old.data) % 4:
        return [f"{old.name}: its bytes are no longer the same"] if old.data != new.data else []
    base, found = _base(patched.words(code), original.architecture), []
    entries = [np.frombuffer(one.data, "<u4").astype(np.int64) for one in (old, new)]
    mine = set().union(*lists)
    for at, (before, after) in enumerate(zip(*(one.tolist() for one in entries), strict=True)):
        if before != after if before not in mine else _landing(places[code], base + after) != before:
            found.append(f"{old.name}, entry {at}: {before:#x} became {after:#x}")
    return found
