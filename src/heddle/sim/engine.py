"""`simulate`: one call from a warp program and a machine to a result."""

from __future__ import annotations

from heddle.errors import UnsupportedError, UserError, unknown_name
from heddle.ir.warp import WarpProgram
from heddle.machine.spec import Machine
from heddle.sim.ideal import AS_IT_IS, Ideal
from heddle.sim.memory_system import L2State, Mode
from heddle.sim.result import SimResult
from heddle.sim.scheduler import Policy
from heddle.sim.session import Log, Sim

ENGINES = ("compiled", "python", "reference")


def simulate(
    program: WarpProgram,
    machine: Machine,
    *,
    mode: Mode = "representative",
    engine: str = "compiled",
    scheduler: Policy = "gty",
    log: Log = "off",
    fast_forward: bool = True,
    until: int | None = None,
    clock_mhz: float | None = None,
    l2_state: L2State = "warm",
    max_cycles: int | None = None,
    ideal: Ideal = AS_IT_IS,
) -> SimResult:
    """Simulate a program on a machine (docs/reference/engine.md) and return cycles, stalls, pipe use and traffic.

    `mode`: "chip" (all SMs), "representative" (the busiest SM group with the chip's memory), "sm" (that group alone).
    `engine`: "compiled"; "python", the same source without compilation; "reference", the separate plain engine.
    `scheduler`: "gty", "gto", "lrr" or a function (`heddle.sim.scheduler`). `log`: "off", "issue", "all", "sm0".
    `until`: stop at that cycle, without an error. `max_cycles`: raise UserError if the kernel has not ended by then.
    `clock_mhz`: SM clock, which sets the DRAM rate in cycles (default: the machine's highest).
    Raises UserError if the program does not fit the machine or deadlocks.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if engine == "reference":
        return _reference(program, machine, mode, scheduler, log, until, clock_mhz, l2_state, max_cycles)
    sim = Sim(
        machine,
        program,
        mode=mode,
        engine="python" if engine == "python" else "compiled",
        scheduler=scheduler,
        log=log,
        fast_forward=fast_forward,
        clock_mhz=clock_mhz,
        l2_state=l2_state,
        ideal=ideal,
    )
    limits = [limit for limit in (until, max_cycles) if limit is not None]
    ended = sim.run(min(limits) if limits else None)
    if not ended and max_cycles is not None and sim.cycle >= max_cycles:
        raise UserError(
            f"{program.name}: not finished after {max_cycles} cycles",
            hint="raise max_cycles, or look at what the warps wait for with heddle.sim.Sim(...).why(warp)",
        )
    return sim.result()


def _reference(
    program: WarpProgram,
    machine: Machine,
    mode: Mode,
    scheduler: Policy,
    log: Log,
    until: int | None,
    clock_mhz: float | None,
    l2_state: L2State,
    max_cycles: int | None,
) -> SimResult:
    """Run the reference engine, which has no representative mode, logs all or nothing, and runs to the end."""
    from heddle.sim.reference import simulate_reference

    if mode == "representative":
        raise UnsupportedError("the reference engine has no representative mode", hint='use mode="chip" or mode="sm"')
    if log not in ("off", "all"):
        raise UnsupportedError(f"the reference engine has no log level {log!r}", hint='use log="all"')
    if until is not None or max_cycles is not None:
        raise UnsupportedError("the reference engine has no limit", hint='use engine="compiled" or "python"')
    return simulate_reference(
        program,
        machine,
        mode=mode,
        l2_state=l2_state,
        clock_mhz=clock_mhz,
        scheduler=scheduler,
        log=log == "all",
    )
