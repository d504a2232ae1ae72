"""assay export: a checkpoint becomes an ONNX Runtime GenAI folder."""

from __future__ import annotations

import argparse
from typing import Any

from assay.cli.output import ProgressLines, add_json_flag, print_json

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="checkpoint to ONNX Runtime GenAI folder",
        description="Export a Hugging Face folder or a GGUF file to an ONNX Runtime GenAI folder.",
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
        "--no-verify",
        action="store_true",
        help="accepted for scripts: export doesn't verify unless told to",
    )
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
    if args.dry_run:
        return _plan(args, options)
    progress = ProgressLines(quiet=args.quiet)
    try:
        report = export(
            args.model,
            args.output,
            options,
            overwrite=args.overwrite,
            check_loading=not args.no_load,
            progress=progress,
        )
    finally:
        progress.close()
    if args.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return 0


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
