"""Does waiting for other warps take the larger part of the CPI, the more roles an attention kernel has?"""

from __future__ import annotations

import pytest

from heddle.kernels.attention.kernel import ATTENTION
from heddle.machine import machine
from heddle.metrics.synchronisation import synchronisation
from heddle.passes import compile_program
from heddle.sim import simulate

PARAMS = {"batch": 1, "heads_q": 2, "seqlen_q": 1024, "head_dim": 128}


def shares(gpu: str) -> tuple[float, float]:
    """Share of all warp cycles on four SMs, and with roles weighted by what they issue."""
    small = machine(gpu).replace(sms=4)
    program = compile_program(ATTENTION.build(small, PARAMS), small)
    found = synchronisation(simulate(program, small, clock_mhz=small.max_clock_mhz), program)
    share, by_issue = found["share"], found["by_issue"]
    assert isinstance(share, float)
    assert isinstance(by_issue, float)
    return share, by_issue


@pytest.mark.slow
def test_waits_for_other_warps_grow_from_flash_attention_2_to_4() -> None:
    (two, two_issue), (three, _), (four, four_issue) = shares("a100"), shares("h100"), shares("b200")
    assert two < three < four
    assert two_issue < four_issue
