"""Checks of one instruction at a time: the fields that its unit needs, and names and numbers that it refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.verify_problem import in_range, unit_of, unknown
from heddle.ir.warp import LOOP_LEVELS, SCOREBOARDS, BarrierRef, Count, Instruction, StreamRef, WarpProgram

MAX_STALL = 15  # the field has four bits
MAX_PENDING = 15  # groups that a wait may leave outstanding
NAMED_BARRIERS = 16  # a CTA
GROUP_INSTRUCTIONS = {  # all warps of the role execute these together, so that none may be predicated off
    Unit.WGMMA,
    Unit.WGMMA_ARRIVE,
    Unit.WGMMA_COMMIT,
    Unit.WGMMA_WAIT,
    Unit.BARRIER_SYNC,
    Unit.BARRIER_ARRIVE,
    Unit.CLUSTER_SYNC,
    Unit.LOOP,
    Unit.SKIP,
    Unit.NEXT_ITEM,
    Unit.EXIT,
    Unit.SPLIT,
    Unit.REJOIN,
    Unit.YIELD,
}
_DIRECTIONS = {"STG": "store", "RED": "reduce", "UTMASTG": "store", "UTMAREDG": "reduce"}  # else load

Check = Callable[[Instruction, int, WarpProgram], Iterator[str]]


def field_problems(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    """Yield what is wrong with the fields of the instruction at `pc`."""
    unit = unit_of(instruction)
    if unit is None:
        yield from (problem.message for problem in unknown("opcode", instruction.op, OPCODES))
        return
    yield from _control(instruction)
    yield from _references(instruction, program)
    for check in _CHECKS.get(unit, ()):
        yield from check(instruction, pc, program)
    if instruction.by != "warp" and unit in GROUP_INSTRUCTIONS:
        yield f"by={instruction.by}: all warps of a role execute {instruction.op} together; allowed: by=warp"


def _control(instruction: Instruction) -> Iterator[str]:
    control = instruction.control
    if not 0 <= control.stall <= MAX_STALL:
        yield f"stall count {control.stall}; allowed: 0 to {MAX_STALL}"
    set_ones = [k for k in (control.write_barrier, control.read_barrier) if k is not None]
    bad = sorted(k for k in {*control.wait, *set_ones} if not 0 <= k < SCOREBOARDS)
    if bad:
        yield f"dependence counter {bad[0]}; allowed: 0 to {SCOREBOARDS - 1}"


def _references(instruction: Instruction, program: WarpProgram) -> Iterator[str]:
    rings = [ring.name for ring in program.rings]
    for ring in instruction.advance:
        yield from (problem.message for problem in unknown("ring", ring, rings))
    if instruction.barrier is not None:
        yield from _barrier_reference(instruction.barrier, program)
    if instruction.stream is not None:
        yield from _stream_reference(instruction.stream, program)
    if instruction.effect is not None and not 0 <= instruction.effect < len(program.effects):
        yield f"effect {instruction.effect}; there are {len(program.effects)}"
    if instruction.source and instruction.source >= len(program.sources):
        yield f"source {instruction.source}; there are {len(program.sources)}"
    if not 0 <= instruction.level < LOOP_LEVELS:
        yield f"loop level {instruction.level}; allowed: 0 to {LOOP_LEVELS - 1}"


def _barrier_reference(reference: BarrierRef, program: WarpProgram) -> Iterator[str]:
    counts = {barrier.name: barrier.count for barrier in program.barriers}
    depths = {ring.name: ring.depth for ring in program.rings}
    yield from (problem.message for problem in unknown("barrier", reference.name, counts))
    if reference.ring is not None:
        yield from (problem.message for problem in unknown("ring", reference.ring, depths))
    if reference.cta == "peer" and program.cluster_size % 2:
        yield f"the barrier of the peer in clusters of {program.cluster_size}; needs pairs of CTAs"
    count = counts.get(reference.name)
    used = reference.offset + 1 if reference.ring is None else depths.get(reference.ring, 1)
    if count is not None and not (reference.offset >= 0 and used <= count):
        yield f"element {used - 1} of barrier {reference.name!r}, which has {count} elements"


def _stream_reference(reference: StreamRef, program: WarpProgram) -> Iterator[str]:
    streams = {stream.name: stream for stream in program.streams}
    yield from (problem.message for problem in unknown("stream", reference.name, streams))
    if not 0 <= reference.part < max(1, reference.parts):
        yield f"part {reference.part} of {reference.parts} of stream {reference.name!r}"
    multicast = streams[reference.name].multicast if reference.name in streams else 1
    if reference.parts < 1 or reference.parts % multicast:
        yield f"{reference.parts} parts of stream {reference.name!r}; needs a multiple of its multicast {multicast}"


def _needs_bytes(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    if instruction.bytes < 1:
        yield f"{instruction.op} needs bytes, 1 or more; got {instruction.bytes}"


def _needs_ways(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    if instruction.conflict_ways < 1:
        yield f"conflict_ways = {instruction.conflict_ways}; needs 1 or more (1: no conflict)"


def _needs_stream(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    if instruction.stream is None:
        yield f"{instruction.op} needs a stream"
        return
    direction = _DIRECTIONS.get(instruction.op, "load")
    stream = next((stream for stream in program.streams if stream.name == instruction.stream.name), None)
    if stream is not None and stream.direction != direction:
        yield f"{instruction.op} on stream {stream.name!r}, whose direction is {stream.direction}; needs {direction}"


def _needs_barrier(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    if instruction.barrier is None:
        yield f"{instruction.op} needs a barrier"
    elif unit_of(instruction) is Unit.MBARRIER_WAIT and instruction.barrier.cta != "own":
        yield f"a wait on the barrier of CTA {instruction.barrier.cta!r}; a warp can wait on its own CTA's only"


def _needs_landing(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    """A copy signals the barrier of the CTA in which it lands, or of the leader."""
    peer = unit_of(instruction) is Unit.BULK_PEER
    if instruction.barrier is not None and (instruction.barrier.cta == "peer") != peer:
        wanted = "cta=peer" if peer else "own, leader or all"
        yield f"{instruction.op} signals the barrier of CTA {instruction.barrier.cta!r}; needs {wanted}"


def _needs_matrix(forms: tuple[str, ...]) -> Check:
    def check(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
        if instruction.shape is None or min(instruction.shape) < 1:
            yield f"{instruction.op} needs a shape m, n, k of 1 or more; got {instruction.shape}"
        if instruction.form not in forms:
            yield f"form {instruction.form!r} of {instruction.op}; allowed: {', '.join(forms)}"
        if not instruction.dtype:
            yield f"{instruction.op} needs a dtype"

    return check


def _needs_ctas(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    allowed = {1, program.cluster_size}
    if unit_of(instruction) is Unit.TCGEN05_MMA:
        allowed = {1, 2} if program.cluster_size % 2 == 0 else {1}
    if instruction.ctas not in allowed:
        given = ", ".join(map(str, sorted(allowed)))
        yield f"ctas = {instruction.ctas} in clusters of {program.cluster_size}; allowed: {given}"


def _needs_warps(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    if instruction.warps < 1:
        yield f"{instruction.op} needs warps, 1 or more; got {instruction.warps}"
    if not 0 <= instruction.barrier_id < NAMED_BARRIERS:
        yield f"named barrier {instruction.barrier_id}; allowed: 0 to {NAMED_BARRIERS - 1}"


def _needs_pending(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    most = MAX_PENDING if unit_of(instruction) is not Unit.SEM_ACQUIRE else None
    if instruction.pending < 0 or (most is not None and instruction.pending > most):
        yield f"pending = {instruction.pending}; allowed: 0 {'and more' if most is None else f'to {most}'}"


def _needs_semaphore(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    yield from (p.message for p in unknown("item attribute", instruction.semaphore, program.work.attributes))


def _needs_target(backward: bool | None) -> Check:
    def check(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
        target = instruction.target
        if target is None or not in_range(target, program):
            yield f"branch to {target}; the code is from 0 to {len(program.instructions) - 1}"
        elif backward is not None and (target <= pc) != backward:
            yield f"branch to {target}; {instruction.op} jumps {'backward' if backward else 'forward'}"

    return check


def _needs_count(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    count: Count | None = instruction.count
    if count is None:
        yield f"{instruction.op} needs a count"
    elif count.attribute is not None:
        yield from (p.message for p in unknown("item attribute", count.attribute, program.work.attributes))
        if count.value:
            yield f"a count of both {count.value} and attribute {count.attribute!r}; give one"


def _needs_attribute(instruction: Instruction, pc: int, program: WarpProgram) -> Iterator[str]:
    yield from (p.message for p in unknown("item attribute", instruction.attribute, program.work.attributes))


_CHECKS: dict[Unit, tuple[Check, ...]] = {
    Unit.SHARED: (_needs_bytes, _needs_ways),
    Unit.GLOBAL: (_needs_bytes, _needs_stream),
    Unit.GROUP_WAIT: (_needs_pending,),
    Unit.WGMMA: (_needs_matrix(("ss", "rs")),),
    Unit.WGMMA_WAIT: (_needs_pending,),
    Unit.BULK_LOAD: (_needs_bytes, _needs_stream, _needs_barrier, _needs_ctas, _needs_landing),
    Unit.BULK_PEER: (_needs_bytes, _needs_barrier, _needs_landing),
    Unit.BULK_STORE: (_needs_bytes, _needs_stream),
    Unit.BULK_WAIT: (_needs_pending,),
    Unit.MBARRIER_EXPECT: (_needs_barrier,),
    Unit.MBARRIER_ARRIVE: (_needs_barrier,),
    Unit.MBARRIER_WAIT: (_needs_barrier,),
    Unit.BARRIER_SYNC: (_needs_warps,),
    Unit.BARRIER_ARRIVE: (_needs_warps,),
    Unit.CLUSTER_SYNC: (_needs_warps,),
    Unit.TCGEN05_MMA: (_needs_matrix(("ss", "ts")), _needs_ctas),
    Unit.TCGEN05_COMMIT: (_needs_barrier,),
    Unit.WGMMA_SIGNAL: (_needs_barrier,),
    Unit.TMEM_LOAD: (_needs_bytes,),
    Unit.TMEM_STORE: (_needs_bytes,),
    Unit.SEM_RELEASE: (_needs_semaphore,),
    Unit.SEM_ACQUIRE: (_needs_semaphore, _needs_pending),
    Unit.LOOP: (_needs_target(True), _needs_count),
    Unit.SKIP: (_needs_target(False), _needs_attribute),
    Unit.NEXT_ITEM: (_needs_target(None),),
    Unit.SPLIT: (_needs_target(False), _needs_count),
    Unit.REJOIN: (_needs_target(False),),
}
