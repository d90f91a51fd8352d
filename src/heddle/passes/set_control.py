"""Pass 6: stall counts for results of known latency, dependence counters for the rest.

Every producer that some instruction has to wait for gets one of the six counters of a warp, for its result or for the
read of its operands, from its issue to its first consumer; when all six are taken, the one that was shared least
recently is shared. A counter counts, so sharing is always safe; it can only make a wait longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from heddle.ir.warp import SCOREBOARDS, Control, Instruction
from heddle.machine.spec import Machine
from heddle.passes.draft import Draft, DraftProgram, RoleDraft
from heddle.passes.hazards import Hazards, Needs
from heddle.passes.timing import is_real

MAX_STALL = 15  # four bits of the control field
Key = tuple[int, bool]  # producer, True for its operand reads


@dataclass(frozen=True, slots=True)
class SetControl:
    """Set the control field of every instruction."""

    def run(self, program: DraftProgram, machine: Machine) -> DraftProgram:
        """Set control fields of all roles; inserts NOPs where a stall count does not reach."""
        return replace(program, roles=tuple(_role(role, machine) for role in program.roles))


def _role(role: RoleDraft, machine: Machine) -> RoleDraft:
    hazards = Hazards(role.code, dict(role.registers), machine)
    stalls = [role.body.pace] * len(role.code)
    needs = hazards.solve(stalls, {})
    while _raise_stalls(role.code, stalls, needs):
        needs = hazards.solve(stalls, {})
    counters = _assign(needs, len(role.code))
    together: dict[Key, frozenset[int]] = {}
    by_counter: dict[int, list[Key]] = defaultdict(list)
    for key, counter in counters.items():
        by_counter[counter].append(key)
    for key, counter in counters.items():
        shared = [who for who, reads in by_counter[counter] if reads == key[1]]
        together[key] = frozenset(shared)
    needs = hazards.solve(stalls, together)
    return replace(role, code=tuple(_write(role.code, stalls, needs, counters)))


def _raise_stalls(code: tuple[Draft, ...], stalls: list[int], needs: list[Needs]) -> bool:
    """Add missing cycles to the instructions before; returns whether anything was added."""
    added = False
    sources: dict[str, list[int]] = defaultdict(list)
    for index, draft in enumerate(code):
        if draft.target:
            sources[draft.target].append(index)
    for index, need in enumerate(needs):
        if need.cycles <= 0:
            continue
        before = index - 1
        while not is_real(code[before]):
            for branch in sources[code[before].label] if code[before].label else ():
                stalls[branch] += need.cycles
            before -= 1
        stalls[before] += need.cycles
        added = True
    return added


def _assign(needs: list[Needs], length: int) -> dict[Key, int]:
    """Counters of all producers that are waited for: interval colouring in program order."""
    first_wait: dict[Key, int] = {}
    for consumer, need in enumerate(needs):
        for who, reads in [(p, False) for p in need.results] + [(p, True) for p in need.reads]:
            end = consumer if consumer > who else consumer + length  # in the next iteration
            first_wait[who, reads] = min(end, first_wait.get((who, reads), end))
    counters: dict[Key, int] = {}
    busy_until = [-1] * SCOREBOARDS
    last_use = [-1] * SCOREBOARDS
    wait_of: list[set[int]] = [set() for _ in range(SCOREBOARDS)]
    for key in sorted(first_wait):
        who, end = key[0], first_wait[key]
        same = [c for c in range(SCOREBOARDS) if busy_until[c] > who and end in wait_of[c]]
        free = [c for c in range(SCOREBOARDS) if busy_until[c] <= who]
        if same:  # waited for by the same instruction: one counter serves both
            counter = same[0]
        elif free:
            counter = min(free, key=lambda c: last_use[c])
            wait_of[counter] = set()
        else:
            counter = min(range(SCOREBOARDS), key=lambda c: abs(busy_until[c] - end))
        counters[key] = counter
        busy_until[counter] = max(busy_until[counter], end)
        wait_of[counter].add(end)
        last_use[counter] = who
    return counters


def _write(code: tuple[Draft, ...], stalls: list[int], needs: list[Needs], counters: Mapping[Key, int]) -> list[Draft]:
    result: list[Draft] = []
    for index, draft in enumerate(code):
        if not is_real(draft):
            result.append(draft)
            continue
        need = needs[index]
        waits = {counters[who, False] for who in need.results} | {counters[who, True] for who in need.reads}
        control = Control(
            stall=min(MAX_STALL, stalls[index]),
            wait=frozenset(waits),
            write_barrier=counters.get((index, False)),
            read_barrier=counters.get((index, True)),
        )
        left = stalls[index] - MAX_STALL
        result.append(replace(draft, control=control))
        while left > 0:
            nop = Instruction(op="NOP", source=draft.row.source)
            result.append(Draft(row=nop, control=Control(stall=min(MAX_STALL, left))))
            left -= MAX_STALL
    return result
