"""Write one function as LLVM text: registers, blocks, variables."""

from __future__ import annotations

from heddle.sim.native.profile import COUNTERS, Counts


class Writer:
    """The text of a function under construction. Values are LLVM operands (`%7` or `42`), all of type i64 or i1."""

    def __init__(self, counts: Counts | None = None, counter: int | None = None) -> None:
        """`counts`: the profile of the function; `counter`: number of its first counter if it is to count branches."""
        self._counts, self._counter = counts, counter
        self.branches = 0  # conditional ones so far
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.block = "begin"
        self.ended = False  # the current block has its branch
        self._variables: dict[str, str] = {}

    def fresh(self, hint: str = "v") -> str:
        """Return a new local name without the percent sign."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Add an instruction without a result; what follows a branch is unreachable and dropped."""
        if not self.ended:
            self._lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Add an instruction and return its result."""
        name = f"%{self.fresh()}"
        self.line(f"{name} = {text}")
        return name

    def variable(self, name: str) -> str:
        """Return the stack place of a local variable; the optimizer turns it into registers."""
        if name not in self._variables:
            place = f"%{self.fresh('at.')}"
            self._variables[name] = place
            self._entry.append(f"  {place} = alloca i64")
        return self._variables[name]

    def known(self, name: str) -> bool:
        """Tell whether a local variable has been assigned to."""
        return name in self._variables

    def start(self, block: str) -> None:
        """Begin a block."""
        if not self.ended:
            self.jump(block)
        self._lines.append(f"{block}:")
        self.block, self.ended = block, False

    def jump(self, block: str) -> None:
        """End the block with a jump."""
        self.line(f"br label %{block}")
        self.ended = True

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End the block with a conditional jump."""
        if self._counter is not None:
            self.count(1 + 2 * self.branches, condition)
        weights = self._counts.weights(self.branches) if self._counts is not None else ""
        self.branches += 1
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}{weights}")
        self.ended = True

    def count(self, number: int, condition: str = "false") -> None:
        """Count in one of the function's counters, or if the condition holds in the one after it."""
        assert self._counter is not None
        place = self.value(f"add i64 {self._counter + number}, {self.value(f'zext i1 {condition} to i64')}")
        place = self.value(f"getelementptr i64, ptr @{COUNTERS}, i64 {place}")
        more = self.value(f"add i64 {self.value(f'load i64, ptr {place}')}, 1")
        self.line(f"store i64 {more}, ptr {place}")

    def finish(self, text: str) -> None:
        """End the block with a return."""
        self.line(text)
        self.ended = True

    def text(self, head: str) -> str:
        """Return the whole function."""
        return "\n".join([head + " {", "begin:", *self._entry, *self._lines, "}"])
