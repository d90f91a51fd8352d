"""The matrix unit of an SM: one instruction at a time, in order, held back by the shared-memory backlog."""

from __future__ import annotations

from heddle.errors import UnsupportedError
from heddle.machine.spec import Machine
from heddle.sim.reference.shared_memory import SharedMemory
from heddle.sim.reference.ticks import TICKS_PER_CYCLE, floor_cycles

ELEMENT_BYTES = {
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8": 1,
    "int8": 1,
    "fp16": 2,
    "bf16": 2,
    "tf32": 4,
    "fp32": 4,
}


class MatrixUnit:
    """Next free time, who used it last, and the spans in which an MMA with register accumulators is active."""

    def __init__(self, machine: Machine, shared: SharedMemory) -> None:
        self._slack = machine.shared_async_slack_cycles * TICKS_PER_CYCLE
        self._shared = shared
        self.free = 0
        self.busy = 0  # ticks
        self.last_group: tuple[int, int] | None = None  # slot, warp group
        self._register_spans: list[tuple[int, int]] = []  # ticks

    def earliest(self, cycle: int) -> int:
        """Return when an instruction that is ready at `cycle` may start, in ticks."""
        return max(cycle * TICKS_PER_CYCLE, self.free, self._shared.backlog - self._slack)

    def occupy(self, start: int, length: int, shared_length: int) -> None:
        """Run an instruction: `shared_length` ticks of operand reads join the backlog."""
        self.free = start + length
        self.busy += length
        self._shared.join(start, shared_length)

    def note_register_accumulators(self, start: int, end: int) -> None:
        """Note that an instruction with accumulators in registers runs from `start` to `end` (ticks)."""
        self._register_spans.append((start, end))

    def registers_active(self, cycle: int) -> bool:
        """Tell whether such an instruction is active at `cycle`."""
        return any(floor_cycles(start) <= cycle < floor_cycles(end) for start, end in self._register_spans)


def element_bytes(dtype: str) -> int:
    """Return the bytes of one operand element."""
    if dtype not in ELEMENT_BYTES:
        raise UnsupportedError(f"matrix operands of type {dtype!r}; allowed: {', '.join(sorted(ELEMENT_BYTES))}")
    return ELEMENT_BYTES[dtype]


def rate_scale(machine: Machine, dtype: str) -> float:
    """Return the rate of a type as a multiple of the fp16 rate."""
    if dtype not in machine.tensor_rate_scale:
        allowed = ", ".join(sorted(machine.tensor_rate_scale))
        raise UnsupportedError(f"{machine.name} has no tensor rate for {dtype!r}; allowed: {allowed}")
    return machine.tensor_rate_scale[dtype]
