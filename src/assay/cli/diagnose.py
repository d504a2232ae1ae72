"""assay diagnose: why doesn't a folder compute what its checkpoint computes?"""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import ProgressLines, add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "diagnose",
        help="name the cause of wrong logits, and its place",
        description="Find out why an ONNX decoder folder doesn't compute what its checkpoint "
        "computes. Exit code 0: healthy, 1: it isn't, 2: could not look.",
    )
    parser.add_argument("folder", help="the folder, whoever wrote it")
    parser.add_argument(
        "-r", "--reference", required=True, help="checkpoint folder or .gguf file it was made from"
    )
    parser.add_argument(
        "-n", "--tokens", type=int, default=96, help="length of the prompt (default 96)"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose, and print the causes."""
    from assay.diagnosis import diagnose_folder

    progress = ProgressLines(quiet=args.quiet)
    diagnosis = diagnose_folder(
        args.folder, args.reference, num_tokens=args.tokens, progress=progress.tell
    )
    if args.json:
        print_json(diagnosis.to_json())
    else:
        print(diagnosis.to_text())
    return diagnosis.exit_code
