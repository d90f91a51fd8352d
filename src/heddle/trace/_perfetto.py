"""Write tracks as a Perfetto protobuf trace, packet by packet; names are interned. One cycle is one nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # type: ignore[import-untyped]
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import (  # type: ignore[import-untyped]
    StreamingTraceProtoBuilder,
)

from heddle.trace._slices import Detail, Slice, Track

_SEQUENCE = 1
_FIRST, _NEEDS_STATE = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


class PerfettoWriter:
    """Streams packets to a file. Tracks with a common beginning of their paths share parents."""

    def __init__(self, file: IO[bytes]) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._uuids: dict[tuple[str, ...], int] = {}
        self._names: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._started = False

    def track(self, track: Track) -> None:
        """Write a track and all its slices; slices must nest."""
        uuid = self._declare(track.path, track.description)
        open_ends: list[int] = []
        for piece in sorted(track.slices, key=lambda s: (s.begin, -s.end)):
            while open_ends and open_ends[-1] <= piece.begin:
                self._end(uuid, open_ends.pop())
            self._begin(uuid, piece)
            open_ends.append(min(piece.end, open_ends[-1]) if open_ends else piece.end)
        while open_ends:
            self._end(uuid, open_ends.pop())

    def instant(self, path: tuple[str, ...], name: str, details: Mapping[str, Detail]) -> None:
        """Write an event without duration at cycle 0."""
        self._event(self._declare(path, ""), TrackEvent.TYPE_INSTANT, 0, name, details)

    def _declare(self, path: tuple[str, ...], description: str) -> int:
        if path in self._uuids:
            return self._uuids[path]
        parent = self._declare(path[:-1], "") if len(path) > 1 else 0
        uuid = self._uuids[path] = len(self._uuids) + 1
        packet = self._packet()
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.name = path[-1]
        packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
        packet.track_descriptor.sibling_order_rank = uuid
        if parent:
            packet.track_descriptor.parent_uuid = parent
        if description:
            packet.track_descriptor.description = description
        self._builder.write_packet(packet)
        return uuid

    def _begin(self, uuid: int, piece: Slice) -> None:
        self._event(uuid, TrackEvent.TYPE_SLICE_BEGIN, piece.begin, piece.name, piece.details)

    def _end(self, uuid: int, cycle: int) -> None:
        self._event(uuid, TrackEvent.TYPE_SLICE_END, cycle, "", {})

    def _event(self, uuid: int, kind: Any, cycle: int, name: str, details: Mapping[str, Detail]) -> None:
        packet = self._packet()
        packet.timestamp = cycle
        event = packet.track_event
        event.type, event.track_uuid = kind, uuid
        if name:
            event.name_iid = _interned(self._names, name, packet.interned_data.event_names)
        for key, value in details.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = _interned(self._keys, key, packet.interned_data.debug_annotation_names)
            if isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.string_value = value
        self._builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDS_STATE if self._started else _FIRST
        self._started = True
        return packet


def _interned(known: dict[str, int], text: str, table: Any) -> int:
    """Return the id of a text, added to the packet's table at its first use."""
    if text not in known:
        known[text] = len(known) + 1
        entry = table.add()
        entry.iid, entry.name = known[text], text
    return known[text]


def write_tracks(file: IO[bytes], tracks: Iterable[Track], about: Mapping[str, Detail]) -> None:
    """Write a whole trace: first what it is about, then the tracks."""
    writer = PerfettoWriter(file)
    writer.instant(("about this trace",), "about this trace", about)
    for track in tracks:
        writer.track(track)
