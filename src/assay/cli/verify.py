"""assay verify: does a folder compute what its checkpoint computes?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from assay.cli.judging import check_report, find_place, judge, write_report
from assay.cli.output import ProgressLines, add_json_flag, print_json
from assay.errors import AssayError, OptionError

__all__ = ["add_parser", "run"]

EXIT_ERROR = 2


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="compare a folder with its checkpoint in PyTorch",
        description="Judge an ONNX decoder folder against PyTorch, and keep the verdict and a hash "
        "of every file in parity.json beside the model. Exit code 0: pass, 1: fail, 2: could not "
        "judge. With --certificate: 0: the files are those that passed, 1: they changed, or the "
        "verdict was fail, 2: no certificate, or nobody could judge.",
    )
    parser.add_argument("folder", help="the folder to judge")
    parser.add_argument(
        "-r",
        "--reference",
        help="what it was made from: a checkpoint folder or .gguf file; or an .npz file of saved "
        "logits, or another ONNX folder",
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
    parser.add_argument(
        "--device", default="cpu", help="where PyTorch computes: cpu (default), cuda, cuda:1"
    )
    parser.add_argument(
        "--cost-runs",
        type=int,
        default=3,
        metavar="N",
        help="runs that measure speed and memory in onnxruntime-genai; 0: none (default 3)",
    )
    parser.add_argument(
        "--streamed",
        action="store_true",
        default=None,
        help="read the reference a decoder layer at a time (default: where memory demands it)",
    )
    parser.add_argument(
        "--save-logits",
        metavar="FILE",
        help="keep the reference's logits in an .npz file, to judge against later",
    )
    parser.add_argument(
        "--certificate",
        action="store_true",
        help="only hold the files against the certificate; no reference is needed",
    )
    parser.add_argument(
        "--no-certificate", action="store_true", help="leave the folder as it is: no parity.json"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML report of the verdict")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge, print the verdict, return its exit code."""
    if args.certificate:
        return _recheck(args)
    if args.reference is None:
        raise OptionError(
            "-r/--reference",
            "it is missing, and the folder can't be judged without it",
            next_step="Give the checkpoint that it was made from; or --certificate, to hold the "
            "files against the certificate alone.",
        )
    check_report(args.report)
    progress = ProgressLines(quiet=args.quiet)
    judged = judge(
        args.folder,
        args.reference,
        keep=not args.no_certificate,
        progress=progress.tell,
        num_tokens=args.tokens,
        num_greedy_tokens=args.greedy_tokens,
        prompts=args.prompt,
        use_genai=not args.no_genai,
        device=args.device,
        streamed=args.streamed,
        cost_runs=args.cost_runs,
        save_to=args.save_logits,
    )
    if args.json:
        print_json(judged.to_json())
    else:
        print(judged.to_text())
    if args.report:
        try:
            write_report(args.report, judged)
        except AssayError as exc:  # the verdict is out already
            print(f"assay: {exc}", file=sys.stderr)
            return EXIT_ERROR
    return judged.verdict.exit_code


def _recheck(args: argparse.Namespace) -> int:
    """Hold a folder against its certificate."""
    from assay.verification.certificate import check_certificate

    odd = ("reference", "prompt", "report", "save_logits", "no_certificate")
    for name in odd:
        if getattr(args, name):
            raise OptionError(
                f"--{name.replace('_', '-')}",
                "it can't go with --certificate, which judges nothing",
                next_step="Leave one of the two out.",
            )
    ProgressLines(quiet=args.quiet).tell("hashing the folder")
    check = check_certificate(find_place(args.folder))
    if args.json:
        print_json(check.to_json())
    else:
        print(check.to_text())
    return check.exit_code
