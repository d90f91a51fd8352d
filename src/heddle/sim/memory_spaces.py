"""Block spaces: which streams are the same memory, and into how many pieces their blocks are cut.

Streams of one tensor with equal `blocks` and `block_bytes` share a space; streams of one tensor that cut it differently
are separate memory (an approximation, see docs/explanation/memory.md). Rule: docs/reference/engine.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from heddle.ir.warp import WarpProgram
from heddle.sim.core.memory_layout import PIECES


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpace:
    """The block space of a stream. `number`: equal for streams of one space."""

    number: int
    blocks: int
    pieces: int
    piece_bytes: int

    @property
    def bytes(self) -> int:
        """Global memory that the blocks take."""
        return self.blocks * self.pieces * self.piece_bytes


def _pieces(parts: list[int]) -> int:
    """Return the least common multiple of all `parts`, or its largest divisor that a mask can hold."""
    whole = math.lcm(*(max(1, count) for count in parts)) if parts else 1
    return next(count for count in range(min(whole, PIECES), 0, -1) if whole % count == 0)


def stream_spaces(program: WarpProgram) -> list[StreamSpace]:
    """Return the space of each stream of the program, in the order of `program.streams`."""
    keys = [(stream.tensor, stream.blocks, stream.block_bytes) for stream in program.streams]
    parts: dict[tuple[str, int, int], list[int]] = {key: [] for key in keys}
    key_of = {stream.name: key for stream, key in zip(program.streams, keys, strict=True)}
    for instruction in program.instructions:
        if instruction.stream is not None:
            parts[key_of[instruction.stream.name]].append(instruction.stream.parts)
    spaces: dict[tuple[str, int, int], StreamSpace] = {}
    for key in keys:
        if key in spaces:
            continue
        _, blocks, block_bytes = key
        pieces = _pieces(parts[key])
        piece_bytes = -(-block_bytes // pieces)
        spaces[key] = StreamSpace(number=len(spaces), blocks=blocks, pieces=pieces, piece_bytes=piece_bytes)
    return [spaces[key] for key in keys]
