"""Read a trace file back into tracks: for tests, and for pictures drawn from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # type: ignore[import-untyped]
    Trace,
    TrackEvent,
)

from heddle.errors import UserError
from heddle.trace._slices import Detail, Slice, Track


def read_trace(path: str | Path) -> tuple[list[Track], dict[str, Detail]]:
    """Return the tracks of a file that `write_trace` wrote, slices outermost first, and what it says about itself.

    Raises UserError if the file cannot be read or is no trace, slices do not nest or a packet names an unknown track.
    """
    trace = Trace()
    try:
        trace.ParseFromString(Path(path).read_bytes())
    except DecodeError:
        raise UserError(f"{path} is no trace", hint="write one with `heddle run ... --trace FILE.pftrace`") from None
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror or problem}") from None
    reader = _Reader()
    for packet in trace.packet:
        reader.packet(packet)
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        self.tracks: dict[int, Track] = {}
        self.names: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.open: dict[int, list[tuple[int, int, str, dict[str, Detail]]]] = {}
        self.placed: dict[int, list[tuple[int, Slice]]] = {}
        self.about: dict[str, Detail] = {}
        self.count = 0

    def packet(self, packet: Any) -> None:
        self.names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        self.keys |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            self._descriptor(packet.track_descriptor)
        elif packet.HasField("track_event"):
            self._event(packet.track_event, packet.timestamp)

    def finish(self) -> tuple[list[Track], dict[str, Detail]]:
        for uuid, pending in self.open.items():
            if pending:
                raise UserError(f"track {self.tracks[uuid].path} has a slice without an end")
        for uuid, placed in self.placed.items():
            self.tracks[uuid].slices = [piece for _, piece in sorted(placed, key=lambda pair: pair[0])]
        return [track for track in self.tracks.values() if track.slices], self.about

    def _descriptor(self, descriptor: Any) -> None:
        parent = self.tracks[descriptor.parent_uuid].path if descriptor.parent_uuid else ()
        self.tracks[descriptor.uuid] = Track((*parent, descriptor.name), description=descriptor.description)

    def _event(self, event: Any, cycle: int) -> None:
        if event.track_uuid not in self.tracks:
            raise UserError(f"an event names track {event.track_uuid}, which is not declared")
        stack = self.open.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_INSTANT:
            self.about |= self._details(event)
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((self.count, cycle, self.names[event.name_iid], self._details(event)))
            self.count += 1
        elif event.type == TrackEvent.TYPE_SLICE_END:
            if not stack:
                raise UserError(f"track {self.tracks[event.track_uuid].path} ends a slice that never began")
            order, begin, name, details = stack.pop()
            self.placed.setdefault(event.track_uuid, []).append((order, Slice(begin, cycle, name, details)))

    def _details(self, event: Any) -> dict[str, Detail]:
        return {
            self.keys[a.name_iid]: a.int_value if a.HasField("int_value") else a.string_value
            for a in event.debug_annotations
        }
