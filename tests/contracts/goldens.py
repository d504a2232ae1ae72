"""What the public surface is: the command line and the public names, as text that is pinned.

    python -m tests.contracts.goldens

writes both texts anew; look at the difference before you commit it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import assay

__all__ = ["GOLDENS", "describe_command_line", "describe_public_names"]

FOLDER = Path(__file__).parent / "goldens"


def describe_command_line() -> str:
    """Every verb with its arguments: names, placeholder or kind, default, whether required."""
    from assay.cli.main import build_parser

    return "\n".join(_describe_parser("assay", build_parser())) + "\n"


def _describe_parser(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield name
    nested: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            nested += [(f"{name} {verb}", choice) for verb, choice in action.choices.items()]
        elif not isinstance(action, argparse._HelpAction):
            yield f"  {_describe_argument(action)}"
    for verb, choice in nested:
        yield from _describe_parser(verb, choice)


def _describe_argument(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or f"<{action.dest}>"
    if action.nargs == 0:
        return names
    facts = [getattr(action.type, "__name__", "text")]
    if action.option_strings:
        facts.append("required" if action.required else f"default {action.default!r}")
    if isinstance(action, argparse._AppendAction):
        facts.append("repeatable")
    return f"{names}: {', '.join(facts)}"


def describe_public_names() -> str:
    """The parameters of everything in `assay`, and the names of every room's `__all__`."""
    lines = ["assay"]
    lines += [f"  {name}{_describe_value(getattr(assay, name))}" for name in sorted(assay.__all__)]
    for module in pkgutil.iter_modules(assay.__path__, "assay."):
        if module.name == "assay.__main__":
            continue
        names = getattr(importlib.import_module(module.name), "__all__", None)
        if names is not None:
            lines += [module.name, *(f"  {name}" for name in sorted(names))]
    return "\n".join(lines) + "\n"


def _describe_value(value: Any) -> str:
    """Parameters with defaults, without types; nothing for what isn't called."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return ""
    parameters = inspect.signature(value).parameters.values()
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain))


GOLDENS = {
    "command_line.txt": describe_command_line,
    "public_names.txt": describe_public_names,
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, describe in GOLDENS.items():
        (FOLDER / name).write_text(describe(), encoding="utf-8")
