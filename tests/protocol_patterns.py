"""Networks of wefts for the protocol model: the patterns that a compiler may emit, by the names of the engine's page.

K data pass through S stages; version i + 1 is datum i. `P`, `C` are the producing and the consuming weft.
"""

from __future__ import annotations

from protocol_model import Depbar, Destination, Network, Op, SetFiberNum, Source, Step


def read(register: str, version: int, consume: bool = False, reader: int = 0) -> Op:
    """An operation that only reads."""
    return Op((Source(register, version, consume, reader),))


def write(register: str, version: int, hold: bool = False) -> Op:
    """An operation that only writes."""
    return Op((), (Destination(register, version, hold),))


def one_to_one(data: int, stages: int = 1, *, consume: bool = True, hold: bool = True) -> Network:
    """A1-A3: `[hold] op R[i % S]` and `[consume] op .., R[i % S]`."""
    places = [(f"R{i % stages}", i // stages + 1) for i in range(data)]
    return Network([[write(r, v, hold) for r, v in places], [read(r, v, consume) for r, v in places]])


def several_reads(data: int, reads: int) -> Network:
    """A4: every datum is read several times, the last read consumes."""
    consumer = [read("R", i + 1, j == reads - 1) for i in range(data) for j in range(reads)]
    return Network([[write("R", i + 1, True) for i in range(data)], consumer])


def literal(data: int, *, pair_consumer: bool = False, pair_producer: bool = False) -> Network:
    """The paper's sequence: bits set by separate instructions; a paired side uses flags instead."""
    producer: list[Step] = []
    consumer: list[Step] = []
    for i in range(data):
        producer += [write("R", i + 1, pair_producer)] + ([] if pair_producer else [Depbar("F", "R")])
        consumer += [read("R", i + 1, pair_consumer)] + ([] if pair_consumer else [Depbar("E", "R")])
    return Network([producer, consumer])


def without_pairing(data: int) -> Network:
    """A5: no pairing hardware; a credit token T that starts ready orders the unpaired bits."""
    producer: list[Step] = []
    consumer: list[Step] = []
    for i in range(data):
        producer += [read("T", i), Depbar("E", "T"), write("R", i + 1)]
        consumer += [read("R", i + 1), Depbar("E", "R"), write("T", i + 1)]
    return Network([producer, consumer], ready=frozenset({"T"}))


def scoped(data: int, consumers: int) -> Network:
    """B1: one consumer a subpartition with scoped bits, which act like a group of registers, one for each reader."""
    group = range(consumers)
    producer = [Op((), tuple(Destination(f"R{k}", i + 1, True) for k in group)) for i in range(data)]
    return Network([producer, *[[read(f"R{k}", i + 1, True) for i in range(data)] for k in group]])


def plain_and_scoped(data: int, consumers: int) -> Network:
    """B8 with A plain: each consumer takes its own A from a producer of its own, and its part of B that all share."""
    group = range(consumers)
    shared = [Op((), tuple(Destination(f"R{k}", i + 1, True) for k in group)) for i in range(data)]
    own = [[write(f"A{k}", i + 1, True) for i in range(data)] for k in group]
    takes = [[Op((Source(f"A{k}", i + 1, True), Source(f"R{k}", i + 1, True))) for i in range(data)] for k in group]
    return Network([shared, *own, *takes])


def copies(data: int, consumers: int) -> Network:
    """B4: the producer writes one held copy for each consumer."""
    producer = [write(f"R{k}", i + 1, True) for i in range(data) for k in range(consumers)]
    return Network([producer, *[[read(f"R{k}", i + 1, True) for i in range(data)] for k in range(consumers)]])


def two_consumers_unscoped(data: int) -> Network:
    """Two wefts that both consume one register: two bits cannot count to two."""
    return Network([[write("R", i + 1, True) for i in range(data)], *[one_reader(data) for _ in range(2)]])


def one_reader(data: int) -> list[Step]:
    """A weft that consumes R."""
    return [read("R", i + 1, True) for i in range(data)]


def several_producers(data: int, producers: int, *, together: bool = False) -> Network:
    """C1, C3: producers of their own registers; one consumer takes them in turn, or `together` in one instruction."""
    wefts: list[list[Step]] = [[write(f"R{k}", i + 1, True) for i in range(data)] for k in range(producers)]
    takes = [[Source(f"R{k}", i + 1, True) for k in range(producers)] for i in range(data)]
    turns = [Op(tuple(take)) for take in takes] if together else [Op((source,)) for take in takes for source in take]
    return Network([*wefts, list(turns)])


def accumulator_to_channel(data: int, steps: int, stages: int = 1) -> Network:
    """D1-D2: a chain accumulates in C; its last step writes the channel D."""
    producer: list[Step] = []
    version = 0
    for i in range(data):
        for step in range(steps - 1):
            sources = (Source("C", version),) if step else ()
            producer.append(Op(sources, (Destination("C", version + 1),)))
            version += 1
        producer.append(Op((Source("C", version),), (Destination(f"D{i % stages}", i // stages + 1, True),)))
    consumer = [read(f"D{i % stages}", i // stages + 1, True) for i in range(data)]
    return Network([producer, list(consumer)])


def accumulator_in_place(data: int, steps: int) -> Network:
    """D3: the last step holds C; a token written after it tells the consumer."""
    producer: list[Step] = []
    consumer: list[Step] = []
    version = 0
    for i in range(data):
        for step in range(steps):
            sources = (Source("C", version),) if step else ()
            producer.append(Op(sources, (Destination("C", version + 1, step == steps - 1),)))
            version += 1
        producer.append(write("D", i + 1))
        consumer += [read("D", i + 1, True), read("C", version, True)]
    return Network([producer, consumer])


def partial_sums(steps: int) -> Network:
    """Illegal: an accumulator that the consumer may read between the steps of its chain."""
    chain = [Op((Source("C", v),) if v else (), (Destination("C", v + 1),)) for v in range(steps)]
    return Network([list(chain), [read("C", steps, True)]])


def alternating(data: int) -> Network:
    """E1: two wefts turn O into O' and back, each consuming the one and holding the other."""
    product = [Op((Source("Oa", i, True),), (Destination("O", i + 1, True),)) for i in range(data)]
    rescale = [Op((Source("O", i + 1, True),), (Destination("Oa", i + 1, True),)) for i in range(data)]
    return Network([list(product), list(rescale)], held=frozenset({"Oa"}))


def chain(data: int, wefts: int, stages: int = 1) -> Network:
    """G1-G2: each middle weft consumes one channel and holds the next."""
    code: list[list[Step]] = []
    for weft in range(wefts):
        steps: list[Step] = []
        for i in range(data):
            stage, version = i % stages, i // stages + 1
            sources = (Source(f"R{weft - 1}.{stage}", version, True),) if weft else ()
            targets = (Destination(f"R{weft}.{stage}", version, True),) if weft < wefts - 1 else ()
            steps.append(Op(sources, targets))
        code.append(steps)
    return Network(code)


def group(data: int, registers: int, *, single_writes: bool = False) -> Network:
    """F1, F2: an operand of several registers, written at once or one by one, read and consumed at once."""
    names = [f"R{k}" for k in range(registers)]
    producer: list[Step] = []
    for i in range(data):
        targets = tuple(Destination(name, i + 1, True) for name in names)
        producer += [Op((), (target,)) for target in targets] if single_writes else [Op((), targets)]
    consumer = [Op(tuple(Source(name, i + 1, True) for name in names)) for i in range(data)]
    return Network([producer, list(consumer)])


def token_before_last_read(data: int) -> Network:
    """A5 with the credit token given before the read: wrong."""
    producer: list[Step] = []
    consumer: list[Step] = []
    for i in range(data):
        producer += [read("T", i), Depbar("E", "T"), write("R", i + 1)]
        consumer += [write("T", i + 1), read("R", i + 1), Depbar("E", "R")]
    return Network([producer, consumer], ready=frozenset({"T"}))


def unconsumed_own_write() -> Network:
    """Illegal: a held register whose next writer reads and writes it waits for its own hold."""
    steps = [write("O", 1, True), Op((Source("O", 1),), (Destination("O", 2, True),))]
    return Network([list(steps), [read("O", 2, True)]])


def two_phases(data: int, *, left_over: bool = False) -> Network:
    """SET_FIBER_NUM.ALL between two uses of one register: w0 to w1, then w0 to a new w2; perhaps a datum is left."""
    kept = data - left_over
    meet = SetFiberNum(frozenset({0, 2}))
    first: list[Step] = [write("R", i + 1, True) for i in range(data)]
    second: list[Step] = [write("R", data + i + 1, True) for i in range(data)]
    return Network(
        [
            [*first, meet, *second],
            [*[read("R", i + 1, True) for i in range(kept)], meet],
            [read("R", data + i + 1, True) for i in range(data)],
        ],
        dormant=frozenset({2}),
    )


def load_in_flight() -> Network:
    """A load that nobody waits for before SET_FIBER_NUM.ALL; its register is used again after it."""
    meet = SetFiberNum(frozenset({0, 1}))
    return Network([[write("R", 1), meet, write("R", 2, True)], [meet, read("R", 2, True)]])
