"""Operands of matrix instructions of wefts: which ports give them, and what accumulators take (fiber.md, section 6)."""

from __future__ import annotations

from heddle.sim.core.arbiter import grants_of, read_cycles
from heddle.sim.core.bit_words import part_of
from heddle.sim.core.bits import popcount
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    BANKS,
    H_BANKS,
    Q_PORT,
    Q_WORDS,
    S_QUARTERS,
    SUBPARTITIONS,
    TICK_BITS,
    W_SM,
)
from heddle.sim.core.layout_fiber import (
    A_MEMBER,
    A_SEEN,
    A_WORDS,
    H_BANK_MASKS,
    H_CROSSED,
    H_LEAST_TAKEN,
    H_PORT_READS,
    H_SHARED_READS,
    O_PORTS,
    O_ROW,
    O_START,
    O_WARP,
    QUEUED,
    V_SPAN,
    V_SPAN_TAIL,
    VECTOR_WORDS,
    Y_ACCUMULATOR,
    Y_SOURCE,
)
from heddle.sim.core.registers import count_of, fiber_row, is_tensor, number_of, own_place, place_of

MATRIX_SLOTS = 2  # operands A and B
LEAST_FREE = 16  # accumulators leave this part of the read ports free, so that a SIMD read ends


def count_reads(M: State, P: Program, lead: int, op: int, index: int) -> None:
    """Add the operand registers of one member to the reads of each port, each once for all members."""
    warp, fiber = M[op + O_WARP], fiber_row(M, M[op + O_ROW])
    own, grants = own_place(M, warp), grants_of(M, M[warp + W_SM])
    for k in range(A_MEMBER if index > 0 else A_SEEN, A_WORDS):
        M[grants + k] = 0
    for slot in range(MATRIX_SLOTS):
        group = P[fiber + Y_SOURCE + slot]
        if group != 0 and not is_tensor(group):
            place, number, count = place_of(M, warp, group), number_of(group), count_of(group)
            for word in range(number >> 6, (number + count + 63) >> 6):
                at = grants + A_SEEN + place * VECTOR_WORDS + word
                part = part_of(number, count, word)
                named = part & ~M[at + A_MEMBER - A_SEEN]
                if place != own:
                    M[H_CROSSED] += popcount(named)
                M[H_SHARED_READS] += popcount(named & M[at])
                add_reads(M, lead + O_PORTS + place, named & ~M[at])
                M[at] |= part
                M[at + A_MEMBER - A_SEEN] |= part


def add_reads(M: State, at: int, registers: int) -> None:
    """Add registers of a word to the reads of the ports of a subpartition."""
    for bank in range(M[H_BANKS]):
        M[at] += popcount(registers & M[H_BANK_MASKS + bank]) << 16 * bank


def reads_of(M: State, lead: int, place: int, bank: int) -> int:
    """Return the registers that a port gives to an operation."""
    return int((M[lead + O_PORTS + place] >> 16 * bank) & 0xFFFF)


def ports_free(M: State, lead: int) -> int:
    """Return when the last of the ports is free that an operation reads, in ticks."""
    first, latest = M[M[lead + O_WARP] + W_SM] + S_QUARTERS, 0
    for place in range(SUBPARTITIONS):
        for bank in range(BANKS):
            if reads_of(M, lead, place, bank) != 0:
                latest = max(latest, M[first + place * Q_WORDS + Q_PORT + bank])
    return int(latest)


def accumulators_of(M: State, P: Program, op: int) -> int:
    """Return how many accumulators an operation reads from vector registers."""
    group = P[fiber_row(M, M[op + O_ROW]) + Y_ACCUMULATOR]
    return 0 if is_tensor(group) else count_of(group)


def accumulators_in(M: State, P: Program, op: int, place: int, bank: int) -> int:
    """Return how many of them a port gives."""
    warp, group = M[op + O_WARP], P[fiber_row(M, M[op + O_ROW]) + Y_ACCUMULATOR]
    count = accumulators_of(M, P, op)
    if count == 0 or place != own_place(M, warp):
        return 0
    banks = M[H_BANKS]
    skipped = (bank - number_of(group)) % banks
    return (count - skipped + banks - 1) // banks if count > skipped else 0


def most_reads(M: State, P: Program, lead: int, members: int) -> int:
    """Return the largest number of registers that one port gives, accumulators included."""
    most = 0
    for place in range(SUBPARTITIONS):
        for bank in range(M[H_BANKS]):
            reads = reads_of(M, lead, place, bank)
            for i in range(4 if members != 0 else 1):
                op = M[members + i] if members != 0 else lead
                reads += accumulators_in(M, P, op, place, bank)
            most = max(most, reads)
    return most


def mark_span(M: State, queue: int, registers: int, start: int, length: int) -> None:
    """Remember what accumulators in registers take of the ports meanwhile: the factor by which others take longer."""
    capacity = length * M[H_BANKS] * M[H_PORT_READS]
    taken = max(registers << TICK_BITS, (capacity * M[H_LEAST_TAKEN]) >> TICK_BITS)
    taken = min(taken, capacity - capacity // LEAST_FREE)
    if taken == 0 or (start + length) >> TICK_BITS == start >> TICK_BITS:
        return
    span = queue + V_SPAN + 4 * (M[queue + V_SPAN_TAIL] & (QUEUED - 1))
    M[queue + V_SPAN_TAIL] += 1
    M[span], M[span + 1] = start >> TICK_BITS, (start + length) >> TICK_BITS
    M[span + 2], M[span + 3] = capacity, capacity - taken


def fetch_operands(M: State, op: int) -> None:
    """Charge the ports that give A and B when an operation starts."""
    first, start = M[M[op + O_WARP] + W_SM] + S_QUARTERS, M[op + O_START]
    for place in range(SUBPARTITIONS):
        for bank in range(BANKS):
            reads = reads_of(M, op, place, bank)
            if reads != 0:
                at = first + place * Q_WORDS + Q_PORT + bank
                M[at] = max(M[at], start) + (read_cycles(M, reads) << TICK_BITS)
