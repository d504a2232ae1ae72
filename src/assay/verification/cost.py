"""What the folder costs to run on this machine, as a few runs in onnxruntime-genai tell it."""

from __future__ import annotations

from typing import Any

from assay.errors import AssayError
from assay.runtime import bench
from assay.verification.folder import ModelFolder

__all__ = ["measure_cost"]

_PROMPT_TOKENS, _NEW_TOKENS = 128, 32


def measure_cost(folder: ModelFolder, num_runs: int) -> dict[str, Any]:
    """Time to first token, tokens a second, load time, peak memory: {name: {unit, mean, ...}}.

    Each run is a process of its own. {"skipped": reason} where the runtime isn't there or refuses.
    """
    limit = folder.config.get("model", {}).get("context_length")
    longest = limit if isinstance(limit, int) and limit > 0 else _PROMPT_TOKENS + _NEW_TOKENS
    new_tokens = min(_NEW_TOKENS, max(1, longest // 4))
    prompt_tokens = min(_PROMPT_TOKENS, max(1, longest - new_tokens))
    try:
        report = bench(
            folder.path, prompt_tokens=prompt_tokens, new_tokens=new_tokens, runs=num_runs
        )
    except AssayError as exc:
        return {"skipped": f"{exc.where}: {exc.found}"}
    found: dict[str, Any] = report.to_json()["summaries"]
    setting = {
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "runs": num_runs,
        "machine": report.machine.to_text(),
    }
    return {**found, "setting": setting}
