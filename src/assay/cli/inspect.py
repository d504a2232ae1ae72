"""assay inspect: what a checkpoint holds, and what its spec says about it."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.output import add_json_flag, print_json
from assay.errors import AssayError, RuntimeFolderError

if TYPE_CHECKING:
    from assay.checkpoint import Checkpoint
    from assay.spec import ExpertFiles

__all__ = ["add_parser", "run"]

_SHOWN = 10  # names in a list, unless in JSON


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser("inspect", help="show a checkpoint or a folder")
    parser.add_argument("path", help="checkpoint folder, .gguf file or exported folder")
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Describe a path."""
    path = Path(args.path)
    if (path / "genai_config.json").is_file():
        found = _describe_folder(path)
    else:
        found = _describe_checkpoint(path, with_tensors=args.tensors or args.json)
    if args.json:
        print_json(found)
    else:
        experts = found.get("experts", {})
        experts.pop("groups", None)  # thousands of lines for some models
        if len(strays := experts.get("unaccounted", [])) > _SHOWN:
            experts["unaccounted"] = [*strays[:_SHOWN], f"and {len(strays) - _SHOWN} more"]
        _print_lines(found, indent="")
    return 0


def _describe_checkpoint(path: Path, *, with_tensors: bool) -> dict[str, Any]:
    import assay.models  # noqa: F401  (registers every spec)
    from assay.checkpoint import open_checkpoint
    from assay.spec import resolve_model

    with open_checkpoint(path) as checkpoint:
        infos = list(checkpoint.tensors.values())
        found: dict[str, Any] = {
            "path": str(path),
            "model_type": checkpoint.config.get("model_type"),
            "num_tensors": len(infos),
            "num_parameters": sum(info.num_rows * info.num_columns for info in infos),
            "size_bytes": sum(info.size_bytes for info in infos),
            "dtypes": dict(Counter(info.dtype for info in infos)),
            "tokenizer_files": checkpoint.tokenizer_files(),
        }
        try:
            model = resolve_model(checkpoint.config, where=str(path))
        except AssayError as exc:
            found["spec"] = f"not exportable: {exc.where}: {exc.found}"
        else:
            plan = model.plan
            found["spec"] = {
                "layers": len(plan.layers),
                "hidden_size": plan.hidden_size,
                "vocab_size": plan.vocab_size,
                "max_position_embeddings": plan.max_position_embeddings,
                "tied_head": plan.head.tied,
                "runtime_model_type": model.genai_model_type,
            }
        if (experts := _describe_experts(checkpoint, path)) is not None:
            found["experts"] = experts
        if with_tensors:
            found["tensors"] = {info.name: f"{info.dtype} {list(info.shape)}" for info in infos}
    return found


def _describe_experts(checkpoint: Checkpoint, path: Path) -> dict[str, Any] | None:
    """How the experts lie in the files; None for a model without any."""
    from assay.spec import find_model_type, get_spec, group_expert_tensors

    stored = {info.name: (info.dtype, info.shape) for info in checkpoint.tensors.values()}
    try:
        name = find_model_type(checkpoint.config)
        known = name is not None and get_spec(name).moe_spec is not None
        if not known and not any("experts" in tensor.split(".") for tensor in stored):
            return None
        found = group_expert_tensors(checkpoint.config, stored, where=str(path))
    except AssayError as exc:
        told = {"error": f"{exc.where}: {exc.found}", "expected": exc.expected}
        return {**told, "next_step": exc.next_step}
    dtypes: dict[str, set[str]] = {}
    for group in found.groups:
        for part, tensor in group.tensors.items():
            dtypes.setdefault(part, set()).add(stored[tensor][0])
    return {
        "num_experts": found.num_experts,
        "layers": list(found.layers),
        "beyond_the_last_layer": list(found.beyond),
        "predicting": list(found.predicting),
        **_describe_form(found.files),
        "projections": list(dict.fromkeys(group.projection for group in found.groups)),
        "parts": {part: sorted(stored_as) for part, stored_as in sorted(dtypes.items())},
        "num_tensors": sum(len(group.tensors) for group in found.groups),
        "unaccounted": list(found.unaccounted),
        "groups": [asdict(group) for group in found.groups],
    }


def _describe_form(files: ExpertFiles | None) -> dict[str, Any]:
    """The published form; none where no spec says one."""
    if files is None:
        return {"layout": None}
    return {
        "gate_up": list(files.gate_up),
        "down": files.down,
        "layout": files.layout.kind,
        "is_transposed": files.layout.is_transposed,
        "is_concatenated": files.layout.is_concatenated,
    }


def _describe_folder(path: Path) -> dict[str, Any]:
    from assay.runtime import read_folder

    folder = read_folder(path)
    found: dict[str, Any] = {
        "path": str(path),
        "runtime_model_type": folder.config.get("model", {}).get("type"),
        "context_length": folder.context_length,
        "session_options": folder.session_options,
        "files": {
            file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()
        },
    }
    manifest = path / "manifest.json"
    if manifest.is_file():
        written = _read_manifest(manifest)
        found["made_by"] = {
            key: written.get(key) for key in ("source", "options", "versions", "load_once")
        }
        found["num_quantized"] = len(written.get("weights", {}))
    return found


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise RuntimeFolderError(
            str(path), f"it can't be read ({exc})", next_step="Export the model again."
        ) from exc
    if not isinstance(written, dict):
        raise RuntimeFolderError(
            str(path), "it isn't a JSON object", next_step="Export the model again."
        )
    return written


def _print_lines(value: dict[str, Any], indent: str) -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            print(f"{indent}{key}:")
            _print_lines(item, indent + "  ")
        else:
            shown = f"{item:,}" if isinstance(item, int) and abs(item) > 9999 else item
            print(f"{indent}{key}: {shown}")
