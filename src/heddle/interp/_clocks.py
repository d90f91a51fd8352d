"""Happens-before by vector clocks: what each warp knows to be finished.

One component for each source of completions in a cluster: a warp's own program order, its groups of asynchronous
copies, of bulk stores and of matrix instructions (all finish in order), and each mbarrier element (its completed
phases, which is how bulk loads become known). A semaphore carries knowledge to other clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heddle.ir.warp import WarpProgram


class Source(IntEnum):
    """What a component of a warp counts."""

    PROGRAM = 0
    COPY_GROUPS = 1
    BULK_GROUPS = 2
    MATRIX = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """Where components lie in the vectors of one program: per CTA, four a warp, then one an mbarrier element."""

    warps: int
    elements: int
    first_element: dict[str, int]
    cluster_size: int

    @staticmethod
    def of(program: WarpProgram) -> Layout:
        """Lay out the components of a program."""
        first: dict[str, int] = {}
        count = 0
        for barrier in program.barriers:
            first[barrier.name] = count
            count += barrier.count
        return Layout(program.warps_per_cta, count, first, program.cluster_size)

    @property
    def per_cta(self) -> int:
        """Components of one CTA."""
        return len(Source) * self.warps + self.elements

    def of_warp(self, rank: int, warp: int, source: Source) -> int:
        """Component of a warp of the CTA with this rank."""
        return rank * self.per_cta + len(Source) * warp + source

    def of_element(self, rank: int, barrier: str, element: int) -> int:
        """Component of an mbarrier element of the CTA with this rank."""
        return rank * self.per_cta + len(Source) * self.warps + self.first_element[barrier] + element


@dataclass(slots=True, eq=False)
class Knowledge:
    """What is known to be finished in the own cluster, and in others (through semaphores)."""

    cluster: int
    own: NDArray[np.int64]
    others: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    @staticmethod
    def none(cluster: int, layout: Layout) -> Knowledge:
        """Nothing is known."""
        return Knowledge(cluster, np.zeros(layout.per_cta * layout.cluster_size, np.int64))

    def copy(self) -> Knowledge:
        """Return an independent copy."""
        return Knowledge(self.cluster, self.own.copy(), {key: value.copy() for key, value in self.others.items()})

    def join(self, other: Knowledge) -> None:
        """Learn everything that `other` knows."""
        self._learn(other.cluster, other.own)
        for cluster, vector in other.others.items():
            self._learn(cluster, vector)

    def _learn(self, cluster: int, vector: NDArray[np.int64]) -> None:
        if cluster == self.cluster:
            np.maximum(self.own, vector, out=self.own)
        elif cluster in self.others:
            np.maximum(self.others[cluster], vector, out=self.others[cluster])
        else:
            self.others[cluster] = vector.copy()

    def learn(self, component: int, value: int) -> None:
        """Learn that the first `value` events of a component are finished."""
        if self.own[component] < value:
            self.own[component] = value

    def knows(self, cluster: int, component: int, value: int) -> bool:
        """Tell whether the first `value` events of a component of a cluster are known to be finished."""
        if cluster == self.cluster:
            return bool(self.own[component] >= value)
        vector = self.others.get(cluster)
        return vector is not None and bool(vector[component] >= value)
