"""Machines: A100, H100, H200 and B200 as TOML presets, checked, with a source for every value, and a user's own."""

from heddle.machine.describe import Row, describe, fitted
from heddle.machine.load import available, machine, with_fiber
from heddle.machine.model import json_schema
from heddle.machine.spec import Kind, Machine, OpTiming, Pipe, Provenance

__all__ = [
    "Kind",
    "Machine",
    "OpTiming",
    "Pipe",
    "Provenance",
    "Row",
    "available",
    "describe",
    "fitted",
    "json_schema",
    "machine",
    "with_fiber",
]
