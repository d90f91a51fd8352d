"""Timelines of a run: Perfetto traces with a track a warp, unit and barrier."""

from heddle.trace._slices import Slice, Track
from heddle.trace.read import read_trace
from heddle.trace.write import DEFAULT_CYCLES, write_trace

__all__ = ["DEFAULT_CYCLES", "Slice", "Track", "read_trace", "write_trace"]
