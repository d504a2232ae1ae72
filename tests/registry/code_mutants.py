"""Changed look-ups: each precedence swapped or given up.

A changed function takes the original's place by its code object, so that every module that has
imported it runs the change. The tests of the look-ups then run in this process.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

__all__ = ["PRECEDENCES", "run_code_mutants"]

_FOLDER = Path(__file__).parent
TESTS = ("test_matching.py", "test_experts.py", "test_observed.py", "test_gate_up.py")

# Module, what gives way to what, its text (which must be there once), the text instead.
PRECEDENCES: tuple[tuple[str, str, str, str], ...] = (
    (
        "matching",
        "the root config before its text config",
        "(config, text, getattr",
        "(text, config, getattr",
    ),
    (
        "matching",
        "a config before the module's own",
        'in (config, text, getattr(module, "config", None))',
        'in (getattr(module, "config", None), config, text)',
    ),
    (
        "matching",
        "a class near in the MRO before one far",
        "distance < nearest[0]",
        "distance > nearest[0]",
    ),
    (
        "matching",
        "of one class, the first by name",
        "distance < nearest[0]",
        "distance <= nearest[0]",
    ),
    (
        "matching",
        "a given type before all others",
        "if model_type is None or spec.model_type == model_type:",
        "if True:",
    ),
    (
        "matching",
        "the spec before the structure",
        "if match_moe_block(module, model_type) is not None:\n        return True\n",
        "pass\n",
    ),
    (
        "matching",
        "generic names before the structure",
        "if any(name.endswith(_GENERIC_ENDINGS) for name in class_names(module)):\n"
        "        return True\n",
        "pass\n",
    ),
    (
        "matching",
        "the structure, where no name is known",
        "return _has_router(module) and observed_expert_layout(module) is not None",
        "return False",
    ),
    (
        "matching",
        "a broken spec before an unknown type",
        "        check_not_broken(name)\n        if has_spec",
        "        if has_spec",
    ),
    ("matching", "a pair is one entry", '[value] if field == "gate_up_pair" else value', "value"),
    (
        "expert_names",
        "the spec's names before the structure's",
        "if moe is not None and observed is not None and _is_the_specs(moe, observed):",
        'if moe is not None and observed is not None and observed.kind != "fused":',
    ),
    (
        "expert_names",
        "the observed layout before the spec's",
        "    if observed.kind != moe.layout.kind:\n        return False\n",
        "",
    ),
    (
        "expert_names",
        "the structure of fused experts before giving up",
        'if observed is not None and observed.kind == "fused":\n        return observed.names\n',
        "pass\n",
    ),
    (
        "expert_names",
        "an unsupported layout before everything",
        " or spec.moe_spec.unsupported is not None",
        "",
    ),
    (
        "expert_names",
        "fused experts before a list",
        'if observed is not None and observed.kind == "fused":\n        return []\n',
        "pass\n",
    ),
    (
        "expert_names",
        "the policy before a list",
        "not spec.export_spec.grouped_expert_export",
        "False",
    ),
    (
        "observed",
        "the block's experts before the block",
        '(("experts", experts), ("", module))',
        '(("", module), ("experts", experts))',
    ),
    ("observed", "flags before shapes", "        **_read_own_flags(container),\n", ""),
    (
        "observed",
        "experts of a plain list only where they are MLPs",
        "(is_plain and not all(map(_is_mlp, experts)))",
        "False",
    ),
    ("gate_up", "a tensor shared by both is written once", " and id(gate) not in done", ""),
    ("gate_up", "meta tensors are passed over", "_is_meta(first) or _is_meta(second)", "False"),
)


def run_code_mutants() -> tuple[int, list[str], list[str]]:
    """How many there are, what survives, and what fails without a change."""
    problems = [] if _run_tests() else ["the look-ups' own tests fail"]
    left = []
    for name, what, old, new in PRECEDENCES:
        module = importlib.import_module(f"assay.spec.{name}")
        source = inspect.getsource(module)
        if source.count(old) != 1:
            problems.append(f"{name} has no longer one {old!r}")
            continue
        restore = _replace(module, source.replace(old, new))
        try:
            if _run_tests():
                left.append(f"{name}: {what}")
        finally:
            restore()
    return len(PRECEDENCES), left, problems


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


def _replace(module: ModuleType, source: str) -> Callable[[], None]:
    """Give a module's functions the code of a changed source; returns what undoes it."""
    assert module.__file__ is not None
    new = ModuleType(module.__name__)
    new.__file__ = module.__file__
    exec(compile(source, module.__file__, "exec"), new.__dict__)
    functions = [
        value
        for value in vars(module).values()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]
    codes = [function.__code__ for function in functions]
    for function in functions:
        function.__code__ = new.__dict__[function.__name__].__code__

    def restore() -> None:
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = code

    return restore
