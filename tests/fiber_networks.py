"""Networks of the protocol model as FIBER programs, and a run of such a program as a path of the model.

Weft i of the network runs as weft `wefts[i]` of the program. A register lies where its first writer runs. Registers
that one operation writes together are an aligned group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine_builder import EXIT, op, program, role
from fiber_builder import at, bind, bit
from heddle.ir.warp import Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import OWN, FiberNote
from heddle.sim.reference.chip import Chip
from heddle.sim.reference.fiber_thread import Change
from heddle.sim.reference.registers import Physical
from protocol_model import (
    LITERAL,
    Depbar,
    Destination,
    Network,
    Op,
    Rules,
    SetFiberNum,
    Source,
    State,
    Step,
    successors,
)
from protocol_patterns import read, write

SUBPARTITIONS = 4
END = 1 << 40  # a cycle after everything
FIRST = 16  # number of the first register of the pool


@dataclass
class Compiled:
    """A network as a program: where each of its steps stands, and where its registers lie."""

    network: Network
    wefts: Sequence[int]
    program: WarpProgram
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)  # pc -> weft and step of the network
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # register -> subpartition and number


class Compiler:
    """Gives registers their places and turns steps into instructions."""

    def __init__(self, network: Network, wefts: Sequence[int], pauses: Mapping[int, int]) -> None:
        self.network, self.wefts, self.pauses = network, wefts, pauses
        self.places: dict[str, tuple[int, int]] = {}  # subpartition, number
        self._next = FIRST
        for weft, code in enumerate(network.wefts):
            for step in code:
                if isinstance(step, Op):
                    self._place([target.register for target in step.destinations], weft)
        for name in network.registers:
            self._place([name], 0)

    def _place(self, names: list[str], weft: int) -> None:
        if not names or names[0] in self.places:
            return
        self._next = -(-self._next // 4) * 4
        for name in names:
            self.places[name] = self.wefts[weft] % SUBPARTITIONS, self._next
            self._next += 1

    def register(self, names: list[str], weft: int) -> Register:
        """Return a register, or a group of them, as a weft names it."""
        place, number = self.places[names[0]]
        return at(number, OWN if place == self.wefts[weft] % SUBPARTITIONS else place, len(names))

    def instructions(self, weft: int, step: Step) -> list[Instruction]:
        """Return the instructions of a step; the last one is the step itself."""
        if isinstance(step, SetFiberNum):
            count = 1 + max(self.wefts[live] for live in step.live)
            return [op("SETFIBER", fibers=32 * count, all_scope=step.everything)]
        if isinstance(step, Depbar):
            which = {"E": "empty", "F": "full"}[step.bit]
            pause = [op("NOP")] * self.pauses.get(weft, 0)
            return [*pause, bit(which, self.register([step.register], weft), step.value)]
        names = [source.register for source in step.sources]
        groups = [names] if self._is_group(names) else [[name] for name in names]
        consumed = [i for i, group in enumerate(groups) if step.sources[names.index(group[0])].consume]
        held = any(target.hold for target in step.destinations)
        targets = [target.register for target in step.destinations]
        dst = self.register(targets, weft) if targets else None
        row = op("FFMA", dst=dst, src=tuple(self.register(group, weft) for group in groups))
        return [bind(*consumed, hold=held), row] if consumed or held else [row]

    def _is_group(self, names: list[str]) -> bool:
        """Tell whether registers lie together, as an operation that writes them all left them."""
        first = self.places[names[0]] if names else (0, 0)
        return len(names) == 4 and [self.places[name] for name in names] == [(first[0], first[1] + i) for i in range(4)]

    def prologue(self) -> list[Instruction]:
        """Return what gives the bits their first values: everything is empty that is not ready."""
        rows = []
        for name in self.network.registers:
            if name in self.network.held:
                rows.append(bit("full", self.register([name], 0), True))
            elif name not in self.network.ready:
                rows.append(bit("empty", self.register([name], 0), True))
        return rows


def compiled(network: Network, wefts: Sequence[int] | None = None, pauses: Mapping[int, int] | None = None) -> Compiled:
    """Return a network as a program; weft 0 sets the bits and starts the others.

    `pauses`: cycles that a weft of the network lets pass in front of each instruction that only changes a bit.
    """
    wefts = list(range(len(network.wefts))) if wefts is None else wefts
    compiler = Compiler(network, wefts, pauses or {})
    first = [wefts[i] for i in range(len(network.wefts)) if i not in network.dormant]
    rows = [*compiler.prologue(), op("SETFIBER", fibers=32 * (1 + max(first)))]
    roles, steps = [], {}
    for weft in range(1 + max(wefts)):
        roles.append(role(0 if weft == 0 else len(rows), 1, first=weft, name=f"weft{weft}"))
        if weft in wefts:
            number = wefts.index(weft)
            for index, step in enumerate(network.wefts[number]):
                rows += compiler.instructions(number, step)
                steps[len(rows) - 1] = (number, index)
        rows.append(EXIT)
    note = FiberNote(registers=compiler._next, pool_first=FIRST, pool_limit=compiler._next)
    p = program(*rows, roles=roles, mode="fiber", fiber=note)
    return Compiled(network, wefts, p, steps, compiler.places)


def follow(case: Compiled, changes: Sequence[Change], rules: Rules) -> State:
    """Play the events of a run in the model and return the state at the end. Fails where the model has no such step."""
    state = case.network.start()
    for change in changes:
        if change.kind != "all" and change.pc not in case.steps:
            continue  # the prologue
        for label in _labels(case, change, rules):
            enabled = successors(case.network, rules, state)
            following = [after for name, after in enabled if name == label]
            assert following, f"cycle {change.cycle}: {label!r} is not among {[name for name, _ in enabled]}"
            state = following[0]
    return state


def _labels(case: Compiled, change: Change, rules: Rules) -> list[str]:
    """Return the model's names of what happened."""
    if change.kind == "all":
        return ["SET_FIBER_NUM"]
    weft, index = case.steps[change.pc]
    step = case.network.wefts[weft][index]
    if change.kind == "bit":
        assert isinstance(step, Depbar)
        return [f"w{weft} {'set' if step.value else 'clear'} {step}"]
    assert isinstance(step, Op)
    reads = [f"w{weft} reads {source.register}" for source in step.sources]
    at_issue = rules is LITERAL  # there a read changes bits, and does so with the issue
    if change.kind == "issue":
        return [f"w{weft} issues {index}", *(reads if at_issue else [])]
    if change.kind == "read":
        given_back = [source for source in step.sources if source.consume or at_issue]
        return [*([] if at_issue else reads), *(f"w{weft} has consumed {source.register}" for source in given_back)]
    return [f"w{weft} writes {t.register}" for t in step.destinations] if change.kind == "write" else []


def bits_agree(case: Compiled, chip: Chip, state: State) -> bool:
    """Tell whether E in every view, and F, of the registers at the end of a run are those of the model."""
    (bits,) = chip.bits
    for name, (place, number) in case.places.items():
        register = Physical(place, number)
        views = {bits.empty(register, view, END) for view in range(SUBPARTITIONS)}
        if views != {(name, 0) in state.empty} or bits.full(register, END) != ((name, 0) in state.full):
            return False
    return True


def ended(network: Network, state: State) -> bool:
    """Tell whether every weft has done everything."""
    return state.places == tuple(len(weft) for weft in network.wefts) and not state.flights


def datum_order(case: Compiled, chip: Chip) -> list[tuple[int, int]]:
    """Return (weft, step) of the network in the order of issue."""
    changes = [change for thread in chip.traces for change in thread if change.kind == "issue"]
    return [case.steps[change.pc] for change in changes if change.pc in case.steps]


def tokens(data: int, consumers: int, registers: int) -> Network:
    """B5: a tile for several consumers; tokens Tk back and Dk forth order its reuse, and nobody holds the tile."""
    tile = [f"R{i}" for i in range(registers)]
    producer: list[Step] = []
    others: list[list[Step]] = [[] for _ in range(consumers)]
    for i in range(data):
        producer += [read(f"T{k}", i, True) for k in range(consumers)]
        producer += [write(name, i + 1) for name in tile]
        producer += [write(f"D{k}", i + 1) for k in range(consumers)]
        for k, code in enumerate(others):
            code += [read(f"D{k}", i + 1, True), *(read(name, i + 1) for name in tile), write(f"T{k}", i + 1)]
    return Network([producer, *others], ready=frozenset(f"T{k}" for k in range(consumers)))


def accumulator_two_tokens(data: int, steps: int) -> Network:
    """D4: an accumulator in place, ordered by two tokens whose bits are set by instructions of their own."""
    producer: list[Step] = []
    consumer: list[Step] = []
    version = 0
    for i in range(data):
        producer += [read("T", i), Depbar("E", "T")]
        for step in range(steps):
            sources = (Source("C", version),) if step else ()
            producer.append(Op(sources, (Destination("C", version + 1),)))
            version += 1
        producer.append(write("D", i + 1))
        consumer += [read("D", i + 1), Depbar("E", "D"), read("C", version), write("T", i + 1)]
    return Network([producer, consumer], ready=frozenset({"T"}))


def alternating_in_place(data: int) -> Network:
    """E2: two wefts turn one accumulator O by turns; two tokens say whose turn it is."""
    product: list[Step] = []
    rescale: list[Step] = []
    for i in range(data):
        product += [
            Op((Source("O", 2 * i),), (Destination("O", 2 * i + 1),)),
            write("a", i + 1),
            read("b", i + 1, True),
        ]
        rescale += [
            read("a", i + 1, True),
            Op((Source("O", 2 * i + 1),), (Destination("O", 2 * i + 2),)),
            write("b", i + 1),
        ]
    return Network([product, rescale], ready=frozenset({"O"}))
