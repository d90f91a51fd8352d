"""Get the engine's core: compiled to machine code, or the same source as plain Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.errors import InternalError, unknown_name
from heddle.sim.core import bits, control, flush, memory_play, run
from heddle.sim.core import layout as c
from heddle.sim.scheduler import POLICIES, Policy

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
    return Core(dict(build_unit("core", ENTRIES, sources)))


def set_policy(state: NDArray[np.int64], engine: str, scheduler: Policy) -> Any:
    """Write the scheduler policy into the state; return what must be kept alive meanwhile."""
    if not callable(scheduler):
        if scheduler not in POLICIES:
            raise unknown_name("scheduler", scheduler, POLICIES)
        state[c.H_POLICY] = POLICIES[scheduler]
        return None
    state[c.H_POLICY] = c.POLICY_USER
    if engine == "python":
        bits.policies.append(scheduler)
        state[c.H_POLICY_ADDRESS] = len(bits.policies) - 1
        return None
    function = _compile_policy(scheduler)
    state[c.H_POLICY_ADDRESS] = function.address
    return function


@dataclass(frozen=True, slots=True)
class CallablePolicy:
    """A policy that the core can call; `owner` keeps its code alive."""

    owner: Any
    address: int


@cache
def _compile_policy(choose: Callable[[int, int, int, int], int]) -> CallablePolicy:
    """Compile a policy, or make it callable from the core as it is if the compiler does not know what it uses."""
    from heddle.sim.native import compile_function

    try:
        compiled = compile_function(choose)
        return CallablePolicy(compiled, compiled.address)
    except InternalError:
        callback = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)(choose)
        return CallablePolicy(callback, int(ctypes.cast(callback, ctypes.c_void_p).value or 0))
