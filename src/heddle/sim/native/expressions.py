"""Expressions: 64-bit integers with Python's meaning (floor division, short circuits), and i1 conditions."""

from __future__ import annotations

import ast
from types import FunctionType

from heddle.sim.native.source import Source, read, symbol_of
from heddle.sim.native.writer import Writer

PLAIN_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
INTRINSICS = {"min": "llvm.smin.i64", "max": "llvm.smax.i64"}


def _ctz(out: Writer, arguments: list[str]) -> str:
    return f"call i64 @llvm.cttz.i64(i64 {arguments[0]}, i1 false)"


def _top(out: Writer, arguments: list[str]) -> str:
    zeros = out.value(f"call i64 @llvm.ctlz.i64(i64 {arguments[0]}, i1 false)")
    return f"sub i64 63, {zeros}"


def _bit(out: Writer, arguments: list[str]) -> str:
    return f"shl i64 1, {arguments[0]}"


def _drop_lowest(out: Writer, arguments: list[str]) -> str:
    less = out.value(f"sub i64 {arguments[0]}, 1")
    return f"and i64 {arguments[0]}, {less}"


def _above(out: Writer, arguments: list[str]) -> str:
    mask = out.value(f"shl i64 -2, {arguments[1]}")
    return f"and i64 {arguments[0]}, {mask}"


def _popcount(out: Writer, arguments: list[str]) -> str:
    return f"call i64 @llvm.ctpop.i64(i64 {arguments[0]})"


def _span(out: Writer, arguments: list[str]) -> str:
    from_first = out.value(f"shl i64 -1, {arguments[0]}")
    over = out.value(f"sub i64 63, {arguments[1]}")
    return f"and i64 {from_first}, {out.value(f'lshr i64 -1, {over}')}"


def _rotated(out: Writer, arguments: list[str]) -> str:
    return f"call i64 @llvm.fshr.i64(i64 {arguments[0]}, i64 {arguments[0]}, i64 {arguments[1]})"


def _call_policy(out: Writer, arguments: list[str]) -> str:
    function = out.value(f"inttoptr i64 {arguments[0]} to ptr")
    return f"call i64 {function}({', '.join(f'i64 {argument}' for argument in arguments[1:])})"


SPECIAL = {
    "bit": _bit,
    "ctz": _ctz,
    "top": _top,
    "drop_lowest": _drop_lowest,
    "above": _above,
    "popcount": _popcount,
    "span": _span,
    "rotated": _rotated,
    "call_policy": _call_policy,
}
"""Functions of `core.bits` that are instructions here, by name."""


class Expressions:
    """Lower the expressions of one function. `called` collects the functions that it calls."""

    def __init__(self, source: Source, writer: Writer) -> None:
        self.source, self.out = source, writer
        self.arrays = {name for name, is_array in source.parameters if is_array}
        self.called: dict[str, FunctionType] = {}

    # ---- values

    def value(self, node: ast.expr) -> str:
        """Lower an expression to an i64 operand."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return str(int(node.value))
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Subscript):
            return self.out.value(f"load i64, ptr {self.address(node)}")
        if isinstance(node, ast.BinOp):
            return self.binary(node.op, self.value(node.left), self.value(node.right), node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.out.value(f"sub i64 0, {self.value(node.operand)}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self.out.value(f"xor i64 -1, {self.value(node.operand)}")
        if isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
            return self.out.value(f"zext i1 {self.condition(node)} to i64")
        if isinstance(node, ast.IfExp):
            return self.choice(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        raise self.source.error(node, f"cannot compile {type(node).__name__}")

    def name(self, node: ast.Name) -> str:
        """Load a local variable, or take a global constant."""
        if self.out.known(node.id):
            return self.out.value(f"load i64, ptr {self.out.variable(node.id)}")
        constant = self.source.names.get(node.id)
        if isinstance(constant, int):
            return str(int(constant))
        raise self.source.error(node, f"{node.id} is neither a local variable nor a global integer")

    def address(self, node: ast.Subscript) -> str:
        """Return the address of an array element."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.arrays:
            raise self.source.error(node, "only array parameters have elements")
        return self.out.value(f"getelementptr inbounds i64, ptr %a.{node.value.id}, i64 {self.value(node.slice)}")

    def binary(self, operator: ast.operator, left: str, right: str, node: ast.AST) -> str:
        """Apply an operator; division rounds down, and a remainder has the sign of the divisor, as in Python."""
        if type(operator) in PLAIN_OPERATORS:
            return self.out.value(f"{PLAIN_OPERATORS[type(operator)]} i64 {left}, {right}")
        if not isinstance(operator, ast.FloorDiv | ast.Mod):
            raise self.source.error(node, f"no operator {type(operator).__name__}")
        out = self.out
        rest = out.value(f"srem i64 {left}, {right}")
        signs = out.value(f"xor i64 {rest}, {right}")
        differ = out.value(f"icmp slt i64 {signs}, 0")
        inexact = out.value(f"icmp ne i64 {rest}, 0")
        adjust = out.value(f"and i1 {differ}, {inexact}")
        if isinstance(operator, ast.Mod):
            moved = out.value(f"add i64 {rest}, {right}")
            return out.value(f"select i1 {adjust}, i64 {moved}, i64 {rest}")
        quotient = out.value(f"sdiv i64 {left}, {right}")
        return out.value(f"sub i64 {quotient}, {out.value(f'zext i1 {adjust} to i64')}")

    def choice(self, node: ast.IfExp) -> str:
        """Lower `a if c else b`; only the chosen side is evaluated."""
        out = self.out
        place = out.variable(out.fresh("choice."))
        then, otherwise, after = out.fresh("then"), out.fresh("else"), out.fresh("after")
        out.branch(self.condition(node.test), then, otherwise)
        for block, side in ((then, node.body), (otherwise, node.orelse)):
            out.start(block)
            out.line(f"store i64 {self.value(side)}, ptr {place}")
            out.jump(after)
        out.start(after)
        return out.value(f"load i64, ptr {place}")

    # ---- conditions

    def condition(self, node: ast.expr) -> str:
        """Lower an expression to an i1 operand: whether it is true."""
        if isinstance(node, ast.BoolOp):
            return self.both(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.out.value(f"xor i1 {self.condition(node.operand)}, true")
        if isinstance(node, ast.Compare):
            return self.compare(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
            return self.condition(node.args[0])
        return self.out.value(f"icmp ne i64 {self.value(node)}, 0")

    def compare(self, node: ast.Compare) -> str:
        """Lower a comparison, or a chain of them."""
        left, result = self.value(node.left), ""
        if isinstance(node.ops[0], ast.In):
            return self.one_of(left, node)
        for operator, side in zip(node.ops, node.comparators, strict=True):
            if type(operator) not in COMPARISONS:
                raise self.source.error(node, f"no comparison {type(operator).__name__}")
            right = self.value(side)
            one = self.out.value(f"icmp {COMPARISONS[type(operator)]} i64 {left}, {right}")
            result = one if not result else self.out.value(f"and i1 {result}, {one}")
            left = right
        return result

    def one_of(self, left: str, node: ast.Compare) -> str:
        """Lower `a in (b, c, ...)`."""
        if not isinstance(node.comparators[0], ast.Tuple) or len(node.ops) > 1:
            raise self.source.error(node, "only `in` with a tuple")
        result = "false"
        for element in node.comparators[0].elts:
            one = self.out.value(f"icmp eq i64 {left}, {self.value(element)}")
            result = self.out.value(f"or i1 {result}, {one}")
        return result

    def both(self, node: ast.BoolOp) -> str:
        """Lower and/or; the right side is evaluated only if it matters."""
        out, is_and = self.out, isinstance(node.op, ast.And)
        place = out.variable(out.fresh("both."))
        after = out.fresh("after")
        for i, side in enumerate(node.values):
            condition = self.condition(side)
            out.line(f"store i64 {out.value(f'zext i1 {condition} to i64')}, ptr {place}")
            if i + 1 < len(node.values):
                following = out.fresh("next")
                out.branch(condition, *((following, after) if is_and else (after, following)))
                out.start(following)
        out.start(after)
        return out.value(f"icmp ne i64 {out.value(f'load i64, ptr {place}')}, 0")

    # ---- calls

    def call(self, node: ast.Call) -> str:
        """Lower a call that has a value."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.source.error(node, "only plain calls of functions by name")
        name = node.func.id
        if name in ("int", "bool"):
            return self.value(node.args[0]) if name == "int" else self.value_of_condition(node.args[0])
        if name in INTRINSICS:
            result = self.value(node.args[0])
            for argument in node.args[1:]:
                result = self.out.value(f"call i64 @{INTRINSICS[name]}(i64 {result}, i64 {self.value(argument)})")
            return result
        return self.out.value(self.invocation(node))

    def value_of_condition(self, node: ast.expr) -> str:
        """Return 1 or 0."""
        return self.out.value(f"zext i1 {self.condition(node)} to i64")

    def invocation(self, node: ast.Call) -> str:
        """Return the text of a call instruction."""
        assert isinstance(node.func, ast.Name)
        if (special := SPECIAL.get(node.func.id)) is not None:
            return special(self.out, [self.value(argument) for argument in node.args])
        target = self.source.names.get(node.func.id)
        if not isinstance(target, FunctionType):
            raise self.source.error(node, f"{node.func.id} is not a function of the core")
        self.called[symbol_of(target)] = target
        arguments = []
        for argument in node.args:
            if isinstance(argument, ast.Name) and argument.id in self.arrays:
                arguments.append(f"ptr %a.{argument.id}")
            else:
                arguments.append(f"i64 {self.value(argument)}")
        return f'call {type_of(read(target).results)} @"{symbol_of(target)}"({", ".join(arguments)})'


def type_of(results: int) -> str:
    """Return the LLVM type of that many integers."""
    if results <= 1:
        return ("void", "i64")[results]
    return "{" + ", ".join(["i64"] * results) + "}"
