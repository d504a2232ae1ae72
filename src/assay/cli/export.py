"""assay export: a checkpoint becomes an ONNX Runtime GenAI folder."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from assay.cli.judging import (
    Judged,
    check_report,
    has_reference_packages,
    judge_export,
    write_report,
)
from assay.cli.output import ProgressLines, add_json_flag, print_json
from assay.errors import AssayError, DependencyError, OptionError

__all__ = ["add_parser", "run"]

# What the manifest says about verification.
VERIFIES = "after the export: see parity.json"
SWITCHED_OFF = "switched off by the user (--no-verify)"
NOT_INSTALLED = "assay[verify] isn't installed"
EXIT_FAIL, EXIT_ERROR = 1, 2
COST_RUNS = 3  # that measure speed and memory for the certificate


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="checkpoint to ONNX Runtime GenAI folder",
        description="Export a Hugging Face folder or a GGUF file to an ONNX Runtime GenAI folder, "
        "and judge it against PyTorch where assay[verify] is installed. Exit code 1: it was "
        "written and failed.",
    )
    parser.add_argument("-m", "--model", required=True, help="checkpoint folder or .gguf file")
    parser.add_argument("-o", "--output", required=True, help="folder to create")
    parser.add_argument(
        "-p", "--precision", default="fp32", help="fp32, fp16, int8 or int4 (default fp32)"
    )
    parser.add_argument("-e", "--execution-provider", default="cpu", help="cpu")
    parser.add_argument(
        "--group-size",
        type=int,
        default=32,
        help="inputs that share a scale: 16 to 256 (default 32)",
    )
    parser.add_argument(
        "--asymmetric",
        action="store_true",
        help="a zero point for each group instead of a signed scale alone",
    )
    parser.add_argument(
        "--head",
        default="",
        help="format of the head, and of a tied embedding: fp32, fp16, int8, int4 "
        "(default: int8 for int4, else the precision)",
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="PATTERN=FORMAT",
        help="format of the projections whose module path matches; repeatable",
    )
    parser.add_argument(
        "--accuracy-level",
        type=int,
        default=4,
        help="of MatMulNBits: 4 computes with int8 activations (fast, default), 0 in float32",
    )
    parser.add_argument("--attention", default="gqa", help="gqa (default) or decomposed")
    parser.add_argument(
        "--all-logits",
        action="store_true",
        help="logits of every position, not of the last one alone",
    )
    parser.add_argument(
        "--context-length", type=int, default=0, help="longest sequence (default: the model's own)"
    )
    parser.add_argument(
        "--ignore-config-key",
        action="append",
        default=[],
        metavar="KEY",
        help="vouch for a config key that no spec knows; repeatable",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    parser.add_argument(
        "--no-load", action="store_true", help="don't load the result once in onnxruntime-genai"
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="don't judge the result against PyTorch"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML report of the verdict")
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything and say what would be written"
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export, and say what was written."""
    from assay.graph import ExportOptions
    from assay.pipeline import export

    options = ExportOptions(
        precision=args.precision,
        execution_provider=args.execution_provider,
        group_size=args.group_size,
        symmetric=not args.asymmetric,
        head=args.head,
        keep=tuple(args.keep),
        accuracy_level=args.accuracy_level,
        attention=args.attention,
        all_logits=args.all_logits,
        context_length=args.context_length,
        ignore_config_keys=tuple(args.ignore_config_key),
    )
    decided = _decide_verification(args)
    if args.dry_run:
        return _plan(args, options)
    progress = ProgressLines(quiet=args.quiet)
    judged = None
    try:
        report = export(
            args.model,
            args.output,
            options,
            overwrite=args.overwrite,
            check_loading=not args.no_load,
            verification=decided,
            progress=progress,
        )
        if not args.json:
            print(report.to_text(), flush=True)
        if decided == VERIFIES:
            judged = judge_export(
                args.output,
                args.model,
                precision=args.precision,
                progress=progress.tell,
                use_genai=not args.no_load,
                cost_runs=COST_RUNS,
            )
    finally:
        progress.close()
    if args.json:
        verdict = judged.to_json() if judged else None
        print_json({**report.to_json(), "verification": {"decided": decided, "verdict": verdict}})
    else:
        _tell_verification(args, decided, judged)
    return _conclude(args, judged)


def _decide_verification(args: argparse.Namespace) -> str:
    """Whether the result is judged, in the manifest's words; refuses a report without a verdict."""
    check_report(args.report)
    decided = VERIFIES
    if args.no_verify:
        decided = SWITCHED_OFF
    elif not has_reference_packages():
        decided = NOT_INSTALLED
    if args.report and decided == SWITCHED_OFF:
        raise OptionError(
            "--report",
            "there is no verdict to report with --no-verify",
            next_step="Leave one of the two out.",
        )
    if args.report and decided == NOT_INSTALLED:
        raise DependencyError(
            "--report",
            "there is no verdict to report: assay[verify] isn't installed",
            next_step="pip install 'assay[verify]', or leave --report out.",
        )
    return decided


def _tell_verification(args: argparse.Namespace, decided: str, judged: Judged | None) -> None:
    if judged is None:
        if decided == NOT_INSTALLED:
            then = f"pip install 'assay[verify]', then assay verify {args.output} -r {args.model}"
            print(f"not verified: {decided} ({then})")
        return
    print(judged.to_text())
    if judged.verdict.status == "fail":
        print(f"it failed: {args.output} stays as it was written, to be looked into, not used")
    elif judged.verdict.status == "unjudged":
        print(f"not verified: nobody could judge it, see above; {args.output} stays as written")


def _conclude(args: argparse.Namespace, judged: Judged | None) -> int:
    """Write the report; the exit code: 1 for a verdict of fail, 0 otherwise."""
    if judged is not None and args.report:
        try:
            write_report(args.report, judged)
        except AssayError as exc:  # the folder and the verdict are out already
            print(f"assay: {exc}", file=sys.stderr)
            return EXIT_ERROR
    return EXIT_FAIL if judged is not None and judged.verdict.status == "fail" else 0


def _plan(args: argparse.Namespace, options: Any) -> int:
    from assay.checkpoint import open_checkpoint
    from assay.pipeline import check_output, plan_export

    with open_checkpoint(args.model) as checkpoint:
        check_output(checkpoint, args.output, overwrite=args.overwrite)
        planned = plan_export(checkpoint, options)
    if args.json:
        print_json({"dry_run": True, **planned.to_json()})
    else:
        print(f"would write {args.output}: {planned.to_text()}")
    return 0
