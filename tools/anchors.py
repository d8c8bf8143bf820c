"""Mutations of Python code, anchored so that they can be planted again after a refactoring.

An anchor holds the text of the statement that is mutated, the position of the mutated node within
it, and the texts of the statements around it. To find it again, every expression of the tree with
the same shape as the statement (or as a part of it that contains the mutated node) is a candidate.
The shape of code leaves out identifiers and strings, so renaming changes no shape. Candidates are
ranked by identifiers in common and by how many of the surrounding statements they still have.
"""

from __future__ import annotations

import ast
import builtins
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = frozenset({"math", "np", "numba", "pd", "plt", "scipy", "sparse", "special", "stats"})
"""Names of modules whose members keep their names: `np.minimum` is never a renamed `np.maximum`."""

FIXED = LIBRARIES | frozenset(dir(builtins))

WINDOW = 5
"""Number of statements that an anchor keeps on either side."""

REACH = 3
"""The kept statements are looked for in a window this many times as wide."""

LEAST_SCORE = 0.4
LEAST_LEAD = 0.05
"""A candidate is accepted with this score, and this much ahead of the next one."""

TELLING = 12
CLEAR_LEAD = 0.1
"""One with a lower score is accepted, too, if it is a whole statement of this many nodes or more,
and this much ahead: the statements around it may all be others."""

BODIES = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
SKIPPED = frozenset(
    {"annotation", "returns", "decorator_list", "ctx", "type_comment", "type_params"}
)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BARE = (ast.Import, ast.ImportFrom, ast.Try, ast.TryStar, ast.Pass, ast.Match)
"""Statements that are no anchors and no context: nothing in their own line tells them apart."""


class Identifier(NamedTuple):
    """A name or string within code, and whether it may have been renamed."""

    text: str
    kind: str  # "name", "member" or "text"
    fixed: bool


# --- shape --------------------------------------------------------------------------------------


def children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes directly within one, without bodies, annotations and parts of f-strings."""
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        if name in SKIPPED or (name in BODIES and isinstance(value, list)):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield name, item


def nodes(node: ast.AST) -> list[ast.AST]:
    """Return a node and all nodes within it, in a fixed order."""
    found = [node]
    for _, child in children(node):
        found.extend(nodes(child))
    return found


def identifiers(node: ast.AST) -> list[Identifier]:
    """Return names, members and strings in the order of `nodes`."""
    found = []
    for item in nodes(node):
        match item:
            case ast.Constant(value=str() | bytes() as value):
                found.append(Identifier(str(value), "text", fixed=False))
            case ast.JoinedStr():
                found.append(Identifier(ast.unparse(item), "text", fixed=False))
            case ast.Attribute(attr=attr):
                base: ast.AST = item
                while isinstance(base, ast.Attribute):
                    base = base.value
                fixed = isinstance(base, ast.Name) and base.id in LIBRARIES
                found.append(Identifier(attr, "member", fixed=fixed))
            case ast.keyword(arg=str() as text):
                found.append(Identifier(text, "member", fixed=False))
            case ast.Name(id=text) | ast.arg(arg=text):
                found.append(Identifier(text, "name", fixed=text in FIXED))
            case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text):
                found.append(Identifier(text, "name", fixed=False))
            case ast.ClassDef(name=text):
                found.append(Identifier(text, "name", fixed=False))
    return found


def shapes(node: ast.AST, into: dict[ast.AST, tuple[int, int]]) -> tuple[int, int]:
    """Store the shape (a hash) and the number of nodes of a node and of all nodes within it."""
    parts: list[object] = [type(node).__name__]
    if isinstance(node, ast.Constant):
        text = isinstance(node.value, str | bytes)
        parts.append("text" if text else repr(node.value))
    size = 1
    for name, child in children(node):
        shape, count = shapes(child, into)
        parts += (name, shape)
        size += count
    into[node] = hash(tuple(parts)), size
    return into[node]


def likeness(old: Sequence[Identifier], new: Sequence[Identifier]) -> float | None:
    """Return the share of equal identifiers, or None if `new` is no renaming of `old`."""
    if len(old) != len(new):
        return None
    renamed: dict[str, str] = {}
    for before, after in zip(old, new, strict=True):
        if before.kind != after.kind:
            return None
        if (before.fixed or after.fixed) and before.text != after.text:
            return None
        if before.kind == "name" and renamed.setdefault(before.text, after.text) != after.text:
            return None
    if not old:
        return 1.0
    return sum(a.text == b.text for a, b in zip(old, new, strict=True)) / len(old)


# --- source -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of a file without the statements in its body."""

    file: str
    node: ast.stmt
    at: int
    """Position among the statements of the file."""
    inside: tuple[ast.stmt, ...]
    """Definitions around it, the outermost first."""

    @cached_property
    def text(self) -> str:
        return header(self.node)

    @cached_property
    def identifiers(self) -> list[Identifier]:
        return identifiers(self.node)

    @property
    def function(self) -> str:
        """Qualified name of the function around it; empty at the level of a module or class."""
        if not any(isinstance(node, DEFINITIONS[:2]) for node in self.inside):
            return ""
        return ".".join(node.name for node in self.inside if isinstance(node, DEFINITIONS))


def header(node: ast.stmt) -> str:
    """Return the normalized text of a statement; one that has a body gets an empty one."""
    bare = copy.copy(node)
    for name, value in ast.iter_fields(node):
        if name == "body":
            setattr(bare, name, [ast.Pass()])
        elif name in BODIES or name == "decorator_list":
            setattr(bare, name, [])
        elif name == "returns":
            setattr(bare, name, None)
        elif isinstance(value, ast.arguments):
            setattr(bare, name, without_annotations(value))
    return ast.unparse(bare)


def without_annotations(arguments: ast.arguments) -> ast.arguments:
    """Return a copy of a function's parameters without their types."""
    bare = copy.deepcopy(arguments)
    for item in ast.walk(bare):
        if isinstance(item, ast.arg):
            item.annotation = None
    return bare


def statements(
    body: Sequence[ast.AST], inside: tuple[ast.stmt, ...] = ()
) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
    """Yield each statement below with the definitions around it, in the order of the file."""
    for node in body:
        if isinstance(node, ast.stmt):
            documented = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not documented and not isinstance(node, BARE):
                yield node, inside
        within = (*inside, node) if isinstance(node, DEFINITIONS) else inside
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            value = getattr(node, name, None)
            if isinstance(value, list):
                yield from statements(value, within)


@dataclass
class Tree:
    """All code of a package, with an index of its expressions by shape."""

    root: Path
    files: dict[str, list[Statement]] = field(default_factory=dict)
    sizes: dict[ast.AST, tuple[int, int]] = field(default_factory=dict)
    index: dict[int, list[tuple[Statement, ast.AST]]] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, package: str = "ratecli") -> Tree:
        tree = cls(root)
        for path in sorted((root / package).rglob("*.py")):
            tree.add(path.relative_to(root).as_posix(), ast.parse(path.read_bytes()))
        return tree

    def add(self, file: str, module: ast.Module) -> None:
        """Add the code of a file."""
        found = self.files[file] = [
            Statement(file, node, at, inside)
            for at, (node, inside) in enumerate(statements(module.body))
        ]
        for statement in found:
            shapes(statement.node, self.sizes)
            for node in nodes(statement.node):
                if self.sizes[node][1] > 1:
                    shape = self.sizes[node][0]
                    self.index.setdefault(shape, []).append((statement, node))

    def around(self, statement: Statement, by: int) -> tuple[list[Statement], list[Statement]]:
        """Return the statements before, the nearest first, and those after."""
        found = self.files[statement.file]
        before = found[max(0, statement.at - by) : statement.at]
        return before[::-1], found[statement.at + 1 : statement.at + 1 + by]


# --- anchors ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A change of one node of one statement, and what is needed to find the statement again."""

    id: str
    area: str
    kind: str
    statement: str
    node: int
    """Position of the mutated node in `nodes(statement)`."""
    expression: str
    file: str
    """Where it was when it was chosen; only for readers."""
    function: str
    before: tuple[str, ...]
    """Statements before it, the nearest first."""
    after: tuple[str, ...]
    inside: tuple[str, ...]
    """Headers of the definitions around it, the innermost first."""


@dataclass(frozen=True)
class Place:
    """Where a mutant is in a tree."""

    statement: Statement
    node: ast.AST
    score: float
    exact: bool
    """Whether the whole statement reads as it did."""
    size: int = 0
    """Number of nodes if the whole statement has the shape that it had, else 0."""


def parsed(text: str) -> ast.stmt:
    """Return the statement that a normalized text denotes."""
    return ast.parse(text).body[0]


@dataclass(frozen=True)
class Context:
    """One statement near an anchor."""

    shape: int
    identifiers: list[Identifier]
    weight: float

    @classmethod
    def of(cls, text: str, distance: int) -> Context:
        node = parsed(text)
        shape, size = shapes(node, {})
        return cls(shape, identifiers(node), math.log2(size) / (1 + distance / 4))

    def found(self, near: Sequence[Statement], tree: Tree) -> float:
        """Return how alike the most alike statement of the same shape is, from 0 to 1."""
        best = 0.0
        for statement in near:
            if tree.sizes[statement.node][0] == self.shape:
                alike = likeness(self.identifiers, statement.identifiers)
                if alike is not None:
                    best = max(best, 0.5 + 0.5 * alike)
        return best


def find(mutant: Mutant, tree: Tree) -> list[Place]:
    """Return places where a mutant may be, the likeliest first, each node once."""
    whole = parsed(mutant.statement)
    sizes: dict[ast.AST, tuple[int, int]] = {}
    shapes(whole, sizes)
    target = nodes(whole)[mutant.node]
    sides = [
        [Context.of(text, distance) for distance, text in enumerate(texts)]
        for texts in (mutant.before, mutant.after, mutant.inside)
    ]
    contexts: dict[Statement, float] = {}
    places: dict[ast.AST, Place] = {}
    for anchor in nodes(whole):
        within = nodes(anchor)
        if target not in within or sizes[anchor][1] < 2:
            continue
        position = within.index(target)
        share = math.sqrt(sizes[anchor][1] / sizes[whole][1])
        names = identifiers(anchor)
        for statement, node in tree.index.get(sizes[anchor][0], ()):
            alike = likeness(names, identifiers(node))
            if alike is None:
                continue
            if statement not in contexts:
                contexts[statement] = agreement(sides, statement, tree)
            score = 0.4 * share * (0.4 + 0.6 * alike) + 0.6 * contexts[statement]
            found = nodes(node)[position]
            if found not in places or places[found].score < score:
                exact = statement.text == mutant.statement
                size = sizes[whole][1] if anchor is whole else 0
                places[found] = Place(statement, found, score, exact, size)
    return sorted(places.values(), key=lambda place: -place.score)


def agreement(sides: Sequence[Sequence[Context]], statement: Statement, tree: Tree) -> float:
    """Return the weighted share of an anchor's context that a statement has around it."""
    before, after = tree.around(statement, WINDOW * REACH)
    headers = [item for item in tree.files[statement.file] if item.node in statement.inside]
    total = got = 0.0
    for side, near in zip(sides, (before, after, headers), strict=True):
        for context in side:
            total += context.weight
            got += context.weight * context.found(near, tree)
    return got / total if total else 0.0


def place_of(mutant: Mutant, tree: Tree) -> Place | None:
    """Return where a mutant is, or None if nothing is like enough or two places are alike."""
    found = find(mutant, tree)
    if not found:
        return None
    lead = found[0].score - found[1].score if len(found) > 1 else math.inf
    near = found[0].score >= LEAST_SCORE and lead >= LEAST_LEAD
    telling = found[0].size >= TELLING and lead >= CLEAR_LEAD
    return found[0] if near or telling else None


# --- mutations ----------------------------------------------------------------------------------

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("nanmin", "nanmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("sum", "prod"),
    ("mean", "sum"),
)
SWAPPED = {**{b: a for a, b in PAIRS}, **dict(PAIRS)}
"""Functions and methods that can stand for each other."""

UNWRAPPED = frozenset({"abs", "sorted", "sqrt", "log", "exp", "clip", "cumsum", "float"})
"""Functions that are replaced by their first argument."""


def mutations(statement: ast.stmt) -> Iterator[tuple[int, str]]:
    """Yield each mutation of a statement: the position of the node and the kind of change."""
    for position, node in enumerate(nodes(statement)):
        for kind in CHANGES:
            if changed(kind, node) is not None:
                yield position, kind


def changed(kind: str, node: ast.AST) -> str | None:
    """Return the text that replaces a node, or None if this kind of change does not apply."""
    new = CHANGES[kind](copy.deepcopy(node))
    if new is None:
        return None
    text = ast.unparse(ast.fix_missing_locations(new))
    return f"({text})" if isinstance(new, ast.expr) else text


def boundary(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [COMPARED[type(operator)]()]
            return node
    return None


def turned(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in TURNED:
            node.ops = [TURNED[type(operator)]()]
            return node
    return None


def arithmetic(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in COMPUTED:
            if any(of_text(side) for side in (left, right)):
                return None  # joined texts and paths: the change would only raise a TypeError
            node.op = COMPUTED[type(operator)]()
            return node
        case ast.AugAssign(op=operator, value=value) if type(operator) in COMPUTED:
            if of_text(value):
                return None
            node.op = COMPUTED[type(operator)]()
            return node
    return None


def of_text(node: ast.AST) -> bool:
    """Return whether an operand is a text or a list, where operators do not mean arithmetic."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple | ast.Dict)


def number(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value) if math.isfinite(value):
            node.value = value + 1
            return node
    return None


def half(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Constant(value=float() as value) if math.isfinite(value) and value:
            node.value = value / 2
            return node
    return None


def truth(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Constant(value=bool() as value):
            node.value = not value
            return node
    return None


def boolean(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.BoolOp(op=ast.And()):
            node.op = ast.Or()
            return node
        case ast.BoolOp(op=ast.Or()):
            node.op = ast.And()
            return node
    return None


def unary(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            return operand
    return None


def swapped(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Call(func=ast.Name(id=text) as function) if text in SWAPPED:
            if text in dir(builtins) and SWAPPED[text] in dir(builtins):
                function.id = SWAPPED[text]
                return node
        case ast.Call(func=ast.Attribute(attr=text) as function) if text in SWAPPED:
            function.attr = SWAPPED[text]
            return node
    return None


def unwrapped(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Call(func=ast.Name(id=text) | ast.Attribute(attr=text), args=[first, *_]):
            if text in UNWRAPPED and not isinstance(first, ast.Starred):
                return first
    return None


def axis(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.keyword(arg="axis", value=ast.Constant(value=0 | 1 as value)):
            node.value = ast.Constant(1 - value)
            return node
    return None


def condition(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
            return node
    return None


def returned(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Return(value=ast.expr() as value):
            if isinstance(value, ast.Constant) and value.value is None:
                return None
            node.value = ast.Constant(None)
            return node
    return None


def negated(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Return(value=ast.BinOp(op=ast.Sub() | ast.Mult() | ast.Div()) as value):
            node.value = ast.UnaryOp(ast.USub(), value)
            return node
        case ast.Return(value=ast.Compare() | ast.BoolOp() as value):
            node.value = ast.UnaryOp(ast.Not(), value)
            return node
    return None


def removed(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.AugAssign() | ast.Raise() | ast.Continue():
            return ast.Pass()
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            return ast.Pass()
    return None


CHANGES: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "boundary": boundary,
    "turned": turned,
    "arithmetic": arithmetic,
    "number": number,
    "half": half,
    "truth": truth,
    "boolean": boolean,
    "unary": unary,
    "swapped": swapped,
    "unwrapped": unwrapped,
    "axis": axis,
    "condition": condition,
    "returned": returned,
    "negated": negated,
    "removed": removed,
}


def planted(source: bytes, place: Place, kind: str) -> bytes | None:
    """Return the source of the place's file with the mutant in it, or None if it does not apply."""
    node: Any = place.node
    text = changed(kind, node)
    if text is None:
        return None
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    first = starts[node.lineno - 1] + node.col_offset
    last = starts[node.end_lineno - 1] + node.end_col_offset
    mutated = source[:first] + text.encode() + source[last:]
    if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
        return None
    return mutated
