"""assay bench: time to first token, prefill and decode speed, load time, memory."""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "bench",
        help="measure a folder in onnxruntime-genai",
        description="Measure a folder several times, each in a process of its own: mean and "
        "standard deviation of time to first token, prefill and decode speed, load time and peak "
        "memory.",
    )
    parser.add_argument("folder", help="an ONNX Runtime GenAI folder")
    parser.add_argument(
        "-p", "--prompt-tokens", type=int, default=512, help="length of the prompt (default 512)"
    )
    parser.add_argument(
        "-n", "--new-tokens", type=int, default=128, help="tokens to generate (default 128)"
    )
    parser.add_argument("-r", "--runs", type=int, default=5, help="processes (default 5)")
    parser.add_argument(
        "--format",
        choices=("table", "md", "csv", "json"),
        default="table",
        help="table (default), md (Markdown), csv or json",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the table."""
    from assay.runtime import bench

    report = bench(
        args.folder, prompt_tokens=args.prompt_tokens, new_tokens=args.new_tokens, runs=args.runs
    )
    if args.json or args.format == "json":
        print_json(report.to_json())
    elif args.format == "csv":
        print(report.to_csv(), end="")
    else:
        print(report.to_text() if args.format == "md" else report.to_table())
    return 0
