"""What the judge says of the peers' exports of every tiny twin that they build.

    python benchmarks/peer_verdicts.py [--types llama,mistral] [--peers-python PYTHON]

Each twin's base case is exported by onnxruntime-genai's builder and by mobius in float32 and judged
from the folder alone, beside a plain comparison of logits over the prompt that knows nothing of
the judge. Prints a table and keeps it under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools import (
    REPOSITORY,
    find_peers_python,
    make_environment,
    mobius_tool,
    read_commit,
    read_versions,
)

sys.path.insert(0, str(REPOSITORY / "src"))
sys.path.insert(0, str(REPOSITORY))

import numpy as np
import results
from tests.twins.cases import BASES, CASES, TwinCase
from tests.twins.twin import build_twin

from assay.errors import AssayError
from assay.verification import Verdict, load_reference, open_candidate, verify_folder
from assay.verification.metrics import relative_l2
from assay.verification.reference import run_logits

NUM_TOKENS = 200
# Beyond the bases: rope scalings, and heads wide enough for GroupQueryAttention's own rotation.
WIDE = {"hidden_size": 256, "intermediate_size": 320}
MORE = [
    *(case for case in CASES if case.id in ("llama-linear", "llama-yarn", "olmo-clip_qkv")),
    *(
        TwinCase(name, "wide", {**BASES[name].facts, **WIDE})
        for name in ("phi", "nemotron", "stablelm", "gpt_neox")
    ),
]
CLEARLY_RIGHT, CLEARLY_WRONG = 2e-5, 1e-4


def main() -> None:
    """Export, judge, tabulate."""
    args = _parse_args()
    peers = find_peers_python(args.peers_python)
    cases = [*BASES.values(), *MORE]
    if args.types:
        cases = [case for case in cases if case.model_type in args.types.split(",")]
    rows: list[list[str]] = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="assay-peers-") as room:
            rows += _judge_case(case, Path(room), peers)
        for row in rows[-2:]:
            print("  ".join(row), flush=True)
    head = ["type", "tool", "relL2 of logits", "verdict", "failed checks", "agrees"]
    table = results.make_table(head, rows)
    print(table)
    judged = [row for row in rows if row[3] in ("pass", "fail")]
    wrong = [row for row in judged if row[5] == "NO"]
    summary = f"{len(judged)} folders judged, {len(wrong)} verdicts against the plain comparison."
    print(summary)
    results.write_results(
        "peer-verdicts", {"rows": rows}, f"# peer verdicts\n\n{table}\n\n{summary}"
    )


def _describe(peers: str) -> dict[str, Any]:
    versions = {"assay": read_versions(sys.executable), "peers": read_versions(peers)}
    return {"versions": versions, "commit": read_commit()}


def _judge_case(case: TwinCase, room: Path, peers: str) -> list[list[str]]:
    build_twin(case, 0.12, room / "hf")
    _write_tokenizer(room / "hf")
    rows = []
    builder = [peers, "-m", "onnxruntime_genai.models.builder", "-m", str(room / "hf")]
    builder += ["-p", "fp32", "-e", "cpu", "-c", str(room / "cache")]
    commands = {
        "builder": [*builder, "-o", str(room / "builder")],
        "mobius": mobius_tool(peers).fill(room / "hf", room / "mobius"),
    }
    for tool, command in commands.items():
        done = subprocess.run(
            command, env=make_environment(), capture_output=True, text=True, check=False
        )
        folder = room / tool
        if done.returncode or not list(folder.rglob("*.onnx")):
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            rows.append([case.id, tool, "-", "not built", last[:60], ""])
            continue
        rows.append([case.id, tool, *_judge(folder, room / "hf")])
    return rows


def _judge(folder: Path, reference: Path) -> list[str]:
    difference = _compare_plainly(folder, reference)
    try:
        verdict: Verdict = verify_folder(
            folder, reference, num_tokens=NUM_TOKENS, num_greedy_tokens=8, use_genai=False
        )
    except AssayError as exc:
        return [difference, "error", str(exc).splitlines()[0][:80], ""]
    failed = [check.name for check in verdict.checks if check.passed is False]
    try:
        value = float(difference)
    except ValueError:
        value = float("nan")
    agrees = ""
    if value <= CLEARLY_RIGHT:
        # Right over a prompt, and yet wrong elsewhere (batch, cache), is for a person to look at.
        agrees = "yes" if verdict.status == "pass" else "look"
    elif value > CLEARLY_WRONG or np.isnan(value):
        agrees = "yes" if verdict.status == "fail" else "NO"
    return [difference, verdict.status, ", ".join(failed), agrees]


def _compare_plainly(folder: Path, reference: Path) -> str:
    """relL2 over one prefill of 200 tokens."""
    ids = np.random.default_rng(1).integers(3, 250, NUM_TOKENS)
    try:
        logits = open_candidate(folder).prefill(ids)
        return f"{relative_l2(logits, run_logits(load_reference(reference), ids)):.2g}"
    except AssayError as exc:
        return str(exc).splitlines()[0][:40]


def _write_tokenizer(folder: Path) -> None:
    from checkpoints import _write_tokenizer as write

    write(folder, 251)


def _parse_args() -> Any:
    parser = argparse.ArgumentParser(description="The judge on the peers' tiny exports.")
    parser.add_argument("--types", help="comma-separated model types (default: all)")
    parser.add_argument("--peers-python")
    return parser.parse_args()


if __name__ == "__main__":
    main()
