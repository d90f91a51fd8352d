"""Where entries of AQLM's codebooks are looked up by kernels whose warps make weights for others."""

from __future__ import annotations

from heddle.kernels.w4a16.items import WORD
from heddle.kernels.w4a16.shape import BOOKS, COPIES, ENTRIES, W4Problem
from heddle.lang import Builder, GlobalBox, SharedBox

BOOK_BARRIER = 1


class Codebook:
    """Two codebooks of 256 entries in shared memory, eight times side by side; one of 65,536 stays in global memory.

    `makers`: the warps that look up.
    """

    def __init__(self, k: Builder, problem: W4Problem, makers: int) -> None:
        self.k, self.makers = k, makers
        self.books, entries = BOOKS[problem.scheme], ENTRIES[problem.scheme]
        self.book = k.tensor("K", (entries, WORD), problem.dtype)
        self.shared = k.shared("book", (entries, COPIES * WORD), problem.dtype) if self.books > 1 else None

    @property
    def place(self) -> SharedBox | GlobalBox:
        """Where entries are looked up."""
        return self.shared[:] if self.shared else self.book[0, 0]

    def begin(self, number: int = 0) -> None:
        """Copy what lies in shared memory, once for all tiles: the warps with number 0, each a part; all wait."""
        if self.shared is None:
            return
        k = self.k
        for copy in range(COPIES if number == 0 else 0):
            k.cp_async(self.shared[:].part(col=copy * WORD, cols=WORD), self.book[0, 0])
        if number == 0:
            k.cp_async_commit()
            k.cp_async_wait(pending=0)
        k.sync(BOOK_BARRIER, warps=self.makers)
