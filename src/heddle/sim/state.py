"""Build the engine's flat state (`core.layout`): records of SMs, warps, CTAs, clusters, warp groups, mbarriers.

Which clusters are simulated depends on the mode: all of the chip, or those of the launch plan's representative group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle.errors import UserError
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import Role, WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.buffers import LINE_WORDS, zeros
from heddle.sim.core import layout as c
from heddle.sim.core.layout_ideal import H_PHASES
from heddle.sim.launch import LaunchPlan
from heddle.sim.state_phases import phase_roots, rings_asked

Array = NDArray[np.int64]
SCHEDULES = {"static": c.SCHEDULE_STATIC, "launch": c.SCHEDULE_LAUNCH, "dynamic": c.SCHEDULE_DYNAMIC}
EVENTS_PER_WARP = 512  # room in the event heap; only what is used costs memory


@dataclass(slots=True, kw_only=True)
class Extent:
    """Addresses and sizes of the regions of `M`, and what is simulated."""

    groups: int  # SM groups simulated
    sms: int
    slots: int  # CTA slots an SM that are in use
    warps_per_cta: int
    bits: int  # warp contexts a subpartition
    group_records: int  # warp groups a CTA
    mbarriers: int  # a CTA
    semaphores: int
    lines: int
    clusters: list[tuple[int, int]]  # (simulated group, slot) of each resident cluster
    words: int = 0
    base: dict[str, int] = field(default_factory=dict)

    def place(self, name: str, words: int) -> int:
        """Reserve a region, from a cache line on."""
        self.base[name] = -(-self.words // LINE_WORDS) * LINE_WORDS
        self.words = self.base[name] + words
        return self.base[name]

    def sm(self, sm: int) -> int:
        """Address of an SM record."""
        return self.base["sms"] + sm * c.S_WORDS

    def sub(self, sm: int, subpartition: int) -> int:
        """Address of a subpartition record."""
        return self.sm(sm) + c.S_QUARTERS + subpartition * c.Q_WORDS

    def warp(self, sm: int, slot: int, warp: int) -> int:
        """Address of a warp context; those of a subpartition lie in the order of their bits."""
        bit = slot * -(-self.warps_per_cta // c.SUBPARTITIONS) + warp // c.SUBPARTITIONS
        return self.base["warps"] + ((sm * c.SUBPARTITIONS + warp % c.SUBPARTITIONS) * self.bits + bit) * c.W_WORDS

    def cta(self, sm: int, slot: int) -> int:
        """Address of a CTA record."""
        return self.base["ctas"] + (sm * self.slots + slot) * c.C_WORDS

    def contexts(self) -> list[tuple[int, int, int]]:
        """Return (SM, slot, warp) of all contexts, SM by SM and slot by slot."""
        return [
            (sm, slot, warp)
            for sm in range(self.sms)
            for slot in range(self.slots)
            for warp in range(self.warps_per_cta)
        ]


def _uses(program: WarpProgram, *units: Unit) -> bool:
    """Tell whether the program has an instruction of one of the units."""
    return any(OPCODES[instruction.op].unit in units for instruction in program.instructions)


def _semaphores(program: WarpProgram) -> int:
    """Return how many semaphores the work items name."""
    names = {i.semaphore for i in program.instructions if i.semaphore is not None}
    columns = [program.work.attributes.index(name) for name in names if name in program.work.attributes]
    return max((int(program.work.items[:, column].max()) + 1 for column in columns), default=0)


def extent_of(program: WarpProgram, plan: LaunchPlan, mode: str) -> Extent:
    """Return the regions of the state of a program on the simulated part of the chip."""
    chip = mode == "chip"
    group_range = range(plan.used_groups) if chip else range(plan.representative, plan.representative + 1)
    clusters = [
        (cluster % plan.groups - group_range.start, cluster // plan.groups)
        for cluster in range(plan.clusters)
        if cluster % plan.groups in group_range
    ]
    warps = program.warps_per_cta
    slots = 1 + max(slot for _, slot in clusters)
    bits = slots * -(-warps // c.SUBPARTITIONS)
    extent = Extent(
        groups=len(group_range),
        sms=len(group_range) * plan.cluster_size,
        slots=slots,
        warps_per_cta=warps,
        bits=bits,
        group_records=warps // 4 if _uses(program, Unit.WGMMA, Unit.WGMMA_WAIT, Unit.WGMMA_SIGNAL) else 0,
        mbarriers=sum(barrier.count for barrier in program.barriers),
        semaphores=_semaphores(program),
        lines=-(-len(program.instructions) // 8),
        clusters=clusters,
    )
    if bits > c.CONTEXTS:
        raise UserError(f"{program.name}: {bits} warps a subpartition; the engine takes up to {c.CONTEXTS}")
    _place_regions(extent, program, plan)
    return extent


def _place_regions(extent: Extent, program: WarpProgram, plan: LaunchPlan) -> None:
    """Lay the regions out one after the other."""
    from heddle.sim.state_fiber import place_fiber

    ctas = extent.sms * extent.slots
    extent.place("header", c.H_WORDS)
    extent.place("next", extent.sms)
    extent.place("sms", extent.sms * c.S_WORDS)
    extent.place("warps", extent.sms * c.SUBPARTITIONS * extent.bits * c.W_WORDS)
    extent.place("ctas", ctas * c.C_WORDS)
    extent.place("clusters", extent.groups * extent.slots * c.K_WORDS)
    extent.place("groups", ctas * extent.group_records * c.G_WORDS)
    extent.place("mbarriers", ctas * extent.mbarriers * c.B_WORDS)
    extent.place("phases", extent.mbarriers + c.RINGS + len(program.roles))
    place_fiber(extent, program)
    extent.place("semaphores", extent.semaphores * c.A_WORDS)
    extent.place("lines", extent.sms * extent.lines)
    extent.place("contexts", ctas * extent.warps_per_cta)
    extent.place("items", program.work.items.size)
    extent.place("item_done", len(program.work.items))
    extent.place("queue", len(program.work.items) + len(extent.clusters))
    extent.place("pcs", len(program.instructions) * c.REASONS)
    extent.place("heap", extent.sms * (extent.slots * extent.warps_per_cta * EVENTS_PER_WARP + 64) * c.E_WORDS)


def _fill_header(state: Array, extent: Extent, program: WarpProgram, machine: Machine, plan: LaunchPlan) -> None:
    """Write addresses, sizes and the machine's constants."""
    base = extent.base
    state[c.H_SMS], state[c.H_SM], state[c.H_NEXT] = extent.sms, base["sms"], base["next"]
    state[c.H_CLUSTER_SIZE], state[c.H_SLOTS] = plan.cluster_size, extent.slots
    state[c.H_ATTRIBUTES], state[c.H_ITEMS] = program.work.items.shape[1], base["items"]
    state[c.H_ITEM_COUNT], state[c.H_ITEM_DONE] = len(program.work.items), base["item_done"]
    state[c.H_SCHEDULE], state[c.H_GRID] = SCHEDULES[plan.schedule], plan.clusters
    state[c.H_QUEUE] = base["queue"]
    state[c.H_HEAP] = base["heap"]
    state[c.H_HEAP_CAPACITY] = (extent.words - base["heap"]) // c.E_WORDS
    state[c.H_PCS] = base["pcs"]
    state[c.H_BANKS] = machine.register_banks
    state[c.H_LSU_DEPTH] = machine.lsu_queue_depth
    state[c.H_WGMMA_DEPTH] = machine.wgmma_queue_depth
    state[c.H_TCGEN05_DEPTH] = machine.tcgen05_queue_depth
    state[c.H_SEMAPHORES], state[c.H_SEMAPHORE_COUNT] = base["semaphores"], extent.semaphores
    state[c.H_MBARRIERS], state[c.H_PC_WORDS] = extent.mbarriers, len(program.instructions) * c.REASONS
    state[c.H_GROUPS_PER_CTA], state[c.H_WARPS_PER_CTA] = extent.group_records, extent.warps_per_cta
    state[c.H_CONTEXTS], state[c.H_LINES] = base["contexts"], extent.lines
    state[c.H_WARPS], state[c.H_CTAS], state[c.H_CLUSTERS] = base["warps"], base["ctas"], base["clusters"]
    state[c.H_ROOTS] = base["phases"]
    phases = phase_roots(program) + rings_asked(program)
    state[base["phases"] : base["phases"] + len(phases)] = phases
    state[c.H_CLUSTER_COUNT], state[c.H_MB] = extent.groups * extent.slots, base["mbarriers"]
    state[c.H_WARP_COUNT] = extent.sms * c.SUBPARTITIONS * extent.bits
    state[H_PHASES] = 1
    state[c.H_FULL_LOG] = extent.sms * (c.SUBPARTITIONS * (plan.cluster_size + 3 + c.RUNS) + 1)


def _fill_machine(state: Array, machine: Machine, program: WarpProgram) -> None:
    """Write the machine's latencies."""
    ticks = 1 << c.TICK_BITS
    state[c.H_SLACK] = machine.shared_async_slack_cycles * ticks
    state[c.H_SWITCH] = machine.wgmma_switch_cycles * ticks
    state[c.H_TAIL] = machine.wgmma_tail_cycles * ticks
    state[c.H_ARRIVE] = max(1, machine.mbarrier_arrive_cycles)
    state[c.H_REMOTE] = machine.cluster_remote_cycles
    state[c.H_LAUNCH] = machine.cta_launch_cycles
    state[c.H_NAMED], state[c.H_NAMED_WARP] = machine.named_barrier_cycles, machine.named_barrier_cycles_per_warp
    state[c.H_CLUSTER_BARRIER] = machine.cluster_barrier_cycles
    state[c.H_NEAR] = max(1, machine.l2_near_latency_cycles)
    state[c.H_RINGS] = _barrier_rings(program)
    state[c.H_DEPTH : c.H_DEPTH + len(program.rings)] = [ring.depth for ring in program.rings]
    state[c.H_SHARE] = machine.tensor_port_share > 0 and _uses(program, Unit.WGMMA)
    for reads in range(c.MOST_READS):
        state[c.H_READS + reads] = round(ticks * (reads / (1.0 - machine.tensor_port_share)))


def _barrier_rings(program: WarpProgram) -> int:
    """Return the mask of rings that choose an mbarrier somewhere."""
    used = {i.barrier.ring for i in program.instructions if i.barrier is not None and i.barrier.ring is not None}
    return sum(1 << number for number, ring in enumerate(program.rings) if ring.name in used)


def _fill_sms(state: Array, extent: Extent, plan: LaunchPlan) -> None:
    """Write the SM and subpartition records."""
    state[extent.base["next"] : extent.base["next"] + extent.sms] = c.INF
    for sm in range(extent.sms):
        at = extent.sm(sm)
        state[at + c.S_INDEX] = sm
        state[at + c.S_RANK] = sm % plan.cluster_size
        state[at + c.S_LINES] = extent.base["lines"] + sm * extent.lines
        for subpartition in range(c.SUBPARTITIONS):
            sub = extent.sub(sm, subpartition)
            state[sub + c.Q_NEXT] = state[sub + c.Q_FAR_NEXT] = c.INF
            state[sub + c.Q_LAST] = -1
            state[sub + c.Q_LAST_ROW] = -1000
            state[sub + c.Q_WARPS] = (
                extent.base["warps"] + (sm * c.SUBPARTITIONS + subpartition) * extent.bits * c.W_WORDS
            )
            state[sub + c.Q_SM], state[sub + c.Q_INDEX] = at, subpartition


def _fill_ctas(state: Array, extent: Extent, program: WarpProgram, plan: LaunchPlan) -> None:
    """Write cluster slots, CTAs, warp groups and mbarriers."""
    for group in range(extent.groups):
        for slot in range(extent.slots):
            cluster = extent.base["clusters"] + (group * extent.slots + slot) * c.K_WORDS
            state[cluster + c.K_SM] = extent.sm(group * plan.cluster_size)
            state[cluster + c.K_SLOT] = slot
            state[cluster + c.K_CTAS] = extent.cta(group * plan.cluster_size, slot)
            for rank in range(plan.cluster_size):
                _fill_cta(state, extent, program, group * plan.cluster_size + rank, slot, rank, cluster)


def _fill_cta(state: Array, extent: Extent, program: WarpProgram, sm: int, slot: int, rank: int, cluster: int) -> None:
    """Write one CTA record with its warp groups, mbarriers and warps."""
    cta, number = extent.cta(sm, slot), sm * extent.slots + slot
    mbarriers = extent.base["mbarriers"] + number * extent.mbarriers * c.B_WORDS
    state[cta + c.C_MBARRIERS] = mbarriers
    state[cta + c.C_CLUSTER], state[cta + c.C_RANK] = cluster, rank
    state[cta + c.C_SM], state[cta + c.C_SLOT] = extent.sm(sm), slot
    state[cta + c.C_GROUPS] = extent.base["groups"] + number * extent.group_records * c.G_WORDS
    state[cta + c.C_FIRST] = number * extent.warps_per_cta
    at = mbarriers
    for index, barrier in enumerate(program.barriers):
        for element in range(barrier.count):
            state[at + c.B_COUNT], state[at + c.B_INDEX] = barrier.arrivals, index
            state[at + c.B_ELEMENT], state[at + c.B_CTA] = element, cta
            at += c.B_WORDS
    for index, role in enumerate(program.roles):
        for warp in range(role.first_warp, role.first_warp + role.warps):
            _fill_warp(state, extent, role, index, sm, slot, warp, rank, cluster)


def _fill_warp(
    state: Array,
    extent: Extent,
    role: Role,
    role_index: int,
    sm: int,
    slot: int,
    warp: int,
    rank: int,
    cluster: int,
) -> None:
    """Write one warp context."""
    at, cta = extent.warp(sm, slot, warp), extent.cta(sm, slot)
    state[extent.base["contexts"] + (sm * extent.slots + slot) * extent.warps_per_cta + warp] = at
    in_role = warp - role.first_warp
    state[at + c.W_OFF] = (in_role % 4 != 0) << c.BY_GROUP | (in_role != 0) << c.BY_ROLE
    state[at + c.W_SUB] = extent.sub(sm, warp % c.SUBPARTITIONS)
    state[at + c.W_BIT] = (at - state[state[at + c.W_SUB] + c.Q_WARPS]) // c.W_WORDS
    state[at + c.W_SM], state[at + c.W_CTA], state[at + c.W_CLUSTER] = extent.sm(sm), cta, cluster
    state[at + c.W_RANK], state[at + c.W_CTA_RANK] = in_role, rank
    state[at + c.W_WARP], state[at + c.W_ROLE], state[at + c.W_SLOT] = warp, role_index, slot
    state[at + c.W_ENTRY] = role.entry * c.P_WORDS
    state[at + c.W_ABSENT] = role.leader_only and rank != 0
    if warp // 4 < extent.group_records:
        group = state[cta + c.C_GROUPS] + warp // 4 * c.G_WORDS
        state[at + c.W_GROUP] = group
        state[group + c.G_WARPS + warp % 4] = at


def _fill_work(state: Array, extent: Extent, program: WarpProgram, plan: LaunchPlan, mode: str) -> None:
    """Write work items and the queue of those that are handed out."""
    items = program.work.items
    state[extent.base["items"] : extent.base["items"] + items.size] = items.reshape(-1)
    queue = plan.order if mode == "chip" else plan.group_items(plan.representative)
    state[extent.base["queue"] : extent.base["queue"] + len(queue)] = queue
    state[c.H_QUEUE_COUNT] = len(queue)
    state[c.H_QUEUE_NEXT] = len(extent.clusters)
    state[c.H_ORDINALS] = len(plan.group_clusters(0 if mode == "chip" else plan.representative))


def build_state(program: WarpProgram, machine: Machine, plan: LaunchPlan, mode: str) -> tuple[Array, Extent]:
    """Return the state before the first launch. Raises UserError for what the engine has no room for."""
    from heddle.sim.prepare import fiber_rows
    from heddle.sim.state_fiber import fill_fiber

    if machine.subpartitions != c.SUBPARTITIONS:
        raise UserError(f"{machine.name} has {machine.subpartitions} subpartitions; the engine takes {c.SUBPARTITIONS}")
    for name in ("lsu_queue_depth", "wgmma_queue_depth", "tcgen05_queue_depth"):
        if not 0 <= getattr(machine, name) <= c.QUEUE_SLOTS:
            raise UserError(f"{name} = {getattr(machine, name)}; the engine takes 0 to {c.QUEUE_SLOTS}")
    if machine.wgmma_queue_depth > c.MATRIX_DEPTH:
        raise UserError(f"wgmma_queue_depth = {machine.wgmma_queue_depth}; the engine takes up to {c.MATRIX_DEPTH}")
    extent = extent_of(program, plan, mode)
    state = zeros(extent.words)
    _fill_header(state, extent, program, machine, plan)
    _fill_machine(state, machine, program)
    _fill_sms(state, extent, plan)
    _fill_ctas(state, extent, program, plan)
    fill_fiber(state, extent, program, machine, fiber_rows(program))
    _fill_work(state, extent, program, plan, mode)
    return state, extent


def first_items(extent: Extent, plan: LaunchPlan, mode: str) -> list[tuple[int, int, int]]:
    """Return (address of the cluster slot, work item, ordinal) of each cluster that is launched at cycle 0."""
    first = []
    for group, slot in extent.clusters:
        cluster = slot * plan.groups + (group if mode == "chip" else plan.representative)
        address = extent.base["clusters"] + (group * extent.slots + slot) * c.K_WORDS
        if mode == "chip":
            ordinal = slot if plan.schedule == "static" else cluster
            item = int(plan.order[cluster])
        else:
            ordinal = slot
            item = int(plan.group_items(plan.representative)[slot])
        first.append((address, item, ordinal))
    return first
