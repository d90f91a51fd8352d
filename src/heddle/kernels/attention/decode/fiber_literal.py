"""Decoding for wefts without full and empty bits: each copies its own keys and values into shared memory.

Four wefts, one a subpartition and each a role, take a quarter of the keys of every step. A weft copies its quarter
several steps ahead, waits for its own copies alone, and multiplies by mma.sync with 16 rows for the query heads. No
register is shared, and nothing waits for another weft but the sum of the four results, which meet in shared memory.
"""

from __future__ import annotations

from heddle.kernels.attention.decode.fiber_parts import ROWS, WEFTS, Giver, SharedParts
from heddle.kernels.attention.decode.fiber_sum import COMBINE_REGISTERS, Sum
from heddle.kernels.attention.decode.shape import DecodeProblem
from heddle.kernels.attention.softmax import OnlineSoftmax
from heddle.lang import Builder, Index, Item, kernel

STEP_ELEMENTS = 2048
"""Of K and of V that a weft takes at a time."""
EDGE_STEPS = 2
"""Steps of a block of keys: the last ones of an item, beyond whose end keys may lie."""
ROLE_REGISTERS = 200
"""Of a weft: Q's and the other fragments, O, scores and addresses."""


def weft_keys(problem: DecodeProblem) -> int:
    """Return the keys of a weft in a step."""
    return STEP_ELEMENTS // problem.head_dim


def stage_bytes(problem: DecodeProblem) -> int:
    """Return the shared memory of a step of K and V of all wefts."""
    return 2 * WEFTS * weft_keys(problem) * problem.head_dim * problem.packed.element_bytes


def other_bytes(problem: DecodeProblem) -> int:
    """Return the shared memory beside the stages: Q, the four results and their logarithms."""
    parts = WEFTS * ROWS * (problem.head_dim + 1) * 4
    return WEFTS * ROWS * problem.head_dim * problem.packed.element_bytes + parts


def step_items(problem: DecodeProblem, items: dict[str, list[int]], stages: int) -> dict[str, list[int]]:
    """Return the items with their steps: those behind which one is copied, those left then, and whether there are few.

    steady: steps in which a later one is copied; rest: the others without the last `EDGE_STEPS`; has_i: whether there
    is a step i.
    """
    ahead = stages - 1
    steps = [(more + 1) * EDGE_STEPS for more in items["more"]]
    flags = {f"has_{step}": [int(count > step) for count in steps] for step in range(EDGE_STEPS, ahead)}
    steady = [max(count - ahead, 0) for count in steps]
    rest = [count - copied - EDGE_STEPS for count, copied in zip(steps, steady, strict=True)]
    return {**items, **flags, "steady": steady, "rest": rest}


@kernel
def decode_split_fiber_literal(
    k: Builder, problem: DecodeProblem, items: dict[str, list[int]], threads: int, stages: int
) -> None:
    """Persistent over splits of keys."""
    k.flops = problem.packed.flops
    items = step_items(problem, items, stages)
    k.work_items(items, clusters=threads)
    parts = SharedParts(k, problem)
    total = Sum(k, problem, parts)
    wefts = Wefts(k, problem, parts, stages)
    k.set_fiber_num(**{f"keys{quarter}": 1 for quarter in range(WEFTS)}, combine=1)

    for quarter in range(WEFTS):
        with k.role(f"keys{quarter}", window=1, registers=ROLE_REGISTERS):
            weft = Weft(wefts, quarter)
            for item in k.work():
                weft.split(item, any(items["steady"]), any(items["rest"]))
            weft.giver.close()
    with k.role("combine", window=0, registers=COMBINE_REGISTERS):
        parts.open()
        for item in k.work():
            total.write(item)


class Wefts:
    """What the four wefts have in common: tensors in global memory."""

    def __init__(self, k: Builder, problem: DecodeProblem, parts: SharedParts, stages: int) -> None:
        self.k, self.problem, self.parts, self.stages = k, problem, parts, stages
        shape = (problem.planes, problem.seqlen_kv, problem.head_dim)
        self.q_global = k.tensor("Q", (problem.planes, problem.group, problem.head_dim), problem.dtype)
        self.kv_global = [k.tensor(name, shape, problem.dtype) for name in ("K", "V")]


class Weft:
    """One weft: its keys, copied ahead in a ring, and its softmax."""

    def __init__(self, wefts: Wefts, quarter: int) -> None:
        self.k, self.wefts, self.problem, self.quarter = wefts.k, wefts, wefts.problem, quarter
        k, d, dtype, self.keys = self.k, self.problem.head_dim, self.problem.dtype, weft_keys(self.problem)
        self.ahead = wefts.stages - 1
        self.query = k.shared(f"q{quarter}", (ROWS, d), dtype)
        names = (f"k{quarter}", f"v{quarter}")
        self.kv = [k.shared(name, (self.keys, d), dtype, stages=wefts.stages) for name in names]
        self.ring = k.ring(f"ring{quarter}", wefts.stages)
        self.scores = k.registers(f"scores{quarter}", (ROWS, self.keys), "fp32", warps=(1, 1))
        self.weights = k.registers(f"weights{quarter}", (ROWS, self.keys), dtype, warps=(1, 1))
        self.output = k.registers(f"output{quarter}", (ROWS, d), "fp32", warps=(1, 1))
        self.softmax = OnlineSoftmax(k, f"softmax{quarter}", self.problem.packed, ROWS, (1, 1))
        log = k.registers(f"own_log{quarter}", (ROWS, 1), "fp32", warps=(1, 1))
        self.giver = Giver(wefts.parts, log, quarter * ROWS)

    def split(self, item: Item, has_steady: bool, has_rest: bool) -> None:
        """All keys of a split, and what they give."""
        k, edge = self.k, item.last
        self._begin(item)
        if has_steady:
            with k.when(item.steady):
                for step in k.range(item.steady, name=f"steady{self.quarter}"):
                    self._arrived()
                    self._copy(item, item.first + self.ahead * self._step_keys + step * self._step_keys, self.ahead)
                    self._step(item, None)
        if has_rest:
            with k.when(item.rest):
                for _ in k.range(item.rest, name=f"rest{self.quarter}"):
                    self._arrived()
                    k.cp_async_commit()
                    self._step(item, None)
        for number in range(EDGE_STEPS):
            self._arrived()
            k.cp_async_commit()
            self._step(item, edge + number * self._step_keys + self.quarter * self.keys)
        self.softmax.finish()
        self.giver.give(self.softmax, [self.output])

    @property
    def _step_keys(self) -> int:
        return WEFTS * self.keys

    def _begin(self, item: Item) -> None:
        """Q with the first step, and the steps that are copied ahead."""
        k = self.k
        k.cp_async(self.query[:], self.wefts.q_global[item.q_plane, item.row, 0])
        for step in range(self.ahead):
            if step < EDGE_STEPS:
                self._copy(item, item.first + step * self._step_keys, step)
                continue
            with k.when(getattr(item, f"has_{step}")):
                self._load(item, item.first + step * self._step_keys, step)
            k.cp_async_commit()
        k.fill(self.output)
        self.softmax.begin()

    def _copy(self, item: Item, row: Index, ahead: int) -> None:
        self._load(item, row, ahead)
        self.k.cp_async_commit()

    def _load(self, item: Item, row: Index, ahead: int) -> None:
        """Start the copies of this weft's keys and values of a step whose keys begin at `row`."""
        for tile, source in zip(self.kv, self.wefts.kv_global, strict=True):
            self.k.cp_async(tile[self.ring + ahead], source[item.kv_plane, row + self.quarter * self.keys, 0])

    def _arrived(self) -> None:
        """Wait for the copies of this step."""
        self.k.cp_async_wait(pending=self.ahead - 1)

    def _step(self, item: Item, masked_col: Index | None) -> None:
        """The keys of a step; `masked_col`: the first of them, if some may lie beyond the end."""
        k, softmax, (keys, values) = self.k, self.softmax, self.kv
        k.mma(self.scores, self.query[:], keys[self.ring], accumulate=False)
        if masked_col is not None:
            k.mask(self.scores, row=item.row, col=masked_col, limit=self.problem.seqlen_kv)
        softmax.maximum(self.scores)
        softmax.rescale(self.output)
        softmax.exponentials(self.scores)
        softmax.add(self.scores)
        k.elementwise("cast", self.weights, self.scores)
        k.mma(self.output, self.weights, values[self.ring], transposed=True)
        self.ring.advance()
