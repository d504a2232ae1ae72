"""assay generate: let a folder speak."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from assay.cli.output import add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser("generate", help="continue a prompt in onnxruntime-genai")
    parser.add_argument("folder", help="an ONNX Runtime GenAI folder")
    parser.add_argument("prompt", help="the text to answer or continue")
    parser.add_argument("-n", "--max-new-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default) is greedy")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without the chat template"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Generate, streaming the text to stdout."""
    from assay.runtime import generate

    def show(piece: str) -> None:
        sys.stdout.write(piece)
        sys.stdout.flush()

    result = generate(
        args.folder,
        args.prompt,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        seed=args.seed,
        chat=False if args.raw else None,
        stream=None if args.json else show,
    )
    if args.json:
        print_json(result.to_json())
        return 0
    print()
    if not args.quiet:
        print(result.to_text().removeprefix(result.text).lstrip("\n"), file=sys.stderr)
    return 0
