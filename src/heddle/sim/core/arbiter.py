"""Read ports in programs of mode fiber: the arbiter of X instructions, what accumulators take (fiber.md, section 5)."""

from __future__ import annotations

from heddle.sim.core.bits import popcount
from heddle.sim.core.blocked import reuses
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    H_BANKS,
    H_READS,
    H_SHARE,
    Q_PORT,
    Q_QUEUE,
    Q_SM,
    Q_WORDS,
    S_INDEX,
    S_QUARTERS,
    SUBPARTITIONS,
    TICK_BITS,
    W_DENIED,
)
from heddle.sim.core.layout_fiber import (
    A_COUNT,
    A_CYCLE,
    A_GIVEN,
    A_READS,
    A_WORDS,
    BIT_WORDS,
    H_BANK_MASKS,
    H_CROSSED,
    H_GRANTS,
    H_PORT_READS,
    H_SHARED_READS,
    H_X_OWN,
    PORT_PLACE_SHIFT,
    QUEUED,
    ROW_GIVEN,
    TESTS_BITS,
    V_SPAN,
    V_SPAN_HEAD,
    V_SPAN_TAIL,
    Y_PORT,
    Y_PORT_REUSE,
    Y_PORTS,
)
from heddle.sim.core.registers import fiber_row, own_place, place_bits
from heddle.sim.core.tensor import accumulators_active

BY_WGMMA = 1  # no span has this address


def queue_of_sub(M: State, sub: int) -> int:
    """Return the address of the matrix queue of a subpartition."""
    return int(M[sub + Q_QUEUE])


def grants_of(M: State, sm: int) -> int:
    """Return the address of the list of what an SM's ports have given in this cycle."""
    return int(M[H_GRANTS] + M[sm + S_INDEX] * A_WORDS)


def read_cycles(M: State, reads: int) -> int:
    """Return the cycles in which a port reads so many registers."""
    each = M[H_PORT_READS]
    return int((reads + each - 1) // each)


def taken_share(M: State, sub: int, t: int) -> int:
    """Return what takes a share of a subpartition's ports in cycle t: nothing (0), BY_WGMMA, or the place of a span."""
    if M[H_SHARE] != 0 and accumulators_active(M, M[sub + Q_SM], t):
        return BY_WGMMA
    queue = queue_of_sub(M, sub)
    head, tail = M[queue + V_SPAN_HEAD], M[queue + V_SPAN_TAIL]
    while head < tail:
        span = queue + V_SPAN + 4 * (head & (QUEUED - 1))
        if M[span + 1] > t:
            M[queue + V_SPAN_HEAD] = head
            return int(span) if M[span] <= t else 0
        head += 1
    M[queue + V_SPAN_HEAD] = head
    return 0


def port_ticks(M: State, taken: int, cycles: int) -> int:
    """Return the ticks of so many port cycles, of which something takes a share (`taken_share`)."""
    if taken == 0:
        return cycles << TICK_BITS
    if taken == BY_WGMMA:
        return int(M[H_READS + cycles])
    return int((cycles << TICK_BITS) * M[taken + 2] // M[taken + 3])


def take_local_ports(M: State, sub: int, ports: int, t: int) -> None:
    """Charge the ports of the weft's own subpartition for an instruction that is no X instruction."""
    taken, at, now = taken_share(M, sub, t), sub + Q_PORT, t << TICK_BITS
    while ports != 0:
        if ports & 255:
            M[at] = max(M[at], now) + port_ticks(M, taken, ports & 255)
        ports >>= 8
        at += 1


def port_is_free(M: State, first: int, place: int, bank: int, t: int) -> bool:
    """Tell whether the port of a bank of a subpartition is free within cycle t; `first`: subpartition 0."""
    return bool(M[first + place * Q_WORDS + Q_PORT + bank] >> TICK_BITS <= t)


def place_read(M: State, P: Program, warp: int, read: int) -> int:
    """Return the subpartition of a port read."""
    place = P[read] >> PORT_PLACE_SHIFT
    return int(place - 1) if place != 0 else own_place(M, warp)


def given_word(M: State, P: Program, warp: int, read: int, place: int) -> int:
    """Return the address of the word that says which of its registers have been given in this cycle."""
    word = P[read] & (1 << PORT_PLACE_SHIFT) - 1
    return int(place_bits(M, warp, place) + ROW_GIVEN * BIT_WORDS + word)


def denied_until(M: State, P: Program, warp: int, reads: int, end: int, first: int, grants: int, t: int) -> int:
    """Return until when an X instruction is denied its ports for certain; 0 if it has them in cycle t.

    A port that is busy, and does not give in this cycle what is wanted, gives nothing to anybody until it is free.
    """
    until = 0
    for read in range(reads, end, 2):
        place = place_read(M, P, warp, read)
        for bank in range(M[H_BANKS]):
            wanted = P[read + 1] & M[H_BANK_MASKS + bank]
            free = M[first + place * Q_WORDS + Q_PORT + bank] >> TICK_BITS
            if wanted == 0 or free <= t:
                continue
            if M[grants + A_COUNT] == 0 or wanted & ~M[given_word(M, P, warp, read, place)] != 0:
                until = max(until, free)
    return int(until)


def forget_given(M: State, grants: int, t: int) -> None:
    """Begin the list of given registers of cycle t."""
    for i in range(M[grants + A_COUNT]):
        M[M[grants + A_GIVEN + i]] = 0
    M[grants + A_CYCLE], M[grants + A_COUNT] = t, 0


def grant(M: State, P: Program, sub: int, warp: int, row: int, t: int) -> bool:
    """Grant an X instruction its ports in cycle t, or deny it; H_X_OWN: its own conflicts."""
    fiber, sm = fiber_row(M, row), M[sub + Q_SM]
    grants, first = grants_of(M, sm), sm + S_QUARTERS
    if M[grants + A_CYCLE] != t:
        forget_given(M, grants, t)
    reads, count = fiber + Y_PORT, P[fiber + Y_PORTS] & (1 << TESTS_BITS) - 1
    if reuses(M, P, sub, warp, row):
        reads, count = fiber + Y_PORT_REUSE, P[fiber + Y_PORTS] >> TESTS_BITS
    M[warp + W_DENIED] = denied_until(M, P, warp, reads, reads + 2 * count, first, grants, t)
    if M[warp + W_DENIED] > t:
        return False
    take_reads(M, P, warp, reads, reads + 2 * count, first, grants, t)
    charge_ports(M, first, grants, t)
    return True


def take_reads(M: State, P: Program, warp: int, reads: int, end: int, first: int, grants: int, t: int) -> None:
    """Count the registers of each port, and remember what the free ones give."""
    for place in range(SUBPARTITIONS):
        M[grants + A_READS + place] = 0
    for read in range(reads, end, 2):
        place, given = place_read(M, P, warp, read), 0
        if place != own_place(M, warp):
            M[H_CROSSED] += popcount(P[read + 1])
        for bank in range(M[H_BANKS]):
            wanted = P[read + 1] & M[H_BANK_MASKS + bank]
            if wanted != 0:
                M[grants + A_READS + place] += popcount(wanted) << 16 * bank
                if port_is_free(M, first, place, bank, t):
                    given |= wanted
                else:
                    M[H_SHARED_READS] += popcount(wanted)
        if given != 0:
            word = given_word(M, P, warp, read, place)
            if M[word] == 0:
                M[grants + A_GIVEN + M[grants + A_COUNT]] = word
                M[grants + A_COUNT] += 1
            M[word] |= given


def charge_ports(M: State, first: int, grants: int, t: int) -> None:
    """Charge the free ports with what has been counted; set H_X_OWN."""
    most = 1
    for place in range(SUBPARTITIONS):
        counts = M[grants + A_READS + place]
        bank = 0
        while counts != 0:
            if counts & 0xFFFF:
                cycles = read_cycles(M, counts & 0xFFFF)
                most = max(most, cycles)
                if port_is_free(M, first, place, bank, t):
                    sub = first + place * Q_WORDS
                    ticks = port_ticks(M, taken_share(M, sub, t), cycles)
                    M[sub + Q_PORT + bank] = max(M[sub + Q_PORT + bank], t << TICK_BITS) + ticks
            counts >>= 16
            bank += 1
    M[H_X_OWN] = most - 1
