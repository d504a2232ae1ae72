"""assay tune: measure session options on this machine and keep the best."""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import ProgressLines, add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "tune",
        help="measure session options here and write the best",
        description="Measure threads and spinning on this machine; write the best into "
        "genai_config.json and what was measured into tune.json.",
    )
    parser.add_argument("folder", help="an ONNX Runtime GenAI folder")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry-run", action="store_true", help="measure, write nothing")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Tune, and say what changed."""
    from assay.runtime import tune

    progress = ProgressLines(quiet=args.quiet)

    def show(done: int, expected: int, what: str) -> None:
        progress.tell(f"measurement {done + 1} of about {expected}: {what}")

    report = tune(
        args.folder,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
        rounds=args.rounds,
        dry_run=args.dry_run,
        progress=show,
    )
    if args.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0
