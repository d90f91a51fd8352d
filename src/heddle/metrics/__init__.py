"""Explain a simulation: counters, stall accounts, occupancy, roofline position, and their rendering."""

from heddle.metrics._result_json import duration_us, result_json, tensor_utilization
from heddle.metrics.diff import Change, diff
from heddle.metrics.occupancy import Occupancy, occupancy
from heddle.metrics.registers import RegisterProfile, register_profile
from heddle.metrics.registry import METRICS, Metric, metric
from heddle.metrics.roofline import Roofline, roofline
from heddle.metrics.speed_of_light import speed_of_light, verdict
from heddle.metrics.stalls import by_instruction, by_line, check_law, stall_name, stalls_by_role, stalls_total

__all__ = [
    "METRICS",
    "Change",
    "Metric",
    "Occupancy",
    "RegisterProfile",
    "Roofline",
    "by_instruction",
    "by_line",
    "check_law",
    "diff",
    "duration_us",
    "metric",
    "occupancy",
    "register_profile",
    "result_json",
    "roofline",
    "speed_of_light",
    "stall_name",
    "stalls_by_role",
    "stalls_total",
    "tensor_utilization",
    "verdict",
]
