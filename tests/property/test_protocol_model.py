"""The protocol of the full and empty bits: safe patterns, unsafe ones, and that one schedule decides a network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol_model import LITERAL, Destination, Network, Op, Rules, Source, Step, play, search
from protocol_patterns import (
    accumulator_in_place,
    accumulator_to_channel,
    alternating,
    chain,
    copies,
    group,
    literal,
    load_in_flight,
    one_to_one,
    partial_sums,
    plain_and_scoped,
    scoped,
    several_producers,
    several_reads,
    token_before_last_read,
    two_consumers_unscoped,
    two_phases,
    unconsumed_own_write,
    without_pairing,
)

UNORDERED = Rules(ordered_reads=False)

SAFE: dict[str, tuple[Network, Rules]] = {
    "A1": (one_to_one(4), UNORDERED),
    "A2": (one_to_one(6, 2), UNORDERED),
    "A3": (one_to_one(9, 3), UNORDERED),
    "A4": (several_reads(3, 3), Rules()),
    "A5 on the paper's hardware": (without_pairing(3), LITERAL),
    "B1": (scoped(3, 4), UNORDERED),
    "B8 with A plain": (plain_and_scoped(2, 2), UNORDERED),
    "B4": (copies(3, 3), UNORDERED),
    "C1": (several_producers(3, 4), UNORDERED),
    "C3": (several_producers(3, 3, together=True), UNORDERED),
    "D1": (accumulator_to_channel(3, 3), Rules()),
    "D2": (accumulator_to_channel(4, 3, 2), Rules()),
    "D3": (accumulator_in_place(3, 3), Rules()),
    "E1": (alternating(4), UNORDERED),
    "F1": (group(3, 4), UNORDERED),
    "F2": (group(2, 4, single_writes=True), UNORDERED),
    "G1": (chain(4, 3, 2), UNORDERED),
    "G2": (chain(4, 4, 2), UNORDERED),
    "ALL, nothing left": (two_phases(2), Rules()),
    "ALL, a datum left": (two_phases(2, left_over=True), Rules()),
    "ALL, a load in flight": (load_in_flight(), Rules()),
}

# The published search of the same rules found these numbers of states (A1-A4, C1, C3, E1, F1, F2 and A5).
STATES = {"A1": 21, "A4": 67, "A5 on the paper's hardware": 97, "C1": 5332, "C3": 256, "E1": 33, "F1": 292, "F2": 282}

UNSAFE: dict[str, tuple[Network, Rules, str]] = {
    "the paper's sequence": (literal(3), LITERAL, "deadlock"),
    "only the consumer paired": (literal(3, pair_consumer=True), Rules(), "deadlock"),
    "only the producer paired": (literal(3, pair_producer=True), Rules(release="any"), "deadlock"),
    "consume does not arm": (one_to_one(3, consume=False), Rules(), "wrong"),
    "hold omitted": (one_to_one(3, hold=False), Rules(), "wrong"),
    "arm at read": (one_to_one(3), Rules(arm="read"), "wrong"),
    "arm at consumption": (one_to_one(3), Rules(arm="consumption"), "wrong"),
    "every read releases, several reads": (several_reads(3, 3), Rules(release="any"), "wrong"),
    "every read releases, accumulator": (accumulator_in_place(3, 3), Rules(release="any"), "wrong"),
    "destination ignores full": (one_to_one(3), Rules(test_full=False), "wrong"),
    "source ignores empty": (one_to_one(3), Rules(test_empty=False), "wrong"),
    "late unbound read": (several_reads(3, 3), UNORDERED, "wrong"),
    "two consumers, unscoped": (two_consumers_unscoped(3), Rules(), "wrong"),
    "token before the last read": (token_before_last_read(3), LITERAL, "wrong"),
    "partial sums visible": (partial_sums(3), Rules(), "wrong"),
    "a writer waits for its own hold": (unconsumed_own_write(), Rules(), "wrong"),
    "ALL without drain": (load_in_flight(), Rules(all_drains=False), "wrong"),
    "ALL without clearing full": (two_phases(2, left_over=True), Rules(all_clears_full=False), "deadlock"),
}


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_pattern_never_fails(name: str) -> None:
    network, rules = SAFE[name]
    assert search(network, rules).outcome == "safe"


@pytest.mark.parametrize("name", STATES)
def test_the_search_visits_the_states_of_the_published_one(name: str) -> None:
    network, rules = SAFE[name]
    assert search(network, rules if rules is LITERAL else Rules()).states == STATES[name]


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_variant_fails_as_known(name: str) -> None:
    network, rules, outcome = UNSAFE[name]
    assert search(network, rules).outcome == outcome


@pytest.mark.parametrize(
    ("network", "rules", "length"),
    [
        (one_to_one(3, consume=False), Rules(), 5),
        (one_to_one(3, hold=False), Rules(), 3),
        (one_to_one(3), Rules(arm="read"), 5),
        (several_reads(3, 3), Rules(release="any"), 9),
        (one_to_one(3), Rules(test_full=False), 3),
        (one_to_one(3), Rules(test_empty=False), 2),
        (two_consumers_unscoped(3), Rules(), 9),
        (partial_sums(3), Rules(), 4),
    ],
)
def test_the_shortest_trace_has_the_published_length(network: Network, rules: Rules, length: int) -> None:
    assert len(search(network, rules).trace) == length


@st.composite
def networks(draw: Callable[..., int]) -> Network:
    """Random wefts joined by channels, each with one producer and one consumer; many of them deadlock."""
    wefts, channels, data = draw(st.integers(2, 4)), draw(st.integers(1, 4)), draw(st.integers(2, 3))
    ends = [draw(st.permutations(range(wefts)))[:2] for _ in range(channels)]
    code: list[list[Step]] = []
    for weft in range(wefts):
        takes = [(c, i) for i in range(data) for c in range(channels) if ends[c][1] == weft]
        gives = [(c, i) for i in range(data) for c in range(channels) if ends[c][0] == weft]
        steps: list[Step] = []
        while takes or gives:
            sources, targets = draw(st.integers(0, min(2, len(takes)))), draw(st.integers(0, min(2, len(gives))))
            if not sources and not targets:
                sources, targets = min(1, len(takes)), min(1, len(gives))
            taken, takes = takes[:sources], takes[sources:]
            given_, gives = gives[:targets], gives[targets:]
            if len({c for c, _ in taken}) < len(taken) or len({c for c, _ in given_}) < len(given_):
                takes, gives = taken[1:] + takes, given_[1:] + gives
                taken, given_ = taken[:1], given_[:1]
            op = Op(
                tuple(Source(f"R{c}", i + 1, True) for c, i in taken),
                tuple(Destination(f"R{c}", i + 1, True) for c, i in given_),
            )
            steps.append(op)
        code.append(steps)
    return Network(code)


@given(networks())
@settings(max_examples=150, deadline=None)
def test_one_schedule_decides_a_network_of_channels(network: Network) -> None:
    assert play(network).outcome == search(network).outcome
