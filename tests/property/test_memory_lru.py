"""Do the tags agree with a plain model of an LRU cache of blocks and pieces?"""

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.sim.core import memory_layout as layout
from heddle.sim.core.memory import memory_access
from heddle.sim.launch import plan_launch
from heddle.sim.memory_system import build_memory
from memory_cases import CLOCK_MHZ, machine, stream_program

PARTS, PIECE = 4, 256
accesses = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, PARTS - 1), st.sampled_from((1, 2, 4)), st.integers(0, 2)),
    max_size=120,
)


class PlainCache:
    """Blocks in order of use; each maps its resident pieces to whether they are dirty."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: OrderedDict[int, dict[int, bool]] = OrderedDict()
        self.read = self.written = 0

    def access(self, block: int, pieces: range, kind: int) -> None:
        held = self.blocks.setdefault(block, {})
        self.blocks.move_to_end(block)
        for piece in pieces:
            if piece not in held:
                held[piece] = False
                self.read += PIECE if kind != layout.KIND_STORE else 0
        while sum(len(pieces) for pieces in self.blocks.values()) * PIECE > self.capacity and len(self.blocks) > 1:
            _, left = self.blocks.popitem(last=False)
            self.written += PIECE * sum(left.values())
        if kind != layout.KIND_LOAD:
            for piece in pieces:
                held[piece] = True


@settings(max_examples=150, deadline=None)
@given(accesses, st.integers(1, 6))
def test_tags_agree_with_a_plain_model(requests: list[tuple[int, int, int, int]], capacity_kb: int) -> None:
    m = machine("h100", l2_bytes=capacity_kb * 1024)
    p = stream_program(blocks=12, block_bytes=PARTS * PIECE, parts=PARTS)
    mem = build_memory(p, m, plan_launch(p, m), mode="chip", clock_mhz=CLOCK_MHZ, l2_state="cold").buffer
    plain = PlainCache(capacity_kb * 1024)
    for i, (block, part, parts, kind) in enumerate(requests):
        t, part = 10_000 * i, part % parts
        memory_access(mem, t, 256 * t, 0, kind, 0, block, part, parts, PARTS * PIECE // parts, 0, 0, 0)
        plain.access(block, range(part * PARTS // parts, (part + 1) * PARTS // parts), kind)
        assert mem[layout.DRAM_READ] == plain.read
        assert mem[layout.DRAM_WRITE] == plain.written
        assert mem[layout.USED] == PIECE * sum(len(pieces) for pieces in plain.blocks.values())
