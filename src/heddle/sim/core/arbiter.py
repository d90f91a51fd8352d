"""Read ports in programs of mode fiber: the arbiter of X instructions, what accumulators take (fiber.md, section 5)."""

from __future__ import annotations

from heddle.sim.core.blocked import reuses
from heddle.sim.core.heap import Program, State
from heddle.sim.core.layout import (
    BANKS,
    H_BANKS,
    H_READS,
    H_SHARE,
    Q_INDEX,
    Q_PORT,
    Q_SM,
    Q_WORDS,
    S_INDEX,
    S_QUARTERS,
    SUBPARTITIONS,
    TICK_BITS,
    W_SUB,
)
from heddle.sim.core.layout_fiber import (
    A_COUNT,
    A_CYCLE,
    A_READS,
    A_REGISTER,
    A_WORDS,
    H_CROSSED,
    H_DENIED,
    H_GRANTS,
    H_PORT_READS,
    H_QUEUES,
    H_SHARED_READS,
    H_STAMP,
    H_X_OWN,
    QUEUED,
    R_STAMP,
    R_WORDS,
    V_SPAN,
    V_SPAN_HEAD,
    V_SPAN_TAIL,
    V_WORDS,
    Y_KEPT,
    Y_PORT_SLOTS,
    Y_SOURCE,
)
from heddle.sim.core.registers import count_of, fiber_row, first_of, is_tensor, number_of, place_of
from heddle.sim.core.tensor import accumulators_active


def queue_of_sub(M: State, sub: int) -> int:
    """Return the address of the matrix queue of a subpartition."""
    return int(M[H_QUEUES] + (M[M[sub + Q_SM] + S_INDEX] * SUBPARTITIONS + M[sub + Q_INDEX]) * V_WORDS)


def read_cycles(M: State, reads: int) -> int:
    """Return the cycles in which a port reads so many registers."""
    each = M[H_PORT_READS]
    return int((reads + each - 1) // each)


def port_ticks(M: State, sub: int, cycles: int, t: int) -> int:
    """Return the ticks of so many port cycles in cycle t, when accumulators may take a share of the ports."""
    if M[H_SHARE] != 0 and accumulators_active(M, M[sub + Q_SM], t):
        return int(M[H_READS + cycles])
    queue = queue_of_sub(M, sub)
    head = M[queue + V_SPAN_HEAD]
    while head < M[queue + V_SPAN_TAIL]:
        span = queue + V_SPAN + 4 * (head & (QUEUED - 1))
        if M[span + 1] > t:
            M[queue + V_SPAN_HEAD] = head
            if M[span] > t:
                return cycles << TICK_BITS
            return int((cycles << TICK_BITS) * M[span + 2] // M[span + 3])
        head += 1
    M[queue + V_SPAN_HEAD] = head
    return cycles << TICK_BITS


def serve_port(M: State, sub: int, bank: int, cycles: int, t: int) -> None:
    """Let a port read for an instruction that issues in cycle t."""
    at = sub + Q_PORT + bank
    M[at] = max(M[at], t << TICK_BITS) + port_ticks(M, sub, cycles, t)


def take_local_ports(M: State, sub: int, ports: int, t: int) -> None:
    """Charge the ports of the weft's own subpartition for an instruction that is no X instruction."""
    bank = 0
    while ports != 0:
        if ports & 255:
            serve_port(M, sub, bank, ports & 255, t)
        ports >>= 8
        bank += 1


def was_granted(M: State, grants: int, register: int) -> bool:
    """Tell whether a register has been given to an X instruction in this cycle."""
    i = M[grants + A_COUNT]
    while i > 0 and M[grants + A_REGISTER + i - 1] != register:
        i -= 1
    return bool(i > 0)


def port_is_free(M: State, first: int, place: int, bank: int, t: int) -> bool:
    """Tell whether the port of a bank of a subpartition is free within cycle t; `first`: subpartition 0."""
    return bool(M[first + place * Q_WORDS + Q_PORT + bank] >> TICK_BITS <= t)


def skipped(P: Program, fiber: int, slot: int, cached: bool) -> bool:
    """Tell whether a source slot needs no port."""
    group = P[fiber + Y_SOURCE + slot]
    return bool(group == 0 or is_tensor(group) or (cached and (P[fiber + Y_KEPT] >> slot) & 1))


def may_have(M: State, P: Program, warp: int, fiber: int, cached: bool, first: int, grants: int, t: int) -> bool:
    """Tell whether all ports that an X instruction needs are free, or give what it wants to another one."""
    for slot in range(P[fiber + Y_PORT_SLOTS]):
        if not skipped(P, fiber, slot, cached):
            group = P[fiber + Y_SOURCE + slot]
            place, number, register = place_of(M, warp, group), number_of(M, warp, group), first_of(M, warp, group)
            for i in range(count_of(group)):
                free = port_is_free(M, first, place, (number + i) % M[H_BANKS], t)
                if not free and not was_granted(M, grants, register + i * R_WORDS):
                    return False
    return True


def grant(M: State, P: Program, sub: int, warp: int, row: int, t: int) -> bool:
    """Grant an X instruction its ports in cycle t, or deny it; H_X_OWN: its own conflicts."""
    fiber, first = fiber_row(M, row), M[sub + Q_SM] + S_QUARTERS
    grants = M[H_GRANTS] + M[M[sub + Q_SM] + S_INDEX] * A_WORDS
    if M[grants + A_CYCLE] != t:
        M[grants + A_CYCLE], M[grants + A_COUNT] = t, 0
    cached = reuses(M, P, sub, warp, row)
    if not may_have(M, P, warp, fiber, cached, first, grants, t):
        M[H_DENIED] += 1
        return False
    take_ports_of(M, P, warp, fiber, cached, first, grants, t)
    return True


def take_ports_of(M: State, P: Program, warp: int, fiber: int, cached: bool, first: int, grants: int, t: int) -> None:
    """Count the registers of each port, charge those that are free, and remember what they give."""
    M[H_STAMP] += 1
    for k in range(SUBPARTITIONS * BANKS):
        M[grants + A_READS + k] = 0
    own = M[M[warp + W_SUB] + Q_INDEX]
    before = M[grants + A_COUNT]
    for slot in range(P[fiber + Y_PORT_SLOTS]):
        if not skipped(P, fiber, slot, cached):
            group = P[fiber + Y_SOURCE + slot]
            place, number, register = place_of(M, warp, group), number_of(M, warp, group), first_of(M, warp, group)
            for i in range(count_of(group)):
                at = register + i * R_WORDS
                bank = (number + i) % M[H_BANKS]
                if M[at + R_STAMP] != M[H_STAMP]:
                    M[at + R_STAMP] = M[H_STAMP]
                    M[grants + A_READS + place * BANKS + bank] += 1
                    if place != own:
                        M[H_CROSSED] += 1
                    if port_is_free(M, first, place, bank, t):
                        M[grants + A_REGISTER + before] = at
                        before += 1
                    else:
                        M[H_SHARED_READS] += 1
    M[grants + A_COUNT] = before
    charge_ports(M, first, grants, t)


def charge_ports(M: State, first: int, grants: int, t: int) -> None:
    """Charge the free ports with what has been counted; set H_X_OWN."""
    most = 1
    for place in range(SUBPARTITIONS):
        for bank in range(BANKS):
            reads = M[grants + A_READS + place * BANKS + bank]
            if reads != 0:
                cycles = read_cycles(M, reads)
                most = max(most, cycles)
                if port_is_free(M, first, place, bank, t):
                    serve_port(M, first + place * Q_WORDS, bank, cycles, t)
    M[H_X_OWN] = most - 1
