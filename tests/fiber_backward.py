"""A FIBER-native backward pass of attention on one SM, small, for tests: compiled, run, checked with numbers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from heddle import sim
from heddle.interp import random_schedule
from heddle.interp.check import CheckReport, check
from heddle.ir.warp import WarpProgram
from heddle.kernels.attention.backward.fp32_reference import reference
from heddle.kernels.attention.backward.kernel import ATTENTION_BWD
from heddle.kernels.attention.shape import AttentionProblem
from heddle.machine import Machine, machine
from heddle.passes import compile_program
from heddle.sim.result import SimResult
from heddle.study.features import STEPS

WHOLE = STEPS[-1].name
"""The step that has all features."""


@dataclass(frozen=True)
class SmallBackward:
    """The kernel of a GPU, the sizes of a problem of one head that shows it, and the ablation step of the machine."""

    gpu: str
    kernel: Any
    seqlen_q: int
    seqlen_kv: int
    step: str = WHOLE
    sms: int = 1

    def on_step(self, step: str) -> SmallBackward:
        """Return the same on the machine of an ablation step, with the kernel that runs there."""
        return replace(self, step=step, kernel=ATTENTION_BWD.native_on(_small(self.gpu, step, self.sms)))

    def problem(self, **changes: Any) -> AttentionProblem:
        """Return a problem of one head; `changes` are its fields."""
        sizes = {"batch": 1, "heads_q": 1, "heads_kv": 1, "seqlen_q": self.seqlen_q, "seqlen_kv": self.seqlen_kv}
        return AttentionProblem(**{**sizes, "head_dim": 128, "causal": False, "dtype": "fp16", **changes})

    def one_sm(self) -> Machine:
        """Return the GPU with the features of the step, of one SM, or as many as a cluster needs."""
        return _small(self.gpu, self.step, self.sms)

    def compiled(self, wanted: AttentionProblem, **changes: Any) -> WarpProgram:
        """Return the kernel for a problem, compiled; `changes` are fields of its configuration."""
        return _compiled(self, wanted, **changes)

    def checked(
        self, wanted: AttentionProblem, program: WarpProgram | None = None, seed: int = 0, **changes: Any
    ) -> CheckReport:
        """Run with random numbers in the engine's order, or in a random one with `seed`, and compare with float64."""
        program = program or self.compiled(wanted, **changes)
        if seed:  # untimed: of the engine's result nothing but the log is asked
            result = replace(_engine_order(self, wanted), log=random_schedule(program, seed))
        else:
            result = simulated(program, self.one_sm())
        arrays, expected = _reference(wanted)
        names = {tensor.name for tensor in program.tensors}
        inputs = {name: array for name, array in arrays.items() if name in names}
        outputs = {name: array for name, array in expected.items() if name in names}
        return check(program, holding(program, self.one_sm()), inputs, outputs, result=result)


def simulated(program: WarpProgram, on: Machine, engine: str = "compiled") -> SimResult:
    """Return a run with its log, as `check` needs it."""
    return sim.simulate(program, holding(program, on), mode="chip", engine=engine, log="all", fast_forward=False)


def holding(program: WarpProgram, on: Machine) -> Machine:
    """Return the machine with SMs enough for a cluster of the program."""
    return on if on.sms >= program.cluster_size else on.replace(sms=program.cluster_size)


@functools.cache
def _engine_order(small: SmallBackward, wanted: AttentionProblem) -> SimResult:
    return simulated(small.compiled(wanted), small.one_sm())


@functools.cache
def _reference(wanted: AttentionProblem) -> tuple[Any, Any]:
    return reference(wanted, 0)


@functools.cache
def _small(gpu: str, step: str, sms: int) -> Machine:
    return next(s for s in STEPS if s.name == step).machine(machine(gpu)).replace(sms=sms)


@functools.cache
def _compiled(small: SmallBackward, wanted: AttentionProblem, **changes: Any) -> WarpProgram:
    config = replace(small.kernel.candidates(wanted, small.one_sm())[0], **changes)
    return compile_program(small.kernel.build(wanted, config, small.one_sm(), {}), small.one_sm())
