"""assay verify: does a folder compute what its checkpoint computes?"""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import ProgressLines, add_json_flag

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="compare a folder with its checkpoint in PyTorch",
        description="Judge an ONNX decoder folder against PyTorch. Exit code 0: pass, 1: fail, "
        "2: could not judge.",
    )
    parser.add_argument("folder", help="the folder to judge")
    parser.add_argument(
        "-r",
        "--reference",
        required=True,
        help="checkpoint folder or .gguf file that it was made from",
    )
    parser.add_argument(
        "-n", "--tokens", type=int, default=800, help="length of the built-in prompt (default 800)"
    )
    parser.add_argument(
        "--greedy-tokens",
        type=int,
        default=64,
        help="tokens generated in onnxruntime-genai (default 64)",
    )
    parser.add_argument(
        "--prompt", action="append", metavar="TEXT", help="judge on this text instead; repeatable"
    )
    parser.add_argument("--no-genai", action="store_true", help="leave onnxruntime-genai out")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge, print the verdict, return its exit code."""
    from assay.verification import verify_folder

    progress = ProgressLines(quiet=args.quiet)
    verdict = verify_folder(
        args.folder,
        args.reference,
        num_tokens=args.tokens,
        num_greedy_tokens=args.greedy_tokens,
        prompts=args.prompt,
        use_genai=not args.no_genai,
        progress=progress.tell,
    )
    print(verdict.to_json() if args.json else verdict.to_text())
    return verdict.exit_code
