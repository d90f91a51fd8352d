"""Composites: sequences of launches, each of which is a kernel of the registry (docs/explanation/composites.md).

What takes several launches on a GPU (the backward pass of attention, decoding with split keys, a layer of a model) is
asked for like a kernel. It has no program of its own: its steps are run, tuned, checked and stored as the kernels that
they are, and its result is their sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.kernels._parameters import Parameter, checked
from heddle.machine.spec import Machine

MODES = ("simt", "cuda-native", "fiber")
"""Execution models: today's; the same program as wefts of a machine with FIBER; a kernel written for FIBER."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """One launch of a composite, `count` times in a row: a kernel (or a composite) of the registry with parameters.

    `name` is unique within the composite and has no dot. `feeds`: for the chain of `heddle check`, where each input
    tensor of the step comes from: an input of the composite (`Q`) or what an earlier step has written (`split.O`); a
    tensor that is not listed is the composite's input of that name. `l2_state`: how the step finds L2, where that does
    not depend on the question: `warm` if all that it reads has just been written.
    """

    name: str
    kernel: str
    params: Mapping[str, Any]
    count: int = 1
    feeds: Mapping[str, str] = field(default_factory=dict)
    l2_state: str = ""


class Composite(ABC):
    """A sequence of launches in the registry.

    In mode fiber a step whose kernel has no FIBER-native form runs as today, and the result says so; a composite may
    have other steps there.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    architectures: tuple[str, ...]

    def modes_on(self, architecture: str) -> tuple[str, ...]:
        """Return the modes in which the composite runs on an architecture."""
        return MODES if architecture in self.architectures else ()

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters, parsed and with defaults; raises UserError on unknown names and bad values."""
        return checked(self.name, self.parameters, params)

    @abstractmethod
    def steps(self, machine: Machine, params: Mapping[str, Any], mode: str) -> tuple[Step, ...]:
        """Return the launches in their order, at least one. Raises UserError where there is none for the machine."""

    @abstractmethod
    def reference(
        self, machine: Machine, params: Mapping[str, Any], mode: str, seed: int = 0
    ) -> tuple[Arrays, dict[str, NDArray[np.float64]]]:
        """Return seeded inputs of the composite by name, and what its last steps must write, by `step.tensor`.

        The expected arrays are computed from the inputs in float64, without the steps between. An array is fed and
        compared by its elements in order, so that its shape need not be that of the step's tensor.
        """

    def written(
        self, params: Mapping[str, Any], step: Step, tensors: Mapping[str, NDArray[Any]], inputs: Arrays
    ) -> Arrays:
        """Return what a step has written by tensor name, for the steps behind it, as where a layout has two names.

        `params`, `inputs`: those of the composite.
        """
        return dict(tensors)
