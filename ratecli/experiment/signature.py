"""Reads an algorithm's options from its source, since importing it would load numeric libraries."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratecli.plugins import module_source_file
from ratecli.solvers.registry import Algorithm

BOUND_WORDS = {
    "Ge": "at least",
    "Gt": "more than",
    "Le": "at most",
    "Lt": "less than",
    "MinLen": "of at least",
}
ATTRIBUTES_SECTION = re.compile(r"\n\s*Attributes\n\s*-+\n")
TYPE_WORDS = {
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "str": "text",
    "ConstraintName": "name of a constraint",
    "OracleOption": "name, or {name: options}",
    "ChancesOption": "name, or {name: options}",
    "InflationOption": "number, at least 0, or {pass: probability}",
}


@dataclass(frozen=True)
class SolverOption:
    """An option of an algorithm as a file may set it; `default` is None if there is none."""

    name: str
    type: str
    default: Any
    means: str


@dataclass(frozen=True)
class SolverSignature:
    """Docstring and options of an algorithm's class."""

    text: str
    options: tuple[SolverOption, ...]


def algorithm_summary(algorithm: Algorithm) -> str:
    """Return a one-line summary of an algorithm.

    For a plugin it is the first line of its docstring, provided that its module's source is found
    without importing it.
    """
    if not algorithm.plugged:
        return algorithm.summary
    module, _, name = algorithm.path.partition(":")
    path = module_source_file(module)
    try:
        found = _find_class_in(str(path), name) if path else None
    except (OSError, SyntaxError, ValueError):
        found = None
    text = ast.get_docstring(found[1]) if found else None
    return text.splitlines()[0] if text else f"`ratecli show {algorithm.name}` says more"


def read_signature(algorithm: Algorithm) -> SolverSignature:
    """Return the docstring and the options, in the order of the source."""
    module, found = _find_class(algorithm)
    spelt = _AliasExpander(module)
    text = ast.get_docstring(found) or ""
    prose, *rest = ATTRIBUTES_SECTION.split(text)
    meanings = _parse_attributes(rest[0] if rest else "")
    fields = (
        part
        for part in found.body
        if isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part.annotation)
    )
    options = (_read_option(part, meanings, spelt) for part in fields)
    own = algorithm.preset
    return SolverSignature(
        prose.strip(),
        tuple(replace(each, default=own.get(each.name, each.default)) for each in options),
    )


class _AliasExpander(ast.NodeTransformer):
    """Replaces a module's type aliases by their definitions."""

    def __init__(self, module: ast.Module) -> None:
        self.meant = {
            target.id: part.value
            for part in module.body
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Subscript)
            for target in part.targets
            if isinstance(target, ast.Name)
        }

        self.taken = {
            (alias.asname or alias.name): (str(part.module), alias.name)
            for part in module.body
            if isinstance(part, ast.ImportFrom) and str(part.module).startswith("ratecli.solvers")
            for alias in part.names
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.taken and node.id not in TYPE_WORDS:
            module, name = self.taken[node.id]
            path = module_source_file(module)
            assert path is not None, module
            return _AliasExpander(ast.parse(path.read_text("utf-8"))).meant.get(name, node)
        return self.meant.get(node.id, node)


def _find_class(algorithm: Algorithm) -> tuple[ast.Module, ast.ClassDef]:
    """Return an algorithm's class and its module, as syntax trees."""
    module, _, name = algorithm.path.partition(":")
    path = module_source_file(module)
    found = _find_class_in(str(path), name) if path else None
    if found is None:
        # the module imports the class from elsewhere: only importing it shows from where
        found = _find_class_in(inspect.getsourcefile(algorithm.load()) or "", name)
    if found is None:
        raise LookupError(f"the source of '{algorithm.path}' has no class '{name}'")
    return found


def _find_class_in(path: str, name: str) -> tuple[ast.Module, ast.ClassDef] | None:
    module = ast.parse(Path(path).read_text("utf-8"))
    classes = (part for part in module.body if isinstance(part, ast.ClassDef))
    return next(((module, part) for part in classes if part.name == name), None)


def _parse_attributes(section: str) -> dict[str, str]:
    """Parse a numpydoc section: names, each followed by its indented description."""
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line[0].isspace():
            name = line.split(":")[0].strip()
        elif name and line.strip():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def _read_option(
    field: ast.AnnAssign, meanings: dict[str, str], spelt: _AliasExpander
) -> SolverOption:
    name = ast.unparse(field.target)
    default = None if field.value is None else _literal_value(field.value)
    return SolverOption(
        name, _describe_type(spelt.visit(field.annotation)), default, meanings.get(name, "")
    )


def _literal_value(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value)


def _describe_type(annotation: ast.expr) -> str:
    """Describe `Annotated[int, Ge(1)]` as 'whole number, at least 1', `Literal` by its choices."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[base, *bounds])):
            return ", ".join([_describe_type(base), *map(_describe_bound, bounds)])
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return " | ".join(str(_literal_value(choice)) for choice in choices)
        case ast.Subscript(value=ast.Name(id="Mapping"), slice=ast.Tuple(elts=[key, value])):
            return f"{{{_describe_type(key)}: {_describe_type(value)}}}"
        case ast.Subscript(
            value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[each, ast.Constant()])
        ):
            return f"[{_describe_type(each)}, ...]"
        case ast.BinOp(left=base, op=ast.BitOr(), right=ast.Constant(value=None)):
            return f"{_describe_type(base)} | null"
        case ast.Name(id=name):
            return TYPE_WORDS.get(name, name)
        case _:
            return ast.unparse(annotation)


def _describe_bound(bound: ast.expr) -> str:
    match bound:
        case ast.Call(func=ast.Name(id=name), args=[limit]) if name in BOUND_WORDS:
            return f"{BOUND_WORDS[name]} {ast.unparse(limit)}"
        case _:
            return ast.unparse(bound)
