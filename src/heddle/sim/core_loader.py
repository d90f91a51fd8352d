"""Get the engine's core: compiled to machine code, or the same source as plain Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError, unknown_name
from heddle.sim.core import bits, control, flush, memory_play, run
from heddle.sim.core import layout as c
from heddle.sim.scheduler import POLICIES, Chooser, Policy

COMPILED = "compiled"
ENGINES = (COMPILED, "python")
ENTRIES = (
    run.run,
    control.launch_cluster,
    flush.flush_accounts,
    memory_play.play,
    memory_play.measure,
    memory_play.settle,
)

PROFILE = Path(__file__).parent / "core" / "profile.txt"  # written by benchmarks/profile_core.py


class Core:
    """The functions of the core that the rest of `heddle.sim` calls."""

    DONE, PAUSED, DEADLOCK = run.DONE, run.PAUSED, run.DEADLOCK
    LOG_FULL, BROKEN = run.LOG_FULL, run.BROKEN

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self.run = functions["run"]
        self.launch_cluster = functions["launch_cluster"]
        self.flush_accounts = functions["flush_accounts"]
        self.play, self.measure, self.settle = functions["play"], functions["measure"], functions["settle"]


@cache
def load_core(engine: str) -> Core:
    """Return the core. Raises UserError on an unknown engine."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if engine == "python":
        return Core({function.__name__: function for function in ENTRIES})
    from heddle.sim.native import build_unit  # loads LLVM, which only a simulation needs

    sources = sorted((Path(__file__).parent / "core").glob("*.py"))
    return Core(dict(build_unit("core", ENTRIES, sources, PROFILE)))


def set_policy(state: NDArray[np.int64], engine: str, scheduler: Policy) -> UserPolicy | None:
    """Write the scheduler policy into the state; return what must be kept alive meanwhile."""
    if not callable(scheduler):
        if scheduler not in POLICIES:
            raise unknown_name("scheduler", scheduler, POLICIES)
        state[c.H_POLICY] = POLICIES[scheduler]
        return None
    state[c.H_POLICY] = c.POLICY_USER
    policy = _callable_policy(scheduler) if engine == "python" else _compiled_policy(scheduler)
    state[c.H_POLICY_ADDRESS] = policy.address
    return policy


@dataclass(frozen=True, slots=True)
class UserPolicy:
    """A policy that the core can call; `owner` keeps its code alive, `failures` has what it raised."""

    owner: Any
    address: int
    failures: list[Exception] = field(default_factory=list)


def _guarded(choose: Chooser, failures: list[Exception]) -> Chooser:
    """Return a policy that remembers an error and then chooses no warp."""

    def guarded(ready: int, last: int, subpartition: int, t: int) -> int:
        try:
            return int(choose(ready, last, subpartition, t))
        except Exception as error:
            failures.append(error)
            return -1

    return guarded


def _callable_policy(choose: Chooser) -> UserPolicy:
    """Return a policy for the uncompiled core."""
    failures: list[Exception] = []
    bits.policies.append(_guarded(choose, failures))
    return UserPolicy(choose, len(bits.policies) - 1, failures)


def _compiled_policy(choose: Chooser) -> UserPolicy:
    """Compile a policy, or make it callable from the core as it is if the compiler does not know what it uses."""
    from heddle.sim.native import compile_function

    try:
        compiled = compile_function(choose)
        return UserPolicy(compiled, compiled.address)
    except InternalError:
        failures: list[Exception] = []
        signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_int64] * 3)
        callback = signature(_guarded(choose, failures))
        return UserPolicy(callback, int(ctypes.cast(callback, ctypes.c_void_p).value or 0), failures)
