"""Choose the word that a form is learned from."""

from __future__ import annotations

import random

from heddle.isa.probe.atoms import Atoms
from heddle.isa.probe.fields import is_value
from heddle.isa.probe.opcode import Asks, Opcode, ask

MAX_TRIES = 24


def choose_base(opcode: Opcode, mask: int, value: int) -> Asks:
    """Return a legal word of this variant whose text shows as many values as possible, and its atoms."""
    fitting = [word for word in opcode.samples if word & mask == value]
    tries = fitting[:MAX_TRIES] or [
        word & ~mask | value for word in random.Random(1).sample(opcode.samples, min(MAX_TRIES, len(opcode.samples)))
    ]
    answers = yield from ask(opcode, tries)
    legal = [(word, atoms) for word, atoms in zip(tries, answers, strict=True) if atoms is not None]
    if not legal:
        return None, ()
    base, atoms = max(
        legal, key=lambda pair: (_shown(pair[1]), -sum("INVALID" in atom for atom in pair[1]), -len(pair[1]))
    )
    return (yield from _fill_in(opcode, base, atoms, mask))


def _fill_in(opcode: Opcode, base: int, atoms: Atoms, mask: int) -> Asks:
    """Return a word with the fills that keep all values in sight, and its atoms."""
    asked = [(bits & ~mask, fill & bits & ~mask) for fills in _FILLS for bits, fill in fills]
    answers = iter((yield from ask(opcode, [base & ~bits | fill for bits, fill in asked])))
    wanted = []
    for fills in _FILLS:
        good = []
        for bits, fill in fills:
            new = next(answers)
            if new is not None and _no_worse(new, atoms) and not (fills is _FILLS[-1] and _longer(new, atoms)):
                good.append(((_shown(new), _plain(new)), bits & ~mask, fill & bits & ~mask))
        if good:
            wanted.append(max(good)[1:])
    while wanted:  # all together; the first that does harm after the others is left out
        chain = [base]
        for bits, fill in wanted:
            chain.append(chain[-1] & ~bits | fill)
        texts = [atoms, *(yield from ask(opcode, chain[1:]))]
        harm = next(
            (at for at in range(1, len(chain)) if texts[at] is None or not _no_worse(texts[at], texts[at - 1])),
            None,
        )  # fmt: skip
        if harm is None:
            return chain[-1], texts[-1]
        base, atoms, wanted = chain[harm - 1], texts[harm - 1], wanted[harm:]
    return base, atoms


def _longer(new: Atoms, old: Atoms) -> bool:
    """Return whether a fill brought a modifier instead of a value."""
    return len(new) > len(old) and _shown(new) == _shown(old)


def _no_worse(new: Atoms, old: Atoms) -> bool:
    return _shown(new) >= _shown(old) and not _has_zero(new, old)


def _shown(atoms: Atoms) -> int:
    return sum(is_value(atom) for atom in atoms)


def _plain(atoms: Atoms) -> int:
    """Count registers that are not RZ, and few modifiers."""
    return sum(atom[-1:] != "Z" for atom in atoms if is_value(atom)) * 8 - len(atoms)


def _has_zero(new: Atoms, old: Atoms) -> bool:
    return sum(atom in ("RZ", "URZ") for atom in new) > sum(atom in ("RZ", "URZ") for atom in old)


def _fill(high: int, low: int, value: int) -> tuple[int, int]:
    bits = (1 << high - low + 1) - 1 << low
    return bits, value << low & bits


_FILLS = (
    [_fill(23, 16, 0x14), _fill(23, 16, 0x18), _fill(23, 16, 0x40)],
    [_fill(31, 24, 0x24), _fill(31, 24, 0x28)],
    [_fill(71, 64, 0x2C), _fill(71, 64, 0x28), _fill(71, 64, 0x50)],
    [_fill(63, 40, 0x000120), _fill(63, 32, 0x3FA80000), _fill(53, 40, 0x0120), _fill(63, 40, 0x000520)],
    [_fill(39, 32, 0x30), _fill(39, 32, 0x28)],
    [_fill(47, 40, 0x14)],
    [_fill(89, 87, 3)],
    [_fill(70, 68, 4)],
    [_fill(79, 77, 5)],
)
"""Values tried in the places of registers and numbers, one place after the other: no zero register, all different."""
