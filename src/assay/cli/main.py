"""assay VERB ...: finds the verb, runs it, turns its errors into one message and an exit code.

Exit codes: 0 done (verify: pass), 1 verify: fail, 2 an error, or verify: could not judge.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from assay.cli import bench, export, generate, inspect, models, tune, verify
from assay.errors import AssayError
from assay.version import __version__

__all__ = ["build_parser", "main"]

VERBS = (export, verify, generate, tune, bench, inspect, models)
EXIT_ERROR = 2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="assay",
        description="Turns a Hugging Face language model into one that runs, and proves it.",
    )
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = build_parser().parse_args(arguments)
    try:
        code: int = args.run(args)
    except AssayError as exc:
        _print_error(exc, as_json=args.json)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("assay: interrupted; nothing half-written is left", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code


def _print_error(error: AssayError, *, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "error": type(error).__name__,
                    "where": error.where,
                    "found": error.found,
                    "expected": error.expected,
                    "next_step": error.next_step,
                },
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        print(f"assay: {error}", file=sys.stderr)
