"""Steps of random programs: pieces of code for one role, or for several that synchronise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from random_roles import RoleBuilder

from heddle.ir.warp import BarrierRef, Control, Count, Instruction, Stream, StreamRef

NAMED_BARRIERS = 16  # a CTA
By = Literal["warp", "group", "role"]
Direction = Literal["load", "store", "reduce"]
DIRECTIONS: dict[str, Direction] = {
    "LDG": "load",
    "STG": "store",
    "RED": "reduce",
    "UTMASTG": "store",
    "UTMAREDG": "reduce",
}


class Context:
    """What a program under construction has declared so far."""

    def __init__(self, rng: random.Random, cluster_size: int, builders: list[RoleBuilder]) -> None:
        self.rng, self.cluster_size, self.builders = rng, cluster_size, builders
        self.rings: dict[str, int] = {}
        self.barriers: dict[str, tuple[int, int]] = {}  # name -> elements, arrivals
        self.streams: list[Stream] = []
        self.named_barriers = 0
        self.semaphore_used = False
        self._loops: list[tuple[int, Count, str]] = []
        self._marks = 0

    def fresh_mark(self) -> str:
        """Return a new name for a place in the code."""
        self._marks += 1
        return f"mark{self._marks}"

    def open_loop(self, level: int, count: Count) -> None:
        """Begin a loop in all roles."""
        mark = self.fresh_mark()
        self._loops.append((level, count, mark))
        for builder in self.builders:
            builder.mark(mark)

    def close_loop(self) -> None:
        """End the innermost loop in all roles."""
        level, count, mark = self._loops.pop()
        for builder in self.builders:
            builder.branch("LOOP", mark, level=level, count=count)

    def ring(self) -> str:
        """Declare a ring."""
        name = f"ring{len(self.rings)}"
        self.rings[name] = self.rng.choice([1, 2, 3])
        return name

    def barrier(self, ring: str, arrivals: int) -> str:
        """Declare mbarriers, one for each stage of a ring."""
        name = f"barrier{len(self.barriers)}"
        self.barriers[name] = (self.rings[ring], arrivals)
        return name

    def stream(self, direction: Direction, block_bytes: int, multicast: int = 1) -> str:
        """Declare a stream; the first ones of equal cut share their blocks."""
        rng = self.rng
        name = f"stream{len(self.streams)}"
        self.streams.append(
            Stream(
                name=name,
                tensor="c" if direction != "load" else rng.choice(["a", "b", "c"]),
                direction=direction,
                blocks=rng.choice([4, 40]),
                block_bytes=block_bytes,
                base=rng.choice(["base", "other_base"]),
                level=rng.choice([0, 0, 1]),
                step=rng.choice([0, 1, 3]),
                multicast=multicast,
                cta_step=rng.choice([0, 1]),
            )
        )
        return name

    def named_barriers_left(self, count: int) -> bool:
        """Tell whether `count` more named barriers may be used."""
        return self.named_barriers + count <= NAMED_BARRIERS

    def gather(self, builder: RoleBuilder) -> None:
        """Let the warps of a role wait for each other.

        One warp that acts for all after a wait could else let a phase pass that a slower warp has not seen.
        """
        if builder.warps > 1:
            builder.add("BAR.SYNC", barrier_id=self.named_barriers, warps=builder.warps)
            self.named_barriers += 1

    def cluster_warps(self) -> int:
        """Return how many warps of a cluster are resident."""
        return sum(b.warps * (1 if b.leader_only else self.cluster_size) for b in self.builders)

    def cluster_sync(self) -> Instruction:
        """Return a barrier of the whole cluster."""
        return Instruction(op="UCGABAR", warps=self.cluster_warps(), control=Control(stall=self.rng.choice([1, 5])))


def arithmetic(context: Context, builder: RoleBuilder) -> None:
    """Some arithmetic."""
    builder.arithmetic(context.rng.randrange(1, 6))


def inner_loop(context: Context, builder: RoleBuilder) -> None:
    """A loop of one role."""
    mark = context.fresh_mark()
    builder.mark(mark)
    builder.arithmetic(context.rng.randrange(1, 4))
    builder.branch("LOOP", mark, level=3, count=Count(context.rng.randrange(0, 5)))


def skipped(context: Context, builder: RoleBuilder) -> None:
    """Code that some items jump over."""
    mark = context.fresh_mark()
    builder.branch("SKIP", mark, attribute="flag")
    builder.arithmetic(context.rng.randrange(1, 4))
    builder.mark(mark)
    builder.add("NOP")


def shared_access(context: Context, builder: RoleBuilder) -> None:
    """Shared loads and stores with bank conflicts."""
    rng = context.rng
    for _ in range(rng.randrange(1, 5)):
        ways, amount = rng.choice([1, 1, 2, 8]), rng.choice([64, 128, 512])
        if rng.random() < 0.5:
            op = rng.choice(["LDS", "LDSM"])
            builder.add(op, dst=builder.register(4), src=(builder.register(),), bytes=amount, conflict_ways=ways)
        else:
            op = rng.choice(["STS", "STSM"])
            builder.add(op, src=(builder.register(), builder.register(4)), bytes=amount, conflict_ways=ways)


def global_access(context: Context, builder: RoleBuilder) -> None:
    """Plain global loads, stores and reductions."""
    rng = context.rng
    for _ in range(rng.randrange(1, 4)):
        op = rng.choice(["LDG", "LDG", "STG", "RED"])
        parts = rng.choice([1, 2, 4])
        ref = StreamRef(
            name=context.stream(DIRECTIONS[op], rng.choice([512, 2048])),
            offset=rng.choice([0, 0, 1, -1]),
            part=rng.randrange(0, parts),
            parts=parts,
            part_by_rank=rng.random() < 0.5,
            rank_stride=rng.choice([1, 2]),
        )
        by: By = rng.choice(["warp", "warp", "group", "role"])
        registers = {"dst": builder.register(4), "src": (builder.register(2),)} if op == "LDG" else {}
        if op != "LDG":
            registers = {"src": (builder.register(2), builder.register(4))}
        builder.add(op, stream=ref, bytes=rng.choice([128, 512]), by=by, **registers)


def cp_async(context: Context, builder: RoleBuilder) -> None:
    """Groups of asynchronous copies and a wait for them."""
    rng = context.rng
    stream = context.stream("load", 4096)
    for _ in range(rng.randrange(1, 3)):
        for part in range(rng.randrange(0, 4)):
            ref = StreamRef(name=stream, part=part, parts=8, part_by_rank=True, rank_stride=rng.choice([1, 4]))
            builder.add("LDGSTS", src=(builder.register(2),), stream=ref, bytes=512)
        builder.add("LDGDEPBAR")
    builder.add("DEPBAR", pending=rng.randrange(0, 3))


def bulk_store(context: Context, builder: RoleBuilder) -> None:
    """Bulk stores in groups by one warp."""
    rng = context.rng
    by: By = rng.choice(["role", "role", "warp"])
    for _ in range(rng.randrange(1, 3)):
        op = rng.choice(["UTMASTG", "UTMAREDG"])
        ref = StreamRef(name=context.stream(DIRECTIONS[op], 3000))
        builder.add(op, stream=ref, bytes=rng.choice([1024, 3000]), by=by)
    builder.add("UTMACMDFLUSH", by=by)
    if rng.random() < 0.7:
        builder.add("UTMADEPBAR", pending=rng.randrange(0, 2), by=by)


def wgmma(context: Context, builder: RoleBuilder) -> None:
    """Warp-group matrix instructions, committed and awaited."""
    if not builder.is_warp_group:
        return
    rng = context.rng
    builder.add("WARPGROUP.ARRIVE")
    for _ in range(rng.randrange(1, 6)):
        form = rng.choice(["ss", "rs"])
        dtype = rng.choice(["fp16", "bf16", "fp8_e4m3", "tf32"])
        src = (builder.register(4),) if form == "rs" else ()
        op = "QGMMA" if dtype == "fp8_e4m3" else "HGMMA"
        shape = (64, rng.choice([8, 64, 128]), 32 if op == "QGMMA" else 16)
        builder.add(op, dst=builder.register(4), src=src, shape=shape, form=form, dtype=dtype)
    builder.add("WARPGROUP.COMMIT")
    if rng.random() < 0.8:
        builder.add("WARPGROUP.DEPBAR", pending=rng.randrange(0, 2))


def tensor_memory(context: Context, builder: RoleBuilder) -> None:
    """Tensor-memory loads and stores."""
    for _ in range(context.rng.randrange(1, 4)):
        op = context.rng.choice(["LDTM", "STTM"])
        builder.add(op, dst=builder.register(4) if op == "LDTM" else None, bytes=context.rng.choice([512, 4096]))


def named_barrier(context: Context) -> None:
    """Some roles meet at a named barrier, or two roles take turns."""
    rng = context.rng
    if not context.named_barriers_left(2):
        return
    members = rng.sample(context.builders, rng.randrange(1, len(context.builders) + 1))
    members = [b for b in members if b.leader_only == members[0].leader_only]
    warps = sum(b.warps for b in members)
    first = context.named_barriers
    context.named_barriers += 2
    if len(members) == 2 and rng.random() < 0.6:
        a, b = members
        a.add("BAR.ARV", barrier_id=first, warps=warps)
        b.add("BAR.SYNC", barrier_id=first, warps=warps)
        b.arithmetic(rng.randrange(0, 3))
        b.add("BAR.ARV", barrier_id=first + 1, warps=warps)
        a.add("BAR.SYNC", barrier_id=first + 1, warps=warps)
        return
    for member in members:
        member.add("BAR.SYNC", barrier_id=first, warps=warps)


def cluster_barrier(context: Context) -> None:
    """All warps of the cluster meet."""
    if context.cluster_size == 1 and context.rng.random() < 0.7:
        return
    for builder in context.builders:
        builder.instructions.append(context.cluster_sync())


def semaphore(context: Context) -> None:
    """Each item waits for the one before it; once a program, because the count is not reset."""
    if context.semaphore_used or context._loops:
        return
    context.semaphore_used = True
    waiter, releaser = context.rng.choice(context.builders), context.rng.choice(context.builders)
    mark = context.fresh_mark()
    ctas = 1 if releaser.leader_only else context.cluster_size
    waiter.branch("SKIP", mark, attribute="has_previous")
    waiter.add("SEM.ACQUIRE", semaphore="previous", pending=releaser.warps * ctas)
    waiter.mark(mark)
    waiter.add("NOP")
    releaser.add("SEM.RELEASE", semaphore="semaphore")


def tma_ring(context: Context) -> None:
    """A producer fills stages by bulk copies, consumers free them; with multicast all CTAs fill all."""
    rng = context.rng
    candidates = [b for b in context.builders if not b.leader_only]
    if len(candidates) < 2 or not context.named_barriers_left(len(candidates)):
        return
    producer, *rest = rng.sample(candidates, len(candidates))
    consumers = rest[: rng.randrange(1, len(rest) + 1)]
    multicast = context.cluster_size > 1 and rng.random() < 0.6
    ctas = context.cluster_size if multicast else 1
    by: By = rng.choice(["warp", "group", "role"])
    arriving = {"warp": lambda b: b.warps, "group": lambda b: -(-b.warps // 4), "role": lambda b: 1}[by]
    ring, offset = context.ring(), rng.choice([0, 0, 1])
    full = BarrierRef(name=context.barrier(ring, 1), ring=ring, offset=offset)
    empty_name = context.barrier(ring, ctas * sum(map(arriving, consumers)))
    copies, amount = rng.randrange(1, 3), rng.choice([256, 2048, 5000])
    producer.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=empty_name, ring=ring, flip=True))
    context.gather(producer)
    producer.add("SYNCS.EXPECT", barrier=full, bytes=copies * amount * ctas, by="role")
    for copy in range(copies):
        stream = context.stream("load", amount * ctas, multicast=ctas)
        last = copy == copies - 1
        ref = StreamRef(name=stream, parts=ctas, offset=rng.choice([0, 1]))
        advance = (ring,) if last else ()
        producer.add("UTMALDG", stream=ref, barrier=full, bytes=amount, ctas=ctas, by="role", advance=advance)
    for consumer in consumers:
        consumer.add("SYNCS.TRYWAIT", barrier=full)
        rng.choice([wgmma, shared_access, arithmetic])(context, consumer)
        if by != "warp":
            context.gather(consumer)
        release = BarrierRef(name=empty_name, ring=ring, cta="all" if multicast else "own")
        consumer.add("SYNCS.ARRIVE", barrier=release, by=by, advance=(ring,))


def tcgen05_ring(context: Context) -> None:
    """One warp issues tcgen05.mma and commits; another role reads tensor memory and hands the buffer back."""
    rng = context.rng
    plain = [b for b in context.builders if not b.leader_only]
    leaders = [b for b in context.builders if b.leader_only]
    pair = context.cluster_size == 2 and bool(leaders) and bool(plain)
    if (not pair and len(plain) < 2) or not context.named_barriers_left(1):
        return
    issuer = rng.choice(leaders if pair else plain)
    reader = rng.choice([b for b in plain if b is not issuer])
    ctas = 2 if pair else 1
    ring = context.ring()
    full_name, empty_name = context.barrier(ring, 1), context.barrier(ring, reader.warps * ctas)
    issuer.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=empty_name, ring=ring, flip=True))
    context.gather(issuer)
    for _ in range(rng.randrange(1, 5)):
        m = rng.choice([128, 256]) if pair else rng.choice([64, 128])
        dtype = rng.choice(["fp16", "fp8_e4m3"])
        form = rng.choice(["ss", "ts"])
        shape = (m, rng.choice([32, 128]), 32)
        issuer.add("UTCHMMA", shape=shape, form=form, dtype=dtype, ctas=ctas, by="role")
    full = BarrierRef(name=full_name, ring=ring, cta="all" if pair else "own")
    issuer.add("UTCBAR", barrier=full, by="role", advance=(ring,))
    reader.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=full_name, ring=ring))
    tensor_memory(context, reader)
    back = BarrierRef(name=empty_name, ring=ring, cta="leader" if pair else "own")
    reader.add("SYNCS.ARRIVE", barrier=back, advance=(ring,))


def pair_load_ring(context: Context) -> None:
    """Producers of both CTAs of a pair load for the leader, whose warp consumes and frees the stages of both."""
    rng = context.rng
    plain = [b for b in context.builders if not b.leader_only]
    leaders = [b for b in context.builders if b.leader_only]
    if context.cluster_size != 2 or not plain or not leaders or not context.named_barriers_left(2):
        return
    producer, consumer = rng.choice(plain), rng.choice(leaders)
    ring, amount = context.ring(), rng.choice([512, 3000])
    full_name, empty_name = context.barrier(ring, 2), context.barrier(ring, 1)
    full = BarrierRef(name=full_name, ring=ring, cta="leader")
    producer.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=empty_name, ring=ring, flip=True))
    context.gather(producer)
    producer.add("SYNCS.EXPECT", barrier=full, bytes=amount, by="role")
    ref = StreamRef(name=context.stream("load", amount))
    producer.add("UTMALDG", stream=ref, barrier=full, bytes=amount, by="role", advance=(ring,))
    consumer.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=full_name, ring=ring))
    context.gather(consumer)
    consumer.add("UTCHMMA", shape=(256, 64, 16), form="ss", dtype="bf16", ctas=2, by="role")
    empty = BarrierRef(name=empty_name, ring=ring, cta="all")
    consumer.add("UTCBAR", barrier=empty, by="role", advance=(ring,))


def pair_exchange(context: Context) -> None:
    """Each CTA of a pair copies into the shared memory of the other one, whose warps hand the place back."""
    rng = context.rng
    plain = [b for b in context.builders if not b.leader_only]
    if context.cluster_size % 2 or not plain or not context.named_barriers_left(2):
        return
    sender, reader = rng.choice(plain), rng.choice(plain)
    ring, amount = context.ring(), rng.choice([256, 3000, 16384])
    full_name, empty_name = context.barrier(ring, 1), context.barrier(ring, reader.warps)
    sender.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=empty_name, ring=ring, flip=True))
    context.gather(sender)
    full = BarrierRef(name=full_name, ring=ring, cta="peer")
    copies = rng.randrange(1, 3)
    sender.add("SYNCS.EXPECT", barrier=full, bytes=copies * amount, by="role")
    for copy in range(copies):
        advance = (ring,) if copy == copies - 1 and sender is not reader else ()
        sender.add("UBLKCP.S.S", barrier=full, bytes=amount, by="role", advance=advance)
    reader.add("SYNCS.TRYWAIT", barrier=BarrierRef(name=full_name, ring=ring))
    shared_access(context, reader)
    reader.add("SYNCS.ARRIVE", barrier=BarrierRef(name=empty_name, ring=ring, cta="peer"), advance=(ring,))


LOCAL_STEPS: list[Callable[[Context, RoleBuilder], None]] = [
    arithmetic,
    arithmetic,
    inner_loop,
    skipped,
    shared_access,
    global_access,
    cp_async,
    bulk_store,
    wgmma,
    tensor_memory,
]
SHARED_STEPS: list[Callable[[Context], None]] = [
    named_barrier,
    cluster_barrier,
    semaphore,
    tma_ring,
    tma_ring,
    tcgen05_ring,
    pair_load_ring,
]
