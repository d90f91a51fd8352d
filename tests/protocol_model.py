"""An explicit-state model of the full and empty bits between wefts, searched breadth first.

The state is E and F of each register, the version that it holds, where each weft stands and what is in flight. Every
transition is atomic and may happen next whenever it is enabled: no latency and no scheduler is assumed. A run fails
where a read finds another version than it expects, where a write-back skips one, or where nothing can happen although
not everything has ended. `Rules` holds the hardware's choices; the defaults are those that Heddle implements.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")


class Source(NamedTuple):
    """A register that is read: the version that must be there; `consume`: this read gives the register back."""

    register: str
    version: int
    consume: bool = False
    reader: int = 0  # whose scoped bits are meant, where a register has several readers


class Destination(NamedTuple):
    """A register that is written with a version; `hold`: F is set until a consuming read."""

    register: str
    version: int
    hold: bool = False


class Op(NamedTuple):
    """An operation: it issues, reads and consumes each source, and writes each destination back, in any order."""

    sources: tuple[Source, ...] = ()
    destinations: tuple[Destination, ...] = ()


class Depbar(NamedTuple):
    """The register form: set or clear one bit, at issue; waits for nothing."""

    bit: Literal["E", "F"]
    register: str
    value: bool = True


class SetFiberNum(NamedTuple):
    """All live wefts meet; those not in `live` end, new ones start; `everything` (ALL) resets the bits."""

    live: frozenset[int]
    everything: bool = True


Step = Op | Depbar | SetFiberNum
DORMANT = -1


@dataclass(frozen=True)
class Rules:
    """What the hardware does.

    `release`: which read clears F (the bound one, any read, or the read that found F clear). `reads_set_full`: every
    read sets F at the register read. `arm`: when a consuming read sets E. `ordered_reads` (T1): the register reads of
    an operation come before the write-back of any operation that issued later. `bound`: flags act with the
    instruction's issue (BIND); otherwise they are ignored and programs use `Depbar`. `all_drains`, `all_clears_full`:
    SET_FIBER_NUM.ALL waits until nothing is in flight, and clears F beside setting E.
    """

    release: Literal["bound", "any", "found_clear"] = "bound"
    reads_set_full: bool = False
    arm: Literal["issue", "read", "consumption"] = "issue"
    ordered_reads: bool = True
    test_empty: bool = True
    test_full: bool = True
    bound: bool = True
    all_drains: bool = True
    all_clears_full: bool = True


LITERAL = Rules(release="any", reads_set_full=True, bound=False)
"""The paper's text: every read sets and clears F, bits are set by separate instructions."""

ISSUED, READ, DONE = range(3)


class Flight(NamedTuple):
    """An operation in flight: phases of its sources, which destinations are written, which reads found F clear."""

    weft: int
    index: int
    reads: tuple[int, ...]
    written: tuple[bool, ...]
    found_clear: tuple[bool, ...]


class State(NamedTuple):
    """E and F by (register, reader), versions, program counters, operations in issue order."""

    empty: frozenset[tuple[str, int]]
    full: frozenset[tuple[str, int]]
    versions: tuple[int, ...]
    places: tuple[int, ...]
    flights: tuple[Flight, ...]


@dataclass(frozen=True)
class Verdict:
    """How a search ended: "safe", "deadlock" or "wrong", after how many states, and the shortest failing trace."""

    outcome: Literal["safe", "deadlock", "wrong"]
    states: int
    trace: tuple[str, ...] = ()


class WrongValueError(Exception):
    """A read or a write met a version that it must not meet."""


@dataclass
class Network:
    """Wefts, their instructions, and how registers start: empty, ready (`ready`) or ready and held (`held`)."""

    wefts: list[list[Step]]
    readers: dict[str, int] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    dormant: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        names = {name for weft in self.wefts for step in weft for name in _names(step)}
        self.registers = sorted(names)
        self.number = {name: i for i, name in enumerate(self.registers)}

    def copies(self, register: str) -> list[tuple[str, int]]:
        """Return the scoped copies of a register's bits: one for each reader."""
        return [(register, reader) for reader in range(self.readers.get(register, 1))]

    def start(self) -> State:
        """Return the state in which nothing has happened."""
        bits = [copy for name in self.registers for copy in self.copies(name)]
        started = self.ready | self.held
        return State(
            frozenset(bit for bit in bits if bit[0] not in started),
            frozenset(bit for bit in bits if bit[0] in self.held),
            tuple(0 for _ in self.registers),
            tuple(DORMANT if weft in self.dormant else 0 for weft in range(len(self.wefts))),
            (),
        )


def _names(step: Step) -> list[str]:
    if isinstance(step, SetFiberNum):
        return []
    if isinstance(step, Depbar):
        return [step.register]
    return [source.register for source in step.sources] + [target.register for target in step.destinations]


def search(network: Network, rules: Rules = Rules(), limit: int = 1_000_000) -> Verdict:
    """Search all states, nearest first. Raises MemoryError beyond `limit` states."""
    first = network.start()
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    ended = tuple(len(weft) for weft in network.wefts)
    while queue:
        state = queue.popleft()
        try:
            following = list(successors(network, rules, state))
        except WrongValueError as error:
            return Verdict("wrong", len(came_from), (*_trace(came_from, state), str(error)))
        if not following and (state.places != ended or state.flights):
            return Verdict("deadlock", len(came_from), _trace(came_from, state))
        for label, after in following:
            after = after._replace(flights=_sorted(after.flights, rules))
            if after not in came_from:
                came_from[after] = (state, label)
                queue.append(after)
        if len(came_from) > limit:
            raise MemoryError(f"more than {limit} states")
    return Verdict("safe", len(came_from))


def play(network: Network, rules: Rules = Rules()) -> Verdict:
    """Follow one schedule: always the first transition that is enabled."""
    state, labels, ended = network.start(), [], tuple(len(weft) for weft in network.wefts)
    while True:
        try:
            following = successors(network, rules, state)
        except WrongValueError as error:
            return Verdict("wrong", len(labels), (*labels, str(error)))
        if not following:
            done = state.places == ended and not state.flights
            return Verdict("safe" if done else "deadlock", len(labels), () if done else tuple(labels))
        label, state = following[0]
        labels.append(label)


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    labels: list[str] = []
    while (step := came_from[state]) is not None:
        state, label = step
        labels.append(label)
    return tuple(reversed(labels))


def successors(network: Network, rules: Rules, state: State) -> list[tuple[str, State]]:
    """Return every transition that is enabled, with the state after it."""
    found = []
    for weft, place in enumerate(state.places):
        if 0 <= place < len(network.wefts[weft]) and not isinstance(network.wefts[weft][place], SetFiberNum):
            found += _issue(network, rules, state, weft, network.wefts[weft][place])
    found += _set_fiber_num(network, rules, state)
    for position, flight in enumerate(state.flights):
        op = network.wefts[flight.weft][flight.index]
        assert isinstance(op, Op)
        for number, phase in enumerate(flight.reads):
            if phase == ISSUED:
                found.append(_read(network, rules, state, position, op, number))
            elif phase == READ:
                found.append(_consume(rules, state, position, op, number))
        for number, done in enumerate(flight.written):
            if not done and _may_write(rules, state, position):
                found.append(_write(network, state, position, op, number))
    return found


def _set_fiber_num(network: Network, rules: Rules, state: State) -> list[tuple[str, State]]:
    """All live wefts stand at the instruction: surplus ones end, dormant ones start, ALL resets the bits."""
    at = {w: network.wefts[w][p] for w, p in enumerate(state.places) if 0 <= p < len(network.wefts[w])}
    steps = set(at.values())
    if len(steps) != 1 or not isinstance(step := steps.pop(), SetFiberNum):
        return []
    if step.everything and rules.all_drains and state.flights:
        return []
    places = list(state.places)
    for weft, code in enumerate(network.wefts):
        if weft in at:
            places[weft] = places[weft] + 1 if weft in step.live else len(code)
        elif weft in step.live and places[weft] == DORMANT:
            places[weft] = 0
    after = state._replace(places=tuple(places))
    if step.everything:
        copies = frozenset(copy for name in network.registers for copy in network.copies(name))
        after = after._replace(empty=copies, full=frozenset() if rules.all_clears_full else state.full)
    return [("SET_FIBER_NUM", after)]


def _issue(network: Network, rules: Rules, state: State, weft: int, step: Step) -> list[tuple[str, State]]:
    assert not isinstance(step, SetFiberNum)
    places = tuple(place + (i == weft) for i, place in enumerate(state.places))
    if isinstance(step, Depbar):
        copies = frozenset(network.copies(step.register))
        old = state.empty if step.bit == "E" else state.full
        new = old | copies if step.value else old - copies
        bits = {"empty": new} if step.bit == "E" else {"full": new}
        return [(f"w{weft} {'set' if step.value else 'clear'} {step}", state._replace(places=places, **bits))]
    if rules.test_empty and any((s.register, s.reader) in state.empty for s in step.sources):
        return []
    targets = [copy for d in step.destinations for copy in network.copies(d.register)]
    if rules.test_full and any(copy in state.full for copy in targets):
        return []
    empty, full = state.empty | frozenset(targets), state.full
    if rules.bound:
        full |= frozenset(copy for d in step.destinations if d.hold for copy in network.copies(d.register))
        if rules.arm == "issue":
            empty |= frozenset((s.register, s.reader) for s in step.sources if s.consume)
    flight = Flight(
        weft,
        state.places[weft],
        (ISSUED,) * len(step.sources),
        (False,) * len(step.destinations),
        (False,) * len(step.sources),
    )
    if not step.sources and not step.destinations:
        return [(f"w{weft} issues nothing", state._replace(places=places))]
    after = State(empty, full, state.versions, places, (*state.flights, flight))
    return [(f"w{weft} issues {state.places[weft]}", after)]


def _read(network: Network, rules: Rules, state: State, position: int, op: Op, number: int) -> tuple[str, State]:
    source, flight = op.sources[number], state.flights[position]
    label = f"w{flight.weft} reads {source.register}"
    if state.versions[network.number[source.register]] != source.version:
        raise WrongValueError(label)
    bit = (source.register, source.reader)
    empty, full = state.empty, state.full
    clear = bit not in full
    if rules.reads_set_full:
        full |= {bit}
    if rules.bound and source.consume and rules.arm == "read":
        empty |= {bit}
    phase = READ if source.consume or rules.release != "bound" else DONE  # an unbound read changes no bit later
    found = _put(flight.found_clear, number, clear and rules.release == "found_clear")
    flight = flight._replace(reads=_put(flight.reads, number, phase), found_clear=found)
    return label, state._replace(empty=empty, full=full, flights=_settle(state.flights, position, flight))


def _consume(rules: Rules, state: State, position: int, op: Op, number: int) -> tuple[str, State]:
    source, flight = op.sources[number], state.flights[position]
    bit = (source.register, source.reader)
    empty, full = state.empty, state.full
    releases = {"bound": source.consume, "any": True, "found_clear": flight.found_clear[number]}
    if releases[rules.release]:
        full -= {bit}
    if rules.bound and source.consume and rules.arm == "consumption":
        empty |= {bit}
    flight = flight._replace(reads=_put(flight.reads, number, DONE))
    after = state._replace(empty=empty, full=full, flights=_settle(state.flights, position, flight))
    return f"w{flight.weft} has consumed {source.register}", after


def _may_write(rules: Rules, state: State, position: int) -> bool:
    if any(phase != DONE for phase in state.flights[position].reads):
        return False
    return not rules.ordered_reads or all(ISSUED not in earlier.reads for earlier in state.flights[:position])


def _write(network: Network, state: State, position: int, op: Op, number: int) -> tuple[str, State]:
    target, flight = op.destinations[number], state.flights[position]
    label, at = f"w{flight.weft} writes {target.register}", network.number[target.register]
    if target.version != state.versions[at] + 1:
        raise WrongValueError(label)
    flight = flight._replace(written=_put(flight.written, number, True))
    after = state._replace(
        empty=state.empty - frozenset(network.copies(target.register)),
        versions=_put(state.versions, at, target.version),
        flights=_settle(state.flights, position, flight),
    )
    return label, after


def _settle(flights: tuple[Flight, ...], position: int, flight: Flight) -> tuple[Flight, ...]:
    """Put a flight back, or take it out once it has nothing left to do."""
    if all(flight.written) and all(phase == DONE for phase in flight.reads):
        return flights[:position] + flights[position + 1 :]
    return _put(flights, position, flight)


def _sorted(flights: tuple[Flight, ...], rules: Rules) -> tuple[Flight, ...]:
    """Order flights by weft where their issue order no longer matters, so that equal situations are equal states."""
    order = list(flights)
    for end in range(len(order) - 1, 0, -1):
        for i in range(end):
            early, late = order[i], order[i + 1]
            matters = rules.ordered_reads and ISSUED in early.reads and not all(late.written)
            if late[:2] < early[:2] and not matters:
                order[i], order[i + 1] = late, early
    return tuple(order)


def _put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
