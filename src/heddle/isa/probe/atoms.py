"""Text of an instruction as a list of atoms, and the differences of two such lists."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

Atoms = tuple[str, ...]
Edit = tuple[int, int, Atoms]
"""Atoms start..end of the base are replaced."""
Edits = tuple[Edit, ...]

_ATOM = re.compile(
    r"(?<![\w.])-?0x[0-9a-f]+"  # numbers, with their sign
    r"|(?<=, )[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])|INF|QNAN|SNAN)"
    r"|\{[^}]*\}|, |\.?[A-Za-z_]\w*|\.\w+|\s|."
)


def atoms_of(text: str) -> Atoms:
    """Return the atoms of a text; joined they are the text."""
    return tuple(_ATOM.findall(text))


def edits_between(base: Atoms, other: Atoms) -> Edits:
    """Return what has to be replaced in `base` to get `other`."""
    if base == other:
        return ()
    start = 0
    while start < min(len(base), len(other)) and base[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(base), len(other)) - start and base[-1 - end] == other[-1 - end]:
        end += 1
    inner, changed = base[start : len(base) - end], other[start : len(other) - end]
    if not set(inner) & set(changed):
        return ((start, start + len(inner), changed),)
    matcher = SequenceMatcher(None, inner, changed, autojunk=False)
    return tuple(
        (start + low, start + high, changed[new_low:new_high])
        for kind, low, high, new_low, new_high in matcher.get_opcodes()
        if kind != "equal"
    )


def apply(base: Atoms, edits: list[Edit]) -> Atoms:
    """Return `base` with edits made; those at the same gap in the order given."""
    result: list[str] = []
    at = 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        result += [*base[at:start], *new]
        at = max(at, end)
    return (*result, *base[at:])


def overlap(first: Edits, second: Edits) -> bool:
    """Return whether two sets of edits replace a common atom."""
    return any(a[0] < b[1] and b[0] < a[1] for a in first for b in second)
