"""Runs a folder in onnxruntime-genai; started as a script, in a process of its own.

A crash of the runtime, or its memory, then costs the child and not the judge. Reads one JSON
request from standard input and writes logits and tokens to the .npz file it names. Imports
nothing of assay, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import json
import sys
from typing import Any

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
    text = _speak(model, request.get("texts", []), request.get("messages"))
    np.savez(
        request["output"],
        logits=logits.reshape(-1, logits.shape[-1])[-1],
        tokens=sequence[len(ids) :],
        text=np.asarray(json.dumps(text)),
    )


def _speak(model: Any, texts: list[str], messages: Any) -> dict[str, Any] | None:
    """Encode, decode and render by the folder's own files; None without a tokenizer."""
    try:
        tokenizer = og.Tokenizer(model)
        ids = [[int(i) for i in tokenizer.encode(text)] for text in texts]
        decoded = [tokenizer.decode(np.asarray(row, np.int32)) for row in ids]
    except Exception:  # noqa: BLE001  (the runtime raises its own kinds)
        return None
    found: dict[str, Any] = {"ids": ids, "decoded": decoded}
    try:
        rendered = tokenizer.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
        found["chat"] = str(rendered)
    except Exception as exc:  # noqa: BLE001
        found["chat_error"] = str(exc)
    return found


if __name__ == "__main__":
    main()
