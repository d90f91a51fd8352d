"""A simulation that can be run step by step, looked into, and restored: `Sim`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError, UserError, unknown_name
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_verify import verify
from heddle.machine.spec import Machine
from heddle.sim import deadlock, fiber_faults
from heddle.sim.collect import collect
from heddle.sim.core import layout as c
from heddle.sim.core.layout_ideal import H_IDEAL
from heddle.sim.core_loader import Core, load_core, set_policy
from heddle.sim.event_log import EventLog
from heddle.sim.fast_forward import FastForward
from heddle.sim.ideal import AS_IT_IS, Ideal
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import L2State, Mode, build_memory
from heddle.sim.prepare import prepare
from heddle.sim.prepare_ideal import idealised
from heddle.sim.result import SimResult
from heddle.sim.scheduler import Policy
from heddle.sim.state import build_state, first_items
from heddle.sim.state_ideal import add_ideal
from heddle.sim.views import View

LOGS = {"off": 0, "issue": 1, "all": 2, "sm0": 2}
Log = Literal["off", "issue", "all", "sm0"]
Engine = Literal["compiled", "python"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of everything that changes while a simulation runs."""

    state: NDArray[np.int64]
    memory: NDArray[np.int64]
    log: NDArray[np.int64]
    forward: NDArray[np.int64]
    finished: bool


class Sim:
    """One kernel on one machine, simulated as far as you ask.

    `run` goes on to a cycle or to the end, `step` by some cycles; `snapshot` and `restore` copy the whole state; `why`
    says what a warp waits for; `view` has the state as named NumPy arrays; `result` is what has happened so far.
    Arguments as for `heddle.sim.simulate`. Raises UserError for a program that does not fit the machine.
    """

    def __init__(
        self,
        machine: Machine,
        program: WarpProgram,
        *,
        mode: Mode = "representative",
        engine: Engine = "compiled",
        scheduler: Policy = "gty",
        log: Log = "off",
        fast_forward: bool = True,
        clock_mhz: float | None = None,
        l2_state: L2State = "warm",
        ideal: Ideal = AS_IT_IS,
    ) -> None:
        if log not in LOGS:
            raise unknown_name("log level", log, LOGS)
        if program.mode != "simt":
            verify(program, machine)
        self.machine, self.program, self.mode = machine, program, mode
        self.clock_mhz = machine.max_clock_mhz if clock_mhz is None else clock_mhz
        self.plan = plan_launch(program, machine)
        self.rows, tables = idealised(program, machine, prepare(program, machine), ideal)
        self.memory = build_memory(program, machine, self.plan, mode=mode, clock_mhz=self.clock_mhz, l2_state=l2_state)
        self.state, self.extent = build_state(program, machine, self.plan, mode)
        if ideal.steps:
            self.state = add_ideal(self.state, self.extent, ideal, tables)
        self._core: Core = load_core(engine)
        self._policy = set_policy(self.state, engine, scheduler)  # keeps a user's function alive
        self._log = EventLog(self.state, self.extent.sms if log != "sm0" else 1, LOGS[log])
        self.finished = False
        self._start(l2_state)
        enabled = fast_forward and mode != "chip" and not ideal.steps
        self._forward = FastForward(program, self.extent, self.memory.buffer, enabled=enabled)

    def _start(self, l2_state: str) -> None:
        """Set what depends on the options, and launch the first clusters."""
        state = self.state
        state[c.H_SEMAPHORES_WAIT] = self.mode == "chip"
        if l2_state == "flushed":
            state[c.H_FETCH] = self.machine.instruction_miss_cycles << c.TICK_BITS
        for cluster, item, ordinal in first_items(self.extent, self.plan, self.mode):
            self._core.launch_cluster(state, self.rows, cluster, item, ordinal, 0, 0)

    @property
    def cycle(self) -> int:
        """The next cycle to simulate."""
        return int(self.state[c.H_TIME])

    @property
    def view(self) -> View:
        """The state as named arrays: `view.pc[warp]`, `view.next_ok[warp]`, ...; writing to them changes the state."""
        return View(self.state, self.extent)

    def step(self, cycles: int = 1) -> bool:
        """Simulate `cycles` cycles without fast-forward; return whether the kernel has ended."""
        return self._advance(self.cycle + cycles, 0)

    def run(self, until: int | None = None) -> bool:
        """Simulate up to cycle `until` (excluded), or to the end; return whether the kernel has ended.

        Raises UserError on a deadlock, naming who waits for what.
        """
        return self._advance(c.INF - 1 if until is None else until, self._forward.anchor)

    def _advance(self, until: int, anchor: int) -> bool:
        core = self._core
        self.state[c.H_ANCHOR] = anchor
        while not self.finished:
            why = core.run(self.state, self.rows, self._log.buffer, self.memory.buffer, self._forward.buffer, until)
            if why == core.DONE:
                if never := fiber_faults.unfinished(self):
                    raise UserError(never, hint=fiber_faults.GROUPS_HINT)
                self.finished = True
            elif why == core.PAUSED:
                break
            elif why == core.LOG_FULL:
                self._log.grow(self.state)
            elif why == core.DEADLOCK and self.state[H_IDEAL]:
                raise UserError(
                    f"{self.program.name}: deadlock in cycle {self.cycle} of an idealised simulation",
                    hint="without oracles and switches the report says who waits for what",
                )
            elif why == core.DEADLOCK:
                raise UserError(self.deadlock_report(), hint="every wait needs an arrival that comes later or has come")
            else:
                raise self._broken()
        return self.finished

    def _broken(self) -> Exception:
        """Return the error for a state with an error word; a scheduler policy's own exception is its cause."""
        error = int(self.state[c.H_ERROR])
        if (fault := fiber_faults.fault(self, error)) is not None:
            return fault
        if error != c.ERROR_POLICY:
            return InternalError(f"the engine ran out of room (error {error})")
        failures = self._policy.failures if self._policy is not None else []
        problem = UserError(
            f"the scheduler policy failed in cycle {self.cycle - 1}: {failures[0]!r}"
            if failures
            else f"the scheduler policy chose a warp that cannot issue in cycle {self.cycle - 1}",
            hint="a policy returns the index of a bit that is set in its first argument",
        )
        problem.__cause__ = failures[0] if failures else None
        return problem

    def snapshot(self) -> Snapshot:
        """Copy the state."""
        log, forward = self._log.used(self.state), self._forward.buffer.copy()
        return Snapshot(self.state.copy(), self.memory.buffer.copy(), log, forward, self.finished)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this simulation."""
        self.state[:] = snapshot.state
        self.memory.buffer[:] = snapshot.memory
        self._log.put_back(self.state, snapshot.log)
        self.finished = snapshot.finished
        self._forward.buffer[:] = snapshot.forward

    def why(self, warp: int) -> str:
        """Say in a sentence what a warp context does or waits for, with its source line."""
        return deadlock.why(self, warp)

    def deadlock_report(self) -> str:
        """Say who waits for what, warp by warp, and name a cycle of waits if there is one."""
        return deadlock.report(self)

    def result(self) -> SimResult:
        """Return the account of what has been simulated so far."""
        return collect(self, self._log.events(self.state), self._forward.cycles, self._forward.repeats)

    def flushed_state(self) -> NDArray[np.int64]:
        """Return a copy of the state in which every warp's cycles are accounted up to now."""
        copy = self.state.copy()
        self._core.flush_accounts(copy, self.rows, int(copy[c.H_TIME]))
        return copy

    def core(self) -> Any:
        """The engine's functions, for tests and tools."""
        return self._core
