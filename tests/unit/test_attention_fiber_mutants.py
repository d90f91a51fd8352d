"""Is every missing bind, wait and arrival of the FIBER-native attention found, and every exchange with a token?"""

from __future__ import annotations

import dataclasses

import pytest

from attention_fiber import CONFIG, PROBLEM, checked, compiled, machine_for
from heddle.ir.warp import WarpProgram
from native_mutants import Mutant, killed_by, mutants, rejected

TILES = dataclasses.replace(PROBLEM, seqlen_q=512, seqlen_kv=256, head_dim=64)
SMALL = dataclasses.replace(PROBLEM, seqlen_q=128, seqlen_kv=256, head_dim=64)
POOLED = dataclasses.replace(CONFIG, pooled=2)
QUICK = 120
"""In the quick test every so many of the mutants that the verifier has to reject."""
SCHEDULES = 50
"""Random schedules under which a survivor has to be right."""
REST = 40
"""In the slow test every so many binds; all waits, arrivals and exchanges."""


def by_bits(mutant: Mutant) -> bool:
    """Whether full and empty bits alone show a mutant."""
    return "SYNCS" not in mutant[0]


def test_the_verifier_rejects_every_mutant_of_the_bits() -> None:
    of_bits = [mutant for mutant in mutants(compiled(TILES, POOLED)) if by_bits(mutant)]
    assert len(of_bits) > 400
    assert [mutant[0] for mutant in of_bits[::QUICK] if not rejected(mutant[1], machine_for(POOLED))] == []


def harmless(mutant: WarpProgram) -> bool:
    """Whether a survivor is right under random schedules, too: it means the same."""
    return all(checked(TILES, POOLED, mutant, seed=seed).ok for seed in range(1, SCHEDULES + 1))


def test_the_kernel_is_right_under_a_random_schedule() -> None:
    report = checked(SMALL, POOLED, seed=1)
    assert report.ok, report.lines()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mutants_are_rejected_or_reported_with_both_lines() -> None:
    every = list(mutants(compiled(TILES, POOLED)))
    chosen = [m for m in every if not by_bits(m) or "exchanged" in m[0]] + [m for m in every if by_bits(m)][::REST]
    programs = dict(chosen)
    fates = {
        name: killed_by(mutant, machine_for(POOLED), lambda m: checked(TILES, POOLED, m)) for name, mutant in chosen
    }
    survivors = [name for name, fate in fates.items() if fate not in ("verifier", "hazard", "run")]
    left = [name for name in survivors if not harmless(programs[name])]
    assert len(left) <= 0.05 * len(fates), left
