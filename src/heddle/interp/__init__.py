"""Execute the real arithmetic of a program in the order that the engine produced, and report hazards."""

from heddle.interp.check import TOLERANCES, CheckReport, Execution, TensorError, check, compare, execute
from heddle.interp.hazards import Hazard
from heddle.interp.schedule import random_schedule

__all__ = [
    "TOLERANCES",
    "CheckReport",
    "Execution",
    "Hazard",
    "TensorError",
    "check",
    "compare",
    "execute",
    "random_schedule",
]
