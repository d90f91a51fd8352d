"""What the registry needs of one attention kernel: its configuration for a problem, its checks, its work, its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heddle.kernels.attention.raster import work_items
from heddle.kernels.attention.shape import AttentionConfig, AttentionProblem
from heddle.lang import KernelFunction
from heddle.machine.spec import Machine

WorkItems = Callable[[AttentionProblem, AttentionConfig], dict[str, list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """A kernel for one generation. `dtypes`: what it takes; `kernel` is built with (problem, config, items, clusters).

    `config` gives the open kernel's choice, `check` raises UserError on a configuration that the kernel cannot run,
    `shared_bytes` is what a CTA takes. `ctas_per_sm`: CTAs that are launched on an SM where the kernel is persistent.
    `architecture`: that of the code where it is older than the machine.
    """

    schedule: str
    dtypes: tuple[str, ...]
    config: Callable[[AttentionProblem, Machine], AttentionConfig]
    check: Callable[[AttentionProblem, AttentionConfig, Machine], None]
    shared_bytes: Callable[[AttentionProblem, AttentionConfig], int]
    kernel: KernelFunction
    work_items: WorkItems = work_items
    ctas_per_sm: int = 1
    architecture: str = ""

    def target(self, machine: Machine) -> str:
        """Return the architecture that the code is written for."""
        return self.architecture or machine.architecture

    def clusters(self, items: int, config: AttentionConfig, machine: Machine) -> int:
        """Return how many clusters run: one an item if launched so, else as many as the SMs hold."""
        if config.order == "launch":
            return items
        return min(items, machine.sms * self.ctas_per_sm // config.cluster)
