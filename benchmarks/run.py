"""The benchmarks: export cost, memory scaling and generation speed, beside the peers.

    python benchmarks/run.py [export] [scaling] [speed] [--pairs 5] [--peers-python PYTHON]
                             [--model FOLDER] [--prompt-tokens 256] [--new-tokens 64]

Without names all three run. The peers (onnxruntime-genai's model builder and mobius) live in
.venv-peers, which is made on first use, or in the environment of --peers-python. Prints tables and
keeps them with versions, machine and commands under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tools import (
    REPOSITORY,
    Tool,
    assay_tool,
    builder_tool,
    find_peers_python,
    mobius_tool,
    read_commit,
    read_versions,
)

sys.path.insert(0, str(REPOSITORY / "src"))  # this checkout, whatever is installed

import checkpoints
import export_cost
import generation_speed
import results

from assay.runtime import describe_machine

SECTIONS = ("export", "scaling", "speed")


def main() -> None:
    """Run the named sections, in an order in which each finds what it needs."""
    args = _parse_args()
    chosen = args.sections or list(SECTIONS)
    model = Path(args.model).resolve() if args.model else checkpoints.prepare_smollm2()
    int4 = assay_tool("int4", "--head", "int4")
    setting: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/run.py", *sys.argv[1:]]),
        "commit": read_commit(),
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine().to_json(),
        "versions": {"assay": read_versions(sys.executable)},
    }
    pairs: list[tuple[Tool, Tool]] = []
    if {"export", "speed"} & set(chosen):
        peers = find_peers_python(args.peers_python)
        setting["versions"]["peers"] = read_versions(peers)
        pairs = [
            (int4, builder_tool(peers, checkpoints.CACHE / "builder-cache")),
            (assay_tool("fp32"), mobius_tool(peers)),
        ]
    if "export" in chosen:
        _keep("export", setting, *export_cost.compare_exports(model, pairs, args.pairs))
    if "scaling" in chosen:
        large = checkpoints.prepare_tinyllama_shape()
        _keep("scaling", setting, *export_cost.compare_sizes(model, large, int4, 3))
    if "speed" in chosen:
        _keep("speed", setting, *_compare_speeds(model, pairs, args))


def _compare_speeds(
    model: Path, pairs: list[tuple[Tool, Tool]], args: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    for tool in (tool for pair in pairs for tool in pair):
        if not (export_cost.folder_of(tool, model) / "genai_config.json").is_file():
            export_cost.export_once(tool, model)
    (ours, theirs), (our_float, their_float) = pairs
    floats = [
        ("assay fp32, as exported", export_cost.folder_of(our_float, model)),
        ("mobius fp32, as it comes", export_cost.folder_of(their_float, model)),
    ]
    return generation_speed.compare_speeds(
        export_cost.folder_of(ours, model),
        export_cost.folder_of(theirs, model),
        floats,
        num_rounds=args.pairs,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
    )


def _keep(what: str, setting: dict[str, Any], data: dict[str, Any], text: str) -> None:
    machine = describe_machine().to_text()
    footer = f"Machine: {machine}. Commit {setting['commit']}. `{setting['command']}`"
    whole = f"# {what}\n\n{text}\n\n{footer}"
    file = results.write_results(what, {**setting, **data}, whole)
    print(f"\n{whole}\n\nKept in {file.relative_to(REPOSITORY)} and .json beside it.\n", flush=True)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks beside the peers.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs (default 5)")
    parser.add_argument("--peers-python", help="an interpreter that has the peers installed")
    parser.add_argument("--model", help="a Hugging Face folder instead of SmolLM2-135M")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    args = parser.parse_args()
    if not set(args.sections) <= set(SECTIONS):
        parser.error(f"unknown section; there are {', '.join(SECTIONS)}")
    return args


if __name__ == "__main__":
    main()
