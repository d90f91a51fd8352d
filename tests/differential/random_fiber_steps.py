"""Steps of random FIBER programs: transfers through channels, groups, tensor memory, barriers, single wefts' work.

All roles see the steps in one order. A step only waits for what its partners do in the same or an earlier one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from random_fiber_roles import SUBPARTITIONS, USABLE, WINDOW, ZONE, FiberRole

from heddle.ir.warp import RZ, Register, StreamRef
from heddle.ir.warp_fiber import OWN, TENSOR, Bind

TENSOR_GROUPS = 4  # of 32 columns of tensor memory
ROWS = 32  # of a weft's matrix instruction on sm_100
DEPTH = 16
MMA_SYNC = (16, 8, 16)


class FiberContext:
    """Roles of a program under construction, those that live now, and the registers of the pool that are taken."""

    def __init__(self, rng: random.Random, roles: Sequence[FiberRole], grouped: bool, mma_sync: bool) -> None:
        self.rng, self.roles, self.grouped, self.mma_sync = rng, roles, grouped, mma_sync
        self.live: list[FiberRole] = []
        self._next: dict[tuple[int, int], int] = {}  # subpartition and base -> next register of the pool
        self._columns = [0] * SUBPARTITIONS
        self.barriers = 0

    @property
    def single(self) -> list[FiberRole]:
        """The live roles of one weft."""
        return [role for role in self.live if role.wefts == 1]

    @property
    def quads(self) -> list[FiberRole]:
        """The live roles of four neighbouring wefts."""
        return [role for role in self.live if role.wefts == SUBPARTITIONS]

    def channel(self, role: FiberRole, count: int) -> int | None:
        """Take registers of the pool that a role of one weft can write; None if there are no more."""
        zones = sum(other.base == 0 for other in self.roles)
        first = zones * ZONE if role.base == 0 else WINDOW
        index = self._next.get((role.place, role.base), first)
        self._next[role.place, role.base] = index + -(-count // 4) * 4
        limit = USABLE if role.base == 0 else WINDOW + USABLE - ZONE * sum(other.base > 0 for other in self.roles)
        return index if index + count <= limit else None

    def columns(self, place: int) -> int | None:
        """Take 32 columns of tensor memory of a subpartition."""
        self._columns[place] += 1
        return self._columns[place] - 1 if self._columns[place] <= TENSOR_GROUPS else None


def named(role: FiberRole, place: int, number: int, count: int) -> Register:
    """Return a register as a weft of `role` names it."""
    own = role.wefts == 1 and role.place == place
    return Register(number, count, False, OWN if own else place)


def _produce(context: FiberContext, role: FiberRole, number: int, count: int, bind: Bind) -> None:
    """Write channel registers, with an instruction of any latency."""
    rng, dst = context.rng, Register(number, count, False, OWN)
    matrix = count == 4 if context.mma_sync else count == 8 and not context.grouped
    kind = rng.choice(["math", "math", "shared", "global"] + ["matrix"] * matrix)
    if kind == "math":
        role.bound(bind, rng.choice(["FFMA", "MUFU", "SHFL"]), dst=dst, src=role.sources(rng.randrange(0, 4)))
    elif kind == "shared":
        role.bound(bind, "LDS", dst=dst, src=(role.private(),), bytes=128 * count, conflict_ways=rng.choice([1, 2]))
    elif kind == "global":
        role.bound(bind, "LDG", dst=dst, src=(role.private(2),), bytes=128 * count, stream=StreamRef(name="a"))
    elif context.mma_sync:
        sources = (role.private(4), role.private(2), rng.choice([Register(RZ), role.private(4)]))
        role.bound(bind, "HMMA", dst=dst, src=sources, shape=MMA_SYNC, dtype="fp16")
    else:
        sources = (role.private(8, 0), role.private(2, 8), Register(RZ))
        role.bound(bind, "WMMA", dst=dst, src=sources, shape=(ROWS, 8, DEPTH), form="rr", dtype="fp16")


def _consume(context: FiberContext, role: FiberRole, source: Register, *, scoped: bool) -> None:
    """Read channel registers, several times perhaps; the last read gives them back."""
    rng = context.rng
    for _ in range(rng.choice([0, 0, 1, 2])):
        role.add(rng.choice(["FADD", "MUFU"]), dst=role.private(), src=(source, *role.sources(1)))
    kind = rng.choice(["math", "math", "shared", "global", "second"])
    slots = (1,) if kind == "second" else (0,)
    bind = Bind(consume=slots, scoped=slots if scoped else ())
    if kind == "shared":
        role.bound(bind, "STS", src=(source, role.private()), bytes=128 * source.count)
    elif kind == "global":
        role.bound(bind, "STG", src=(source, role.private(2)), bytes=128 * source.count, stream=StreamRef(name="c"))
    elif kind == "second":
        role.bound(bind, "FFMA", dst=role.private(), src=(role.private(), source, *role.sources(1)))
    else:
        role.bound(bind, rng.choice(["FFMA", "SHFL", "MUFU"]), dst=role.private(), src=(source, *role.sources(1)))


def transfer(context: FiberContext) -> None:
    """One datum from a weft to another (A1, A4, F1), a few times over the same register."""
    if len(context.single) < 2:
        return
    producer, consumer = context.rng.sample(context.single, 2)
    count = context.rng.choice([1, 1, 2, 4, 8])
    number = context.channel(producer, count)
    if number is None:
        return
    for _ in range(context.rng.choice([1, 1, 2])):
        _produce(context, producer, number, count, Bind(hold=True))
        _consume(context, consumer, named(consumer, producer.place, number, count), scoped=False)


def spread(context: FiberContext) -> None:
    """One datum to a consumer in each of several subpartitions, by scoped bits (B1)."""
    if len(context.single) < 2:
        return
    producer = context.rng.choice(context.single)
    by_place = {role.place: role for role in context.single if role is not producer}
    number = context.channel(producer, 2)
    if number is None or not by_place:
        return
    places = tuple(sorted(context.rng.sample(sorted(by_place), context.rng.randint(1, len(by_place)))))
    _produce(context, producer, number, 2, Bind(hold=True, readers=places))
    for place in places:
        _consume(context, by_place[place], named(by_place[place], producer.place, number, 2), scoped=True)


def mixed(context: FiberContext) -> None:
    """Consumers that take, in one instruction, a datum of their own plainly and a shared one by scoped bits."""
    if len(context.single) < 3:
        return
    rng = context.rng
    producer, *others = rng.sample(context.single, len(context.single))
    by_place = {role.place: role for role in others}
    readers = rng.sample(sorted(by_place), rng.randint(1, len(by_place)))
    number, owners = context.channel(producer, 2), [by_place[place] for place in readers]
    if number is None:
        return
    _produce(context, producer, number, 2, Bind(hold=True, readers=tuple(sorted(readers))))
    for consumer in owners:
        shared = named(consumer, producer.place, number, 2)
        source = rng.choice([role for role in context.single if role is not consumer])
        own = context.channel(source, 1)
        if own is None:
            _consume(context, consumer, shared, scoped=True)
            continue
        _produce(context, source, own, 1, Bind(hold=True))
        plain = named(consumer, source.place, own, 1)
        bind = Bind(consume=(0, 1), scoped=(1,))
        consumer.bound(bind, rng.choice(["FFMA", "FADD"]), dst=consumer.private(), src=(plain, shared))


def chain(context: FiberContext) -> None:
    """A middle weft consumes one channel and holds the next with one instruction (G1)."""
    if len(context.single) < 3:
        return
    first, middle, last = context.rng.sample(context.single, 3)
    numbers = context.channel(first, 1), context.channel(middle, 1)
    if numbers[0] is None or numbers[1] is None:
        return
    _produce(context, first, numbers[0], 1, Bind(hold=True))
    source, target = named(middle, first.place, numbers[0], 1), Register(numbers[1], 1, False, OWN)
    middle.bound(Bind(consume=(0,), hold=True), "FMUL", dst=target, src=(source, *middle.sources(1)))
    _consume(context, last, named(last, middle.place, numbers[1], 1), scoped=False)


def group(context: FiberContext) -> None:
    """A group of four wefts, B from shared memory or from a channel with scoped bits (B8), in a chain of steps."""
    if context.mma_sync or not context.grouped or not context.quads:
        return
    rng, quad, columns = context.rng, context.quads[0], context.rng.choice([8, 16])
    producer = rng.choice(context.single) if context.single and rng.random() < 0.6 else None
    count = columns * DEPTH * 2 // 128
    number = context.channel(producer, count) if producer is not None else None
    shape, acc = (ROWS, columns, DEPTH), quad.private(columns, 16)
    for step in range(rng.randint(1, 3)):
        first = (Register(RZ),) if step == 0 else ()
        if producer is None or number is None:
            sources = (quad.private(8, 0), Register(RZ), *first)
            quad.add("WMMA", dst=acc, src=sources, shape=shape, form="rs", dtype="fp16", group=True)
            continue
        _produce(context, producer, number, count, Bind(hold=True, readers=(0, 1, 2, 3)))
        sources = (quad.private(8, 0), named(quad, producer.place, number, count), *first)
        bind = Bind(consume=(1,), scoped=(1,))
        quad.bound(bind, "WMMA", dst=acc, src=sources, shape=shape, form="rr", dtype="fp16", group=True)


def matrix(context: FiberContext) -> None:
    """A chain of matrix instructions of one weft on private registers."""
    if context.mma_sync or context.grouped or not context.single:
        return
    rng, role, columns = context.rng, context.rng.choice(context.single), context.rng.choice([8, 16])
    acc = role.private(columns, 16)
    for step in range(rng.randint(1, 4)):
        form = rng.choice(["rr", "rs", "ss", "sr"])
        a = role.private(8, 0) if form[0] == "r" else Register(RZ)
        b = role.private(columns // 4, 8) if form[1] == "r" else Register(RZ)
        first = (Register(RZ),) if step == 0 else ()
        role.add("WMMA", dst=acc, src=(a, b, *first), shape=(ROWS, columns, DEPTH), form=form, dtype="fp16")


def mma_sync(context: FiberContext) -> None:
    """A chain of mma.sync whose B another weft writes; the first reads no accumulators, or others than it writes."""
    if not context.mma_sync or len(context.single) < 2:
        return
    rng = context.rng
    producer, consumer = rng.sample(context.single, 2)
    number, steps = context.channel(producer, 2), rng.randint(1, 3)
    if number is None:
        return
    _produce(context, producer, number, 2, Bind(hold=True))
    acc, second = consumer.private(4), named(consumer, producer.place, number, 2)
    for step in range(steps):
        added = rng.choice([(Register(RZ),), (consumer.private(4),), ()]) if step == 0 else ()
        if step == steps - 1:
            consumer.add("DEPBAR.BIND", bind=Bind(consume=(1,)))
        sources = (consumer.private(4), second, *added)
        consumer.add("HMMA", dst=acc, src=sources, shape=MMA_SYNC, dtype="fp16")


def tensor_memory(context: FiberContext) -> None:
    """Accumulators in tensor memory go from one weft to another of its subpartition."""
    pairs = [(a, b) for a in context.single for b in context.single if a is not b and a.place == b.place]
    if context.mma_sync or context.grouped or not pairs:
        return
    producer, consumer = context.rng.choice(pairs)
    number = context.columns(producer.place)
    if number is None:
        return
    columns = Register(number, 1, False, TENSOR)
    sources = (producer.private(8, 0), Register(RZ), Register(RZ))
    shape = (ROWS, 32, DEPTH)
    producer.bound(Bind(hold=True), "WMMA.TM", dst=columns, src=sources, shape=shape, form="rs", dtype="fp16")
    consumer.bound(Bind(consume=(0,)), "LDTM", dst=consumer.private(4), src=(columns,), bytes=512)


def meet(context: FiberContext) -> None:
    """All live wefts meet at a named barrier."""
    if context.barriers == 15:
        return
    context.barriers += 1
    warps = sum(role.wefts for role in context.live)
    for role in context.live:
        role.add("BAR.SYNC", barrier_id=context.barriers, warps=warps)


def own_bits(context: FiberContext) -> None:
    """A weft sets and clears bits of a private register that nobody waits for in between."""
    role, which = context.rng.choice(context.live), context.rng.choice(["empty", "full"])
    count = context.rng.choice([1, 2, 4])
    register = role.private(count)
    number = register.index - register.index % count
    named_ = Register(number, count, False, register.place)
    for value in (True, False):
        role.add("DEPBAR.BIT", bit=which, set_bit=value, src=(named_,))


STEPS = [
    transfer,
    transfer,
    transfer,
    spread,
    mixed,
    chain,
    group,
    group,
    matrix,
    mma_sync,
    mma_sync,
    tensor_memory,
    meet,
    own_bits,
]
