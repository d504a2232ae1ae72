"""assay env: what takes part here, where it is imported from, and what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from assay.cli.output import add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "env",
        help="show packages, where they come from, and what shadows them",
        description="Show the interpreter, the processor and the packages that take part, where "
        "each is imported from, and which combinations are known to be bad. Exit code 1 when "
        "something shadows an installed package, is known to be bad, or onnxruntime is broken.",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look, ask onnxruntime for its execution providers, and tell."""
    from assay.environment import read_environment, read_providers

    environment = read_environment()
    providers = read_providers(sys.path)
    is_sound = environment.is_sound and not providers.error
    if args.json:
        print_json(
            {**environment.to_json(), "providers": providers.to_json(), "is_sound": is_sound}
        )
    else:
        print(environment.to_text())
        told = providers.error or ", ".join(providers.names)
        print(f"\nexecution providers: {told}")
    return 0 if is_sound else 1
