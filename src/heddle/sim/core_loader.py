"""Get the engine's core: compiled, as plain Python, or with a user's scheduler policy in place of the built-in ones.

Plain Python and user policies need a second copy of the core's modules, which is imported under the same names with the
switch of `core.jit` (or another `policy.user_choose`) set, and then taken out of `sys.modules` again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from heddle.errors import unknown_name
from heddle.sim.scheduler import POLICIES, Policy

PACKAGE = "heddle.sim.core"
KEEP = ("heddle.sim.core", "heddle.sim.core.layout")  # constants, the same for all copies
DRIVERS = ("step", "run")  # the modules that must be compiled anew for another policy
ENGINES = ("numba", "python")


class Core:
    """The functions of the core that the rest of `heddle.sim` calls."""

    def __init__(self, run: ModuleType, control: ModuleType, flush: ModuleType, forward: ModuleType) -> None:
        self.run: Callable[..., int] = run.run
        self.launch_cluster: Callable[..., None] = control.launch_cluster
        self.flush_accounts: Callable[..., None] = flush.flush_accounts
        self.forward = forward
        self.DONE, self.PAUSED, self.DEADLOCK = run.DONE, run.PAUSED, run.DEADLOCK
        self.LOG_FULL, self.ANCHOR, self.BROKEN = run.LOG_FULL, run.ANCHOR, run.BROKEN


def _import_core() -> Core:
    """Import the modules that the core consists of."""
    names = ("run", "control", "flush", "forward")
    return Core(*(importlib.import_module(f"{PACKAGE}.{name}") for name in names))


@contextmanager
def _fresh_modules(names: Callable[[str], bool]) -> Iterator[None]:
    """Take the core's modules for which `names` holds out of `sys.modules`, and put them back at the end."""
    kept = {name: module for name, module in sys.modules.items() if name.startswith(PACKAGE) and names(name)}
    package = sys.modules[PACKAGE]
    attributes = {name: vars(package).get(name.rpartition(".")[2]) for name in kept}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n.startswith(PACKAGE) and names(n)]:
            del sys.modules[name]
        sys.modules.update(kept)
        for name, module in attributes.items():
            setattr(package, name.rpartition(".")[2], module)


@cache
def _python_core() -> Core:
    """Import the core as plain Python."""
    jit = importlib.import_module(f"{PACKAGE}.jit")
    _import_core()
    with _fresh_modules(lambda name: name not in (*KEEP, f"{PACKAGE}.jit")):
        before = jit.enabled, jit.ctz, jit.top
        jit.enabled, jit.ctz, jit.top = False, jit.python_ctz, jit.python_top  # type: ignore[attr-defined]
        try:
            return _import_core()
        finally:
            jit.enabled, jit.ctz, jit.top = before  # type: ignore[attr-defined]


@cache
def _user_core(engine: str, choose: Callable[..., int]) -> Core:
    """Import the core's drivers with another policy; the rest is shared with the usual core."""
    jit: Any = importlib.import_module(f"{PACKAGE}.jit")
    _import_core()
    plain = engine == "python"

    def fresh(name: str) -> bool:
        return name not in (*KEEP, f"{PACKAGE}.jit") and (plain or name.rpartition(".")[2] in (*DRIVERS, "policy"))

    with _fresh_modules(fresh):
        before = jit.enabled, jit.ctz, jit.top, jit.cached
        jit.cached = False  # a user's function has no place in the cache of the core
        if plain:
            jit.enabled, jit.ctz, jit.top = False, jit.python_ctz, jit.python_top
        try:
            policy: Any = importlib.import_module(f"{PACKAGE}.policy")
            already = hasattr(choose, "py_func")
            if plain:
                policy.user_choose = choose.py_func if already else choose  # type: ignore[attr-defined]
            else:
                policy.user_choose = choose if already else jit.compiled(choose)
            return _import_core()
        finally:
            jit.enabled, jit.ctz, jit.top, jit.cached = before


def load_core(engine: str, scheduler: Policy) -> Core:
    """Return the core for an engine and a policy. Raises UserError on an unknown name."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if callable(scheduler):
        return _user_core(engine, scheduler)
    if scheduler not in POLICIES:
        raise unknown_name("scheduler", scheduler, POLICIES)
    return _python_core() if engine == "python" else _import_core()
