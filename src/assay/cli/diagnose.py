"""assay diagnose: why doesn't a folder compute what its checkpoint computes?"""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.judging import check_report
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
    parser.add_argument("--report", metavar="FILE", help="write an HTML report of the diagnosis")
    parser.add_argument(
        "--save-case",
        metavar="FOLDER",
        help="for an unknown cause: write the smallest model that shows it, with inputs and "
        "expected output, into a new folder",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose, and print the causes."""
    from assay.diagnosis import diagnose_folder
    from assay.reports import write_report

    check_report(args.report)
    progress = ProgressLines(quiet=args.quiet)
    diagnosis = diagnose_folder(
        args.folder,
        args.reference,
        num_tokens=args.tokens,
        save_case=args.save_case,
        progress=progress.tell,
    )
    if args.report:
        write_report(args.report, diagnosis.to_json())
    if args.json:
        print_json(diagnosis.to_json())
    else:
        print(diagnosis.to_text())
    return diagnosis.exit_code
