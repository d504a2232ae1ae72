"""Runs a folder in onnxruntime-genai; started as a script, in a process of its own.

A crash of the runtime, or its memory, then costs the child and not the judge. Reads one JSON
request from standard input and writes logits and tokens to the .npz file it names. Imports
nothing of assay, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder: its modules must not shadow installed packages

import numpy as np
import onnxruntime_genai as og


def main() -> None:
    """Prefill, keep the last logits, then generate greedily until enough tokens or the end."""
    request = json.load(sys.stdin)
    ids = np.asarray(request["ids"], np.int32)
    model = og.Model(request["folder"])
    params = og.GeneratorParams(model)
    params.set_search_options(
        max_length=len(ids) + request["num_tokens"],
        min_length=0,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
    )
    generator = og.Generator(model, params)
    generator.append_tokens(ids)
    logits = np.asarray(generator.get_logits(), np.float32)
    for _ in range(request["num_tokens"]):
        if generator.is_done():
            break
        generator.generate_next_token()
    sequence = np.asarray(generator.get_sequence(0))
    np.savez(
        request["output"],
        logits=logits.reshape(-1, logits.shape[-1])[-1],
        tokens=sequence[len(ids) :],
    )


if __name__ == "__main__":
    main()
