"""Mutants of a module: its source with one mistake, of the kinds that people make.

Annotations, messages, asserts and what is raised or logged are left alone, because no test should
depend on them.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Sub: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
_DROPPED = (ast.Add, ast.Sub, ast.Mult, ast.BitOr, ast.BitAnd)
_PAIRS = [
    ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"),
    ("any", "all"), ("floor", "ceil"), ("union", "intersection"),
]  # fmt: skip
_OPPOSITES = {name: other for pair in _PAIRS for name, other in (pair, pair[::-1])}
_SILENT = ("logger", "warnings")
# Their first two arguments may be swapped.
_SYMMETRIC = (
    "min", "max", "minimum", "maximum", "mse_loss", "huber_loss", "isclose", "allclose", "equal",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One mistake: the text from `start` to `end`, in bytes, becomes another."""

    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str
    rank: str  # its place in the draw, which changes of other lines leave alone

    def apply(self, source: str) -> str:
        """Return the mutant of a source."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()

    def show(self) -> tuple[str, str]:
        """Return both texts from the word before their first difference."""
        before, after = " ".join(self.before.split()), " ".join(self.after.split())
        pairs = enumerate(zip(before, after, strict=False))
        common = next((at for at, (one, other) in pairs if one != other), 0)
        start = before.rfind(" ", 0, max(0, common - 12)) + 1
        return before[start:], after[start:]


def list_changes(source: str, file: str, seed: int) -> list[Change]:
    """Return all mistakes that a module can be given, in the order of its lines."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, seen = [], Counter[str]()
    for scope, kind, node, after in _walk(ast.parse(source), ""):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = data[start:end].decode()
        if after == before:  # equal arguments were swapped
            continue
        name = "\n".join((str(seed), file, scope, kind, before, after))
        seen[name] += 1
        rank = hashlib.sha256(f"{name}\n{seen[name]}".encode()).hexdigest()
        found.append(Change(kind, node.lineno, start, end, before, after, rank))
    return sorted(found, key=lambda change: (change.start, change.end, change.after))


_Found = tuple[str, str, ast.expr | ast.stmt, str]


def _walk(node: ast.AST, scope: str) -> Iterator[_Found]:
    """Yield the scope, the kind, the node and the new text of each change below a node."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}"
    for change in _mutate(node):
        yield scope, *change
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                yield from _walk(child, scope)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in _SILENT
        case ast.Call(func=ast.Name(id=name)):
            return name in ("cast", "TypeVar") or name.endswith(("Error", "Warning"))
    return False


def _mutate(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes of this node itself."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            yield "comparison", node, _text(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", node, str(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", node, repr(2 * value or 1.0)
        case ast.BinOp(left=left, op=operator):
            if type(operator) in _OPERATORS:
                yield "operator", node, _text(node, op=_OPERATORS[type(operator)]())
            if isinstance(operator, _DROPPED):
                yield "dropped term", node, _text(left)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "dropped not", node, _text(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "dropped sign", node, _text(operand)
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "operator", node, _text(node, op=other)
            yield "dropped term", node, _text(values[0])
        case ast.Call():
            yield from _mutate_call(node)
        case ast.Expr(value=ast.Call() as call) if not _is_left_alone(call):
            yield "dropped call", node, "pass"
        case ast.AugAssign(op=ast.Add()):
            yield "operator", node, ast.unparse(ast.AugAssign(node.target, ast.Sub(), node.value))
        case ast.Continue() | ast.Break():
            yield "dropped jump", node, "pass"
        case ast.If(test=test) | ast.IfExp(test=test) if isinstance(
            test, ast.Name | ast.Attribute | ast.Call
        ):
            yield "condition", test, f"(not {ast.unparse(test)})"
        case ast.comprehension(ifs=[condition]):
            yield "condition", condition, "True"


def _mutate_call(node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    function, arguments = node.func, node.args
    name = getattr(function, "id", getattr(function, "attr", ""))
    if name in _OPPOSITES:
        other = copy.deepcopy(function)
        setattr(other, "id" if isinstance(other, ast.Name) else "attr", _OPPOSITES[name])
        yield "opposite", function, _text(other)
    is_starred = any(isinstance(each, ast.Starred) for each in arguments[:2])
    if len(arguments) > 1 and not is_starred and name not in _SYMMETRIC:
        swapped = [arguments[1], arguments[0], *arguments[2:]]
        yield "swapped arguments", node, _text(node, args=swapped)
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            left = node.keywords[:place] + node.keywords[place + 1 :]
            yield "dropped argument", node, _text(node, keywords=left)


def _text(node: ast.AST, **changes: object) -> str:
    """Return the source of a node with changed fields, safe in every place."""
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    text = ast.unparse(changed)
    plain = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript
    return text if isinstance(node, plain) else f"({text})"
