"""Do the logs of both engines hold the same events, whatever their order?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from random_programs import random_case

from heddle.sim import simulate
from heddle.sim.reference import simulate_reference
from heddle.sim.result import EventKind

FIELDS = ("sm", "slot", "warp", "pc", "item", "begin", "end", "detail", "stage")


def events(log: Any) -> Counter[tuple[Any, ...]]:
    """Count equal records, without the spans of waiting, which are optional."""
    return Counter(
        (EventKind(int(e["kind"])).name, *(int(e[name]) for name in FIELDS), *map(int, e["counters"]))
        for e in log
        if e["kind"] != EventKind.WAIT
    )


@pytest.mark.parametrize("seed", range(20))
def test_logs_hold_the_same_events(seed: int) -> None:
    program, machine, options = random_case(seed)
    expected = events(simulate_reference(program, machine, log=True, **options).log)
    got = events(simulate(program, machine, log="all", fast_forward=False, **options).log)
    assert not expected - got, f"missing on random_case({seed}): {sorted(expected - got)[:5]}"
    assert not got - expected, f"too many on random_case({seed}): {sorted(got - expected)[:5]}"
