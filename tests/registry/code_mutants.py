"""Changed look-ups: each condition, precedence, name and number of their code wrong once.

A changed function takes the original's place by its code object, so that every module that has
imported it runs the change. The tests of the look-ups then run in this process.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

__all__ = ["MODULES", "list_code_mutants", "run_code_mutants"]

_FOLDER = Path(__file__).parent
MODULES = (
    "assay.spec.matching",
    "assay.spec.expert_names",
    "assay.spec.observed",
    "assay.spec.gate_up",
)
TESTS = ("test_matching.py", "test_experts.py", "test_observed.py", "test_gate_up.py")
_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip


def list_code_mutants(source: str) -> Iterator[tuple[str, ast.Module]]:
    """Every change of a module's source: what it is, and the changed tree."""
    tree = ast.parse(source)
    skipped = set(_list_skipped(tree))
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for number, kind in enumerate(_list_changes(node)):
            changed = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(changed)) if i == place)
            _apply(target, number)
            line = getattr(node, "lineno", 0)
            text = ast.unparse(node) if not isinstance(node, ast.FunctionDef) else node.name
            yield f"line {line}: {kind}: {text[:70]}", ast.fix_missing_locations(changed)


def _list_skipped(tree: ast.Module) -> Iterator[int]:
    """Docstrings, annotations, imports, __all__ and the words of errors and warnings."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            first = node.body[0]
            parts += [first] if isinstance(first, ast.Expr) else []
        if isinstance(node, ast.FunctionDef):
            parts += [a.annotation for a in node.args.args if a.annotation is not None]
            parts += [node.returns] if node.returns is not None else []
            parts += [node] if node.name == "_unsupported" else []
        if isinstance(node, ast.AnnAssign):
            parts.append(node.annotation)
        if isinstance(node, (ast.Raise, ast.ImportFrom, ast.Import, ast.JoinedStr)):
            parts.append(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            parts.append(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            parts.append(node)
        for part in parts:
            yield from map(id, ast.walk(part))


def _list_changes(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, (ast.If, ast.IfExp)):
        return ("condition turned",)
    if isinstance(node, ast.comprehension):
        return tuple("filter dropped" for _ in node.ifs)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ("compared otherwise",) if type(node.ops[0]) in _OTHER_COMPARISON else ()
    if isinstance(node, ast.BoolOp):
        return ("and for or", *("operand dropped" for _ in node.values), "operands turned round")
    if isinstance(node, ast.Constant):
        if isinstance(node.value, (bool, str)) or type(node.value) is int:
            return ("flipped" if isinstance(node.value, bool) else "changed",)
        return ()
    if isinstance(node, ast.Tuple) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        return ("turned round", *("element dropped" for _ in node.elts))
    return ()


def _apply(node: Any, number: int) -> None:
    """Make the change of this number of _list_changes in place."""
    if isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.comprehension):
        del node.ifs[number]
    elif isinstance(node, ast.Compare):
        node.ops[0] = _OTHER_COMPARISON[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        if number == 0:
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        elif number <= len(node.values):
            del node.values[number - 1]
            if len(node.values) == 1:
                node.values.append(copy.deepcopy(node.values[0]))
        else:
            node.values.reverse()
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = (
            not value
            if isinstance(value, bool)
            else f"{value}x"
            if isinstance(value, str)
            else value + 1
        )
    elif number == 0:
        node.elts.reverse()
    else:
        del node.elts[number - 1]


def run_code_mutants(name: str) -> tuple[int, list[str], list[str]]:
    """Of a module: how many there are, what survives, and what fails without a change."""
    problems = [] if _run_tests() else ["the look-ups' own tests fail"]
    count, left = 0, []
    module = importlib.import_module(name)
    for where, tree in list_code_mutants(inspect.getsource(module)):
        count += 1
        restore = _replace(module, tree)
        try:
            if _run_tests():
                left.append(where)
        finally:
            restore()
    return count, left, problems


def _run_tests() -> bool:
    """Whether the tests of the look-ups pass."""
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider"]
    with (
        open(os.devnull, "w", encoding="utf-8") as nothing,
        redirect_stdout(nothing),
        redirect_stderr(nothing),
    ):
        code = pytest.main([*options, *(str(_FOLDER / name) for name in TESTS)])
    return code == pytest.ExitCode.OK


def _replace(module: ModuleType, tree: ast.Module) -> Callable[[], None]:
    """Give a module's functions and constants those of a changed tree; returns what undoes it."""
    assert module.__file__ is not None
    new = ModuleType(module.__name__)
    new.__file__ = module.__file__
    try:
        exec(compile(tree, module.__file__, "exec"), new.__dict__)
    except Exception:  # noqa: BLE001  (a module that doesn't even load is noticed)
        return lambda: None
    codes: list[tuple[FunctionType, CodeType]] = []
    values: dict[str, Any] = {}
    for name, value in vars(module).items():
        other = new.__dict__.get(name)
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            codes.append((value, value.__code__))
            value.__code__ = other.__code__  # type: ignore[union-attr]
        elif isinstance(value, (tuple, str, int)) and not name.startswith("__"):
            values[name] = value
    vars(module).update({name: new.__dict__[name] for name in values})

    def restore() -> None:
        for function, code in codes:
            function.__code__ = code
        vars(module).update(values)

    return restore
