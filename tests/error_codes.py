"""Every stable code that the sources can put into an error or a problem, found by reading them as trees.

A code is a literal that reaches something called `code` or `…_code`: an attribute of a class, a keyword argument, or a
positional argument of one of our own functions or classes whose parameter or field is called `code`. An enumeration
whose values become codes is named in `CODE_ENUMS`. What is built at run time (`xid_48`) is named by its pattern
(`xid_N`).
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

CODE_ENUMS = {"Verdict": {"ADMITTED"}}
"""Enumerations of `daemon/runtimes/admission.py` -> members that are no error."""


def find_codes(trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Code -> where it stands (`path:line`)."""
    everywhere = {name: at for tree in trees.values() for name, at in _code_positions(tree) if not name.startswith("_")}
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        positions = {**everywhere, **dict(_code_positions(tree))}
        for node in ast.walk(tree):
            for value in _code_values(node, positions, in_admission=path.name == "admission.py"):
                for code, line in _literals(value):
                    found.setdefault(code, set()).add(f"{path}:{line}")
    return found


def _code_positions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions and classes of a module that take a `code`, and which positional argument it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            names = _constructor(node)
        else:
            continue
        if "code" in names:
            yield node.name, names.index("code")


def _constructor(node: ast.ClassDef) -> list[str]:
    """Positional arguments of its `__init__`; where it has none, its fields, unless they are given by name only."""
    if any(keyword.arg == "kw_only" for keyword in node.keywords):
        return []
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return [argument.arg for argument in member.args.args[1:]]
    return [m.target.id for m in node.body if isinstance(m, ast.AnnAssign) and isinstance(m.target, ast.Name)]


def _code_values(node: ast.AST, positions: Mapping[str, int], *, in_admission: bool) -> Iterator[ast.expr]:
    if isinstance(node, ast.ClassDef) and in_admission and node.name in CODE_ENUMS:
        members = [member for member in node.body if isinstance(member, ast.Assign)]
        yield from (
            m.value for m in members if isinstance(t := m.targets[0], ast.Name) and t.id not in CODE_ENUMS[node.name]
        )
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_code(node.target.id):
        if node.value is not None:
            yield node.value
    elif isinstance(node, ast.Assign):
        yield from _assigned(node)
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if _is_code(keyword.arg or ""))
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        position = positions.get(name)
        if position is not None and position < len(node.args):
            yield node.args[position]


def _is_code(name: str) -> bool:
    return name == "code" or name.endswith("_code")


def _assigned(node: ast.Assign) -> Iterator[ast.expr]:
    """`code = …` and `code, message = …, …`."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name) and target.id == "code":
        yield value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        yield from (v for t, v in pairs if isinstance(t, ast.Name) and t.id == "code")


def _literals(value: ast.expr) -> Iterator[tuple[str, int]]:
    """The strings that an expression can come to: a literal, both arms of a condition, a pattern with `N`."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
        yield value.value, value.lineno
    elif isinstance(value, ast.IfExp):
        yield from _literals(value.body)
        yield from _literals(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for operand in value.values:
            yield from _literals(operand)
    elif isinstance(value, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "N" for part in value.values]
        yield "".join(parts), value.lineno
