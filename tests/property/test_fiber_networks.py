"""Random networks of channels: the engine ends or deadlocks as the state model says, on a path of the model."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fiber_builder import fiber_machine, run_fiber, trace
from fiber_networks import bits_agree, compiled, ended, follow
from heddle.errors import UserError
from protocol_model import Destination, Network, Op, Rules, Source, Step, play


@st.composite
def channels(draw: st.DrawFn) -> Network:
    """Wefts joined by channels with one producer and one consumer; an operation writes at most one; many deadlock."""
    wefts, count, data = draw(st.integers(2, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    ends = [draw(st.permutations(range(wefts)))[:2] for _ in range(count)]
    code: list[list[Step]] = []
    for weft in range(wefts):
        takes = [(c, i) for i in range(data) for c in range(count) if ends[c][1] == weft]
        gives = [(c, i) for i in range(data) for c in range(count) if ends[c][0] == weft]
        steps: list[Step] = []
        while takes or gives:
            sources, targets = draw(st.integers(0, min(2, len(takes)))), draw(st.integers(0, min(1, len(gives))))
            if not sources and not targets:
                sources, targets = min(1, len(takes)), min(1, len(gives))
            if len({c for c, _ in takes[:sources]}) < sources:
                sources = 1
            taken, takes = takes[:sources], takes[sources:]
            given_, gives = gives[:targets], gives[targets:]
            read = tuple(Source(f"R{c}", i + 1, True) for c, i in taken)
            steps.append(Op(read, tuple(Destination(f"R{c}", i + 1, True) for c, i in given_)))
        code.append(steps)
    return Network(code)


@pytest.fixture(autouse=True)
def _soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a deadlock be noticed after few cycles."""
    monkeypatch.setattr("heddle.sim.reference.chip.QUIET_LIMIT_CYCLES", 100)


@given(channels(), st.integers(0, 3), st.sampled_from(["gty", "gto", "lrr"]), st.sampled_from([1, 4]))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_run_ends_as_the_model_says(network: Network, delay: int, scheduler: str, stride: int) -> None:
    """`stride` 4 puts all wefts on one subpartition."""
    case = compiled(network, [stride * weft for weft in range(len(network.wefts))])
    machine = fiber_machine(busy_bit_broadcast_cycles=delay)
    if play(network).outcome == "deadlock":
        with pytest.raises(UserError, match="deadlock: nothing issues after cycle"):
            run_fiber(case.program, machine, scheduler)
        return
    chip = run_fiber(case.program, machine, scheduler)
    state = follow(case, trace(chip), Rules())
    assert ended(network, state)
    assert bits_agree(case, chip, state)
