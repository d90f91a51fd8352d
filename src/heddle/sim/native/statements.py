"""Statements and whole functions."""

from __future__ import annotations

import ast

from heddle.sim.native.expressions import Expressions, type_of
from heddle.sim.native.profile import Counts
from heddle.sim.native.source import Source
from heddle.sim.native.writer import Writer


def is_cold(tree: ast.FunctionDef) -> bool:
    """Tell whether a function is marked as seldom called (`core.bits.cold`)."""
    return any(isinstance(mark, ast.Name) and mark.id == "cold" for mark in tree.decorator_list)


class Statements:
    """Lower the body of one function."""

    def __init__(self, source: Source, counts: Counts | None = None, counter: int | None = None) -> None:
        self.source, self.out = source, Writer(counts, counter)
        self._mark = "" if counts is None else counts.mark()
        if counter is not None:
            self.out.count(0)
        self.expressions = Expressions(source, self.out)
        self._loops: list[tuple[str, str]] = []  # (where continue goes, where break goes)

    def function(self, *, exported: bool) -> str:
        """Return the function as LLVM text."""
        source, out = self.source, self.out
        for name, is_array in source.parameters:
            if not is_array:
                out.line(f"store i64 %a.{name}, ptr {out.variable(name)}")
        self.block(source.tree.body)
        if not out.ended:
            out.finish(("ret void", "ret i64 -1")[source.results] if source.results < 2 else "unreachable")
        kinds = [f"ptr noalias %a.{name}" if array else f"i64 %a.{name}" for name, array in source.parameters]
        linkage = "" if exported else "internal "
        # no tables of jumps, and one section: nothing is too far away for the small code model
        attributes = '"no-jump-tables"="true" nounwind' + (" cold noinline" if is_cold(source.tree) else "")
        head = f'define {linkage}{type_of(source.results)} @"{source.symbol}"({", ".join(kinds)})'
        return out.text(f'{head} {attributes} section ".text"{self._mark}')

    def block(self, body: list[ast.stmt]) -> None:
        """Lower statements one after the other."""
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            raise self.source.error(node, f"cannot compile {type(node).__name__}")
        method(node)

    def on_Pass(self, node: ast.Pass) -> None:
        """Nothing to do."""

    def on_Expr(self, node: ast.Expr) -> None:
        """Lower a call for its effect; documentation is skipped."""
        if isinstance(node.value, ast.Call):
            self.out.line(self.expressions.invocation(node.value))
        elif not isinstance(node.value, ast.Constant):
            raise self.source.error(node, "an expression without effect")

    def store(self, target: ast.expr, value: str) -> None:
        """Store an operand in a variable or an array element."""
        if isinstance(target, ast.Name):
            self.out.line(f"store i64 {value}, ptr {self.out.variable(target.id)}")
        elif isinstance(target, ast.Subscript):
            self.out.line(f"store i64 {value}, ptr {self.expressions.address(target)}")
        else:
            raise self.source.error(target, f"cannot assign to {type(target).__name__}")

    def on_Assign(self, node: ast.Assign) -> None:
        """Lower an assignment, of one value or of as many as the target has names."""
        (target,) = node.targets if len(node.targets) == 1 else (None,)
        if target is None:
            value = self.expressions.value(node.value)
            for each in node.targets:
                self.store(each, value)
        elif not isinstance(target, ast.Tuple):
            self.store(target, self.expressions.value(node.value))
        elif isinstance(node.value, ast.Tuple):
            values = [self.expressions.value(element) for element in node.value.elts]
            for element, value in zip(target.elts, values, strict=True):
                self.store(element, value)
        else:
            assert isinstance(node.value, ast.Call)
            result = self.out.value(self.expressions.invocation(node.value))
            for i, element in enumerate(target.elts):
                self.store(element, self.out.value(f"extractvalue {type_of(len(target.elts))} {result}, {i}"))

    def on_AugAssign(self, node: ast.AugAssign) -> None:
        """Lower `a += b`."""
        if isinstance(node.target, ast.Name):
            old = self.expressions.value(node.target)
            new = self.expressions.binary(node.op, old, self.expressions.value(node.value), node)
            self.store(node.target, new)
            return
        assert isinstance(node.target, ast.Subscript)
        place = self.expressions.address(node.target)
        right = self.expressions.value(node.value)
        old = self.out.value(f"load i64, ptr {place}")
        self.out.line(f"store i64 {self.expressions.binary(node.op, old, right, node)}, ptr {place}")

    def on_Return(self, node: ast.Return) -> None:
        """Lower a return; a function that returns a tuple may return another such function's result."""
        results, value = self.source.results, node.value
        if value is None:
            self.out.finish("ret void")
        elif results == 1:
            self.out.finish(f"ret i64 {self.expressions.value(value)}")
        elif isinstance(value, ast.Tuple):
            pair = "undef"
            for i, element in enumerate(value.elts):
                operand = self.expressions.value(element)
                pair = self.out.value(f"insertvalue {type_of(results)} {pair}, i64 {operand}, {i}")
            self.out.finish(f"ret {type_of(results)} {pair}")
        else:
            assert isinstance(value, ast.Call)
            result = self.out.value(self.expressions.invocation(value))
            self.out.finish(f"ret {type_of(results)} {result}")

    def on_If(self, node: ast.If) -> None:
        """Lower if, elif, else."""
        out = self.out
        then, otherwise, after = out.fresh("then"), out.fresh("else"), out.fresh("after")
        out.branch(self.expressions.condition(node.test), then, otherwise)
        out.start(then)
        self.block(node.body)
        if not out.ended:
            out.jump(after)
        out.start(otherwise)
        self.block(node.orelse)
        if not out.ended:
            out.jump(after)
        out.start(after)

    def on_While(self, node: ast.While) -> None:
        """Lower while, with break and continue."""
        out = self.out
        test, body, after = out.fresh("test"), out.fresh("body"), out.fresh("after")
        out.start(test)
        out.branch(self.expressions.condition(node.test), body, after)
        out.start(body)
        self._loops.append((test, after))
        self.block(node.body)
        self._loops.pop()
        if not out.ended:
            out.jump(test)
        out.start(after)

    def on_For(self, node: ast.For) -> None:
        """Lower `for i in range(...)`; the bounds are evaluated once."""
        call, out = node.iter, self.out
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise self.source.error(node, "only loops over a range")
        bounds = [self.expressions.value(argument) for argument in call.args]
        first, last = ("0", bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        step = bounds[2] if len(bounds) == 3 else "1"
        counter = out.variable(out.fresh("counter."))
        out.line(f"store i64 {first}, ptr {counter}")
        test, body, onward, after = out.fresh("test"), out.fresh("body"), out.fresh("onward"), out.fresh("after")
        out.start(test)
        now = out.value(f"load i64, ptr {counter}")
        out.branch(out.value(f"icmp slt i64 {now}, {last}"), body, after)
        out.start(body)
        self.store(node.target, now)
        self._loops.append((onward, after))
        self.block(node.body)
        self._loops.pop()
        out.start(onward)
        more = out.value(f"add i64 {out.value(f'load i64, ptr {counter}')}, {step}")
        out.line(f"store i64 {more}, ptr {counter}")
        out.jump(test)
        out.start(after)

    def on_Break(self, node: ast.Break) -> None:
        """Leave the loop."""
        self.out.jump(self._loops[-1][1])

    def on_Continue(self, node: ast.Continue) -> None:
        """Go on with the loop's next round."""
        self.out.jump(self._loops[-1][0])
