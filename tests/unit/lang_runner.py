"""Executes a tile program role by role with NumPy: the plain meaning of every operation, without time.

Each role of each CTA is one thread that runs until it must wait. Copies and products take effect at once. Used by tests
to show that a kernel's protocol neither deadlocks nor computes wrong numbers before it is lowered.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np

from heddle.ir import tile
from heddle.ir.dtypes import NUMPY_NAMES, dtype_bytes


class Deadlock(Exception):
    """No thread can go on; the message names what each waits for."""


class Mbarrier:
    """One mbarrier: pending arrivals, pending bytes, completed phases."""

    def __init__(self, arrivals: int) -> None:
        self.count, self.arrived, self.bytes, self.phase = arrivals, 0, 0, 0

    def signal(self, arrivals: int = 0, expected: int = 0) -> None:
        self.arrived += arrivals
        self.bytes += expected
        assert self.arrived <= self.count, "more arrivals than declared"
        if self.arrived == self.count and self.bytes == 0:
            self.arrived, self.phase = 0, self.phase + 1


class Cta:
    """State of one CTA."""

    def __init__(self, program: tile.TileProgram, rank: int, peers: list[Cta]) -> None:
        self.rank, self.peers = rank, peers
        self.shared = {t.name: np.zeros((t.stages, t.rows, t.cols), _dtype(t.dtype)) for t in program.shared}
        self.registers = {t.name: np.full((t.rows, t.cols), np.nan, _dtype(t.dtype)) for t in program.registers}
        self.tmem = {t.name: np.full((t.stages, t.rows, t.cols), np.nan, "f4") for t in program.tensor_memory}
        self.barriers = {b.name: [Mbarrier(b.arrivals) for _ in range(b.count)] for b in program.barriers}
        self.named: dict[int, int] = defaultdict(int)
        self.named_rounds: dict[int, int] = defaultdict(int)


class Thread:
    """One role of one CTA: its ring positions, item and loop counters."""

    def __init__(self, runner: Runner, cta: Cta, role: tile.RoleBody, items: list[dict[str, int]]) -> None:
        self.runner, self.cta, self.role, self.items = runner, cta, role, items
        self.rings: dict[str, int] = defaultdict(int)
        self.loops: dict[str, int] = {}
        self.item: dict[str, int] = {}
        self.steps = self.run(role.body)

    def run(self, body: tuple[tile.Op, ...]) -> Iterator[str]:
        for op in body:
            if isinstance(op, tile.ForEachItem):
                for item in self.items:
                    self.item = item
                    yield from self.run(op.body)
            elif isinstance(op, tile.For):
                base = self.item[op.count.attribute] if op.count.attribute else op.count.value
                for counter in range(base + op.count.offset):
                    self.loops[op.name] = counter
                    yield from self.run(op.body)
            elif isinstance(op, tile.When):
                if self.item[op.attribute]:
                    yield from self.run(op.body)
            else:
                yield from getattr(self, f"do_{type(op).__name__}", self.nothing)(op)

    def nothing(self, op: tile.Op) -> Iterator[str]:
        yield from ()

    # places
    def stage(self, ring: str | None, ahead: int = 0) -> int:
        return (self.rings[ring] + ahead) % self.runner.depth[ring] if ring else 0

    def box(self, ref: tile.SharedRef, cta: Cta | None = None) -> np.ndarray:
        stage = (cta or self.cta).shared[ref.tile][self.stage(ref.ring, ref.ahead)]
        return stage[ref.row : ref.row + ref.rows, ref.col : ref.col + ref.cols]

    def tensor_memory(self, ref: tile.TmemRef, cta: Cta | None = None) -> np.ndarray:
        stage = (cta or self.cta).tmem[ref.tile][self.stage(ref.ring)]
        return stage[ref.row : ref.row + ref.rows, ref.col : ref.col + ref.cols]

    def corner(self, ref: tile.GlobalRef) -> tuple[int, int]:
        counter = self.loops[ref.loop] + ref.ahead if ref.loop else 0
        row = (self.item[ref.row] if ref.row else 0) + counter * ref.row_step + ref.row_offset
        col = (self.item[ref.col] if ref.col else 0) + counter * ref.col_step + ref.col_offset
        return row + self.cta.rank * ref.cta_row, col + self.cta.rank * ref.cta_col

    def read(self, ref: tile.GlobalRef) -> np.ndarray:
        row, col = self.corner(ref)
        tensor = self.runner.tensors[ref.tensor]
        found = tensor[row : row + ref.rows, col : col + ref.cols]
        result = np.zeros((ref.rows, ref.cols), tensor.dtype)
        result[: found.shape[0], : found.shape[1]] = found
        return result

    def write(self, ref: tile.GlobalRef, value: np.ndarray, reduce: bool) -> None:
        row, col = self.corner(ref)
        target = self.runner.tensors[ref.tensor][row : row + ref.rows, col : col + ref.cols]
        inside = value[: target.shape[0], : target.shape[1]].astype(target.dtype)
        target[...] = target + inside if reduce else inside
        if not reduce:
            self.runner.written[ref.tensor][row : row + ref.rows, col : col + ref.cols] += 1

    def targets(self, use: tile.BarrierUse) -> list[Mbarrier]:
        ctas = {"own": [self.cta], "leader": [self.cta.peers[0]], "all": self.cta.peers}[use.cta]
        return [cta.barriers[use.name][self.stage(use.ring, use.ahead)] for cta in ctas]

    def until(self, ready: Any, what: str) -> Iterator[str]:
        while not ready():
            yield what

    # operations
    def do_TmaLoad(self, op: tile.TmaLoad) -> Iterator[str]:
        value = self.read(op.src)
        size = dtype_bytes(self.runner.dtypes[op.dst.tile])
        share = op.dst.rows // op.multicast
        part = slice(self.cta.rank * share, (self.cta.rank + 1) * share) if op.multicast > 1 else slice(None)
        for cta in self.cta.peers if op.multicast > 1 else [self.cta]:
            self.box(op.dst, cta)[part] = value[part]
            stage = self.stage(op.barrier.ring, op.barrier.ahead)
            owner = self.cta.peers[0] if op.barrier.cta == "leader" else cta
            owner.barriers[op.barrier.name][stage].signal(expected=-value[part].size * size)
        yield from ()

    def do_CpAsync(self, op: tile.CpAsync) -> Iterator[str]:
        self.box(op.dst)[...] = self.read(op.src)
        yield from ()

    def do_TmaStore(self, op: tile.TmaStore) -> Iterator[str]:
        self.write(op.dst, self.box(op.src), op.reduce)
        yield from ()

    def do_StoreGlobal(self, op: tile.StoreGlobal) -> Iterator[str]:
        self.write(op.dst, self.cta.registers[op.src][:, op.src_col : op.src_col + op.dst.cols], op.reduce)
        yield from ()

    def do_StoreShared(self, op: tile.StoreShared) -> Iterator[str]:
        self.box(op.dst)[...] = self.cta.registers[op.src][:, op.src_col : op.src_col + op.dst.cols]
        yield from ()

    def do_LoadGlobal(self, op: tile.LoadGlobal) -> Iterator[str]:
        self.cta.registers[op.dst][...] = self.read(op.src)
        yield from ()

    def do_LoadTensorMemory(self, op: tile.LoadTensorMemory) -> Iterator[str]:
        self.cta.registers[op.dst][...] = self.tensor_memory(op.src)
        yield from ()

    def do_Fill(self, op: tile.Fill) -> Iterator[str]:
        self.cta.registers[op.dst][...] = op.value
        yield from ()

    def do_Mma(self, op: tile.Mma) -> Iterator[str]:
        overwrite = op.accumulate is False
        if op.accumulate == "first_iteration":
            overwrite = self.loops[op.loop or ""] == 0
        pair = self.cta.peers if op.ctas > 1 else [self.cta]
        assert isinstance(op.a, tile.SharedRef)
        b = np.concatenate([self.box(op.b, cta).astype("f4") for cta in pair])
        for cta in pair:
            acc = self.tensor_memory(op.acc, cta) if isinstance(op.acc, tile.TmemRef) else cta.registers[op.acc]
            product = self.box(op.a, cta).astype("f4") @ b.T
            acc[...] = product if overwrite else acc + product
        yield from ()

    def do_Wait(self, op: tile.Wait) -> Iterator[str]:
        use = op.barrier
        barrier = self.targets(use)[0]
        round_ = (self.rings[use.ring] + use.ahead) // self.runner.depth[use.ring] if use.ring else 0
        yield from self.until(lambda: barrier.phase > round_ - use.flip, f"{use.name} at {op.where}")
        assert barrier.phase <= round_ - use.flip + 1, "the barrier has gone round since"

    def do_Arrive(self, op: tile.Arrive) -> Iterator[str]:
        count = {"warp": self.role.warps, "group": self.role.warps // 4, "role": 1}[op.by]
        for barrier in self.targets(op.barrier):
            barrier.signal(arrivals=count)
        yield from ()

    def do_Expect(self, op: tile.Expect) -> Iterator[str]:
        barrier = self.targets(op.barrier)[0]
        barrier.bytes += op.bytes
        barrier.signal(arrivals=1)
        yield from ()

    def do_MmaCommit(self, op: tile.MmaCommit) -> Iterator[str]:
        for barrier in self.targets(op.barrier) if op.barrier else []:
            barrier.signal(arrivals=1)
        yield from ()

    def do_Advance(self, op: tile.Advance) -> Iterator[str]:
        for ring in op.rings:
            self.rings[ring] += 1
        yield from ()

    def do_Sync(self, op: tile.Sync) -> Iterator[str]:
        yield from self.meet(self.cta, op.id, op.warps or self.runner.warps, op.wait)

    def do_ClusterSync(self, op: tile.ClusterSync) -> Iterator[str]:
        total = sum(r.warps * (1 if r.leader_only else len(self.cta.peers)) for r in self.runner.program.roles)
        yield from self.meet(self.cta.peers[0], -1, total, True)

    def meet(self, cta: Cta, id: int, warps: int, wait: bool) -> Iterator[str]:
        round_ = cta.named_rounds[id]
        cta.named[id] += self.role.warps
        if cta.named[id] == warps:
            cta.named[id], cta.named_rounds[id] = 0, round_ + 1
        elif wait:
            yield from self.until(lambda: cta.named_rounds[id] > round_, f"named barrier {id}")

    def do_Signal(self, op: tile.Signal) -> Iterator[str]:
        self.runner.semaphores[self.item[op.semaphore]] += 1
        yield from ()

    def do_Await(self, op: tile.Await) -> Iterator[str]:
        index = self.item[op.semaphore]
        yield from self.until(lambda: self.runner.semaphores[index] >= op.value, f"semaphore {index}")


class Runner:
    """All clusters of a program at once, threads in turn."""

    def __init__(self, program: tile.TileProgram, inputs: dict[str, np.ndarray]) -> None:
        self.program = program
        self.depth = {ring.name: ring.depth for ring in program.rings}
        self.dtypes = {shared.name: shared.dtype for shared in program.shared}
        self.warps = sum(role.warps for role in program.roles)
        self.tensors = {t.name: inputs.get(t.name, np.zeros(t.shape, _dtype(t.dtype))) for t in program.tensors}
        self.written = {t.name: np.zeros(t.shape, int) for t in program.tensors}
        self.semaphores: dict[int, int] = defaultdict(int)
        self.threads = [thread for cluster in range(program.work.grid) for thread in self._cluster(cluster)]

    def _cluster(self, cluster: int) -> Iterator[Thread]:
        work = self.program.work
        rows = work.items[cluster :: work.grid].tolist()
        items = [dict(zip(work.attributes, row, strict=True)) for row in rows]
        peers: list[Cta] = []
        peers.extend(Cta(self.program, rank, peers) for rank in range(self.program.cluster_size))
        for cta, role in itertools.product(peers, self.program.roles):
            if not role.leader_only or cta.rank == 0:
                yield Thread(self, cta, role, items)

    def run(self) -> None:
        """Run to the end; raises Deadlock."""
        running = list(self.threads)
        while running:
            waiting, progress = [], False
            for thread in running:
                before = self._state(thread)
                waits_for = next(thread.steps, None)
                progress |= waits_for is None or before != self._state(thread)
                if waits_for is not None:
                    waiting.append((thread, waits_for))
            if not progress and not self._any_step(waiting):
                raise Deadlock("; ".join(f"{t.role.name} of CTA {t.cta.rank}: {what}" for t, what in waiting))
            running = [thread for thread, _ in waiting]

    def _state(self, thread: Thread) -> tuple[Any, ...]:
        return (*thread.rings.items(), *thread.loops.items(), *thread.item.items())

    def _any_step(self, waiting: list[tuple[Thread, str]]) -> bool:
        """Give every waiting thread one more chance: what another did since may have freed it."""
        moved = False
        for thread, what in waiting:
            again = next(thread.steps, None)
            moved |= again != what
        return moved


def _dtype(name: str) -> np.dtype:
    return np.dtype(NUMPY_NAMES[name])
