"""A streaming multiprocessor: its servers, its units, its resident CTAs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.ir.opcodes import Unit
from heddle.sim.reference import bulk, control, global_memory, mbarrier, named_barrier, paths, semaphore, tcgen05, wgmma
from heddle.sim.reference import tensor_memory as tmem
from heddle.sim.reference.arbiter import Arbiter
from heddle.sim.reference.bit_units import BindUnit, BusyBitUnit
from heddle.sim.reference.fetch import InstructionFetch
from heddle.sim.reference.fiber_sync import SetFiberNum
from heddle.sim.reference.matrix_unit import MatrixUnit
from heddle.sim.reference.pipes import Pipes, PipeUnit
from heddle.sim.reference.shared_memory import LoadStoreUnit, SharedMemory, SharedUnit
from heddle.sim.reference.subpartition import Subpartition
from heddle.sim.reference.ticks import Server, ticks
from heddle.sim.reference.unit import UnitModel
from heddle.sim.reference.warp import Warp
from heddle.sim.reference.weft_matrix import WeftMatrixUnits, WeftMma

if TYPE_CHECKING:
    from heddle.sim.reference.chip import Chip

UNITS: dict[Unit, type[UnitModel]] = {
    Unit.FIXED: PipeUnit,
    Unit.VARIABLE: PipeUnit,
    Unit.SHARED: SharedUnit,
    Unit.GLOBAL: global_memory.GlobalUnit,
    Unit.GROUP_COMMIT: global_memory.GroupCommit,
    Unit.GROUP_WAIT: global_memory.GroupWait,
    Unit.WGMMA: wgmma.Wgmma,
    Unit.WGMMA_ARRIVE: wgmma.WgmmaArrive,
    Unit.WGMMA_COMMIT: wgmma.WgmmaCommit,
    Unit.WGMMA_WAIT: wgmma.WgmmaWait,
    Unit.WGMMA_SIGNAL: wgmma.WgmmaSignal,
    Unit.BULK_LOAD: bulk.BulkLoad,
    Unit.BULK_STORE: bulk.BulkStore,
    Unit.BULK_PEER: bulk.BulkPeer,
    Unit.BULK_COMMIT: bulk.BulkCommit,
    Unit.BULK_WAIT: bulk.BulkWait,
    Unit.MBARRIER_EXPECT: mbarrier.MbarrierExpect,
    Unit.MBARRIER_ARRIVE: mbarrier.MbarrierArrive,
    Unit.MBARRIER_WAIT: mbarrier.MbarrierWait,
    Unit.BARRIER_SYNC: named_barrier.BarrierSync,
    Unit.BARRIER_ARRIVE: named_barrier.BarrierArrive,
    Unit.CLUSTER_SYNC: named_barrier.ClusterSync,
    Unit.TCGEN05_MMA: tcgen05.Tcgen05Mma,
    Unit.TCGEN05_COMMIT: tcgen05.Tcgen05Commit,
    Unit.TMEM_LOAD: tmem.TensorMemoryLoad,
    Unit.TMEM_STORE: tmem.TensorMemoryStore,
    Unit.SET_REGISTERS: control.SetRegisters,
    Unit.SEM_RELEASE: semaphore.SemaphoreRelease,
    Unit.SEM_ACQUIRE: semaphore.SemaphoreAcquire,
    Unit.LOOP: control.Loop,
    Unit.SKIP: control.Skip,
    Unit.NEXT_ITEM: control.NextItem,
    Unit.EXIT: control.Exit,
    Unit.SPLIT: paths.Split,
    Unit.REJOIN: paths.Rejoin,
    Unit.YIELD: paths.Yield,
    Unit.SET_FIBER_NUM: SetFiberNum,
    Unit.BIND: BindUnit,
    Unit.BUSY_BIT: BusyBitUnit,
    Unit.WEFT_MMA: WeftMma,
}


class Sm:
    """One SM. `number` counts the SMs of the chip."""

    def __init__(self, chip: Chip, number: int) -> None:
        self.chip = chip
        self.number = number
        self.machine = chip.machine
        self.shared = SharedMemory(self.machine)
        self.lsu = LoadStoreUnit(self.machine)
        self.bulk = bulk.BulkCopyEngine(self.machine)
        self.matrix = MatrixUnit(self.machine, self.shared)
        self.weft_matrix = WeftMatrixUnits(self)
        self.tcgen05_starts: list[int] = []  # ticks, of the instructions that this SM issued
        self.tensor_memory = [Server() for _ in range(self.machine.subpartitions)]
        self.pipes = Pipes(self.machine)
        self.fetch = InstructionFetch(chip.setup.instruction_miss_cycles)
        self.units = {unit: model(self) for unit, model in UNITS.items()}
        self.subpartitions = [Subpartition(self, index) for index in range(self.machine.subpartitions)]
        self.ports = [part.ports for part in self.subpartitions]
        self.arbiter = Arbiter(self.ports)

    def admit(self, warps: list[Warp]) -> None:
        """Make warps of a CTA resident."""
        for warp in warps:
            self.subpartitions[warp.subpartition].admit(warp)
            self.fetch.request(warp.pc, warp.start)

    def slowed_reads(self, subpartition: int, cycles: int, cycle: int) -> int:
        """Return the ticks of so many cycles of reads at `cycle`, beside the accumulators of a matrix instruction."""
        if self.matrix.registers_active(cycle):
            return ticks(cycles / (1.0 - self.machine.tensor_port_share))
        return self.weft_matrix.slowed_reads(subpartition, cycles, cycle)

    def cycle(self, cycle: int) -> None:
        """Let each subpartition issue, in an order that turns with the cycle."""
        count = len(self.subpartitions)
        for turn in range(count):
            self.subpartitions[(cycle + turn) % count].cycle(cycle)
