"""Find which modifier bits act together: two bits are independent if their changes of the text compose."""

from __future__ import annotations

from itertools import combinations

from heddle.isa.probe.atoms import Atoms, Edits, apply, edits_between

Texts = dict[int, Atoms | None]


def depends(base: Atoms, first: Atoms | None, second: Atoms | None, both: Atoms | None) -> tuple[bool, int]:
    """Return whether two bits depend on each other, and their order if both insert at one gap (-1: first is left)."""
    if first is None or second is None:
        return both is not None, 0
    if both is None:
        return True, 0
    one, two = edits_between(base, first), edits_between(base, second)
    forward, backward = _compose(base, one, two), _compose(base, two, one)
    if forward == both:
        return False, 0 if backward == both else -1
    return backward != both, 1


def _compose(base: Atoms, first: Edits, second: Edits) -> Atoms | None:
    for a in first:
        for b in second:
            if a[0] < b[1] and b[0] < a[1]:
                return None  # both replace the same atom
    return apply(base, [*first, *second])


def components(bits: list[int], dependent: set[tuple[int, int]]) -> list[list[int]]:
    """Return the bits in groups that are connected by dependence."""
    parent = {bit: bit for bit in bits}

    def root(bit: int) -> int:
        while parent[bit] != bit:
            bit = parent[bit]
        return bit

    for a, b in dependent:
        parent[root(a)] = root(b)
    groups: dict[int, list[int]] = {}
    for bit in bits:
        groups.setdefault(root(bit), []).append(bit)
    return [sorted(group, reverse=True) for group in groups.values()]


def pairs(bits: list[int]) -> list[tuple[int, int]]:
    """Return all pairs of bits."""
    return list(combinations(bits, 2))
