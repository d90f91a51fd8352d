"""Full and empty bits as carriers of knowledge (mode fiber): who waits for a bit knows what was done before it changed.

An instruction issues when the writes of its sources are over, and those who gave back its destination have read it.
So it knows what the last writer of each source knew, and what the reader that gave a destination back knew. An access
that no bit and no token orders learns nothing here, and shows as a race in tensor or shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from heddle.interp._clocks import Knowledge, Layout, Source
from heddle.interp._warps import Warp
from heddle.ir.opcodes import OPCODES, Unit
from heddle.ir.warp import RZ, Instruction, Register, WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS, TENSOR, Bind

Key = tuple[int, int, int, bool, int]
"""Cluster, CTA, subpartition, whether in tensor memory, number."""
_NO_BIND = Bind()


class Channels:
    """What is known through the bits of pool registers and of columns of tensor memory."""

    def __init__(self, program: WarpProgram, layout: Layout) -> None:
        note = program.fiber
        self.layout = layout
        self.pool = range(note.pool_first, note.pool_limit) if note is not None else range(0)
        self.written: dict[Key, Knowledge] = {}
        self.given_back: dict[Key, Knowledge] = {}
        self.bound: dict[int, tuple[int, Bind]] = {}  # by id of the weft: the pc of the partner

    def wait(self, warp: Warp, instruction: Instruction) -> None:
        """An instruction is about to issue: its bits allow it."""
        for source in instruction.src:
            self._join(warp, source, self.written)
        if instruction.dst is not None:
            self._join(warp, instruction.dst, self.given_back)

    def bind(self, warp: Warp, pc: int, bind: Bind | None) -> None:
        """Keep a bind at `pc` for the weft's next instruction."""
        self.bound[id(warp)] = (pc + 1, bind or _NO_BIND)

    def tell(self, warp: Warp, pc: int, instruction: Instruction) -> None:
        """An instruction has issued: whoever waits for it knows what its weft knows, and that it is over."""
        partner, bind = self.bound.pop(id(warp), (-1, _NO_BIND))
        if partner != pc:
            bind = _NO_BIND
        consumed = [k for slot in bind.consume for k in self._keys(warp, instruction.src[slot])]
        written = list(self._keys(warp, instruction.dst)) if instruction.dst is not None else []
        if not consumed and not written:
            return
        known = warp.release().copy()
        if OPCODES[instruction.op].unit is Unit.WEFT_MMA:
            known.learn(self.layout.of_warp(warp.cta.rank, warp.index, Source.MATRIX), warp.matrix.issued)
        self.given_back.update(dict.fromkeys(consumed, known))
        self.written.update(dict.fromkeys(written, known))

    def _join(self, warp: Warp, register: Register, table: dict[Key, Knowledge]) -> None:
        joined: set[int] = set()
        for key in self._keys(warp, register):
            known = table.get(key)
            if known is not None and id(known) not in joined:
                joined.add(id(known))
                warp.knowledge.join(known)

    def _keys(self, warp: Warp, register: Register) -> Iterator[Key]:
        if register.place is None and register.index == RZ:
            return
        tensor = register.place == TENSOR
        own = register.place is None or register.place < 0
        where = warp.index % SUBPARTITIONS if own else int(register.place or 0)
        first = register.index + (warp.role.base if register.place is None else 0)
        for number in range(first, first + register.count):
            if tensor or number in self.pool:
                yield (warp.cta.cluster.number, warp.cta.rank, where, tensor, number)
