"""Is every missing bind, wait and arrival of the FIBER-native backward pass of H100 found?"""

from __future__ import annotations

import pytest

from fiber_backward_h100 import checked, compiled, one_sm, problem
from native_mutants import killed_by, mutants, rejected

TILES = problem(seqlen_q=128, seqlen_kv=384)
"""Three blocks of keys: of two, some mutants pass, as nothing is used a third time."""
QUICK = 15
"""In the quick test every so many of the mutants that the verifier has to reject."""
REST = 4
"""In the slow test every so many binds; all waits, arrivals and exchanges."""
SCHEDULES = 10
"""Random schedules, of seeds 1 to so many, under which a survivor has to be right."""


def by_bits(name: str) -> bool:
    """Whether full and empty bits alone show a mutant."""
    return "SYNCS" not in name


def test_the_verifier_rejects_every_mutant_of_the_bits() -> None:
    of_bits = [mutant for mutant in mutants(compiled(TILES)) if by_bits(mutant[0])]
    assert len(of_bits) > 140
    assert [name for name, program in of_bits[::QUICK] if not rejected(program, one_sm())] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported_with_both_lines() -> None:
    every = list(mutants(compiled(TILES)))
    chosen = [m for m in every if not by_bits(m[0]) or "exchanged" in m[0]]
    chosen += [m for m in every if by_bits(m[0])][::REST]
    programs = dict(chosen)
    fates = {name: killed_by(mutant, one_sm(), lambda m: checked(TILES, m)) for name, mutant in chosen}
    survivors = [name for name, fate in fates.items() if fate not in ("verifier", "hazard", "run")]
    left = [
        name
        for name in survivors
        if not all(checked(TILES, programs[name], seed).ok for seed in range(1, SCHEDULES + 1))
    ]
    assert len(left) <= 0.05 * len(fates), left
