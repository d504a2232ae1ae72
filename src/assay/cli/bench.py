"""assay bench: time to first token, decode speed, load time, memory."""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser("bench", help="measure a folder in onnxruntime-genai")
    parser.add_argument("folder", help="an ONNX Runtime GenAI folder")
    parser.add_argument("-p", "--prompt-tokens", type=int, default=256)
    parser.add_argument("-n", "--new-tokens", type=int, default=64)
    parser.add_argument("-r", "--runs", type=int, default=5)
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the table."""
    from assay.runtime import bench

    report = bench(
        args.folder, prompt_tokens=args.prompt_tokens, new_tokens=args.new_tokens, runs=args.runs
    )
    if args.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0
