"""The child process: load a folder in onnxruntime-genai, generate, and report what it took.

Run by path as its own interpreter (`python _child.py`), so that a crash of the runtime stays here
and its memory is counted apart. Nothing of assay is imported, for the same reason.

The job is one JSON object on stdin:
  folder, session_options (laid over the folder's own, may be empty), prompt_ids or
  (prompt_tokens, vocab_size), new_tokens, repeats, max_repeats, stop_at_eos, with_tokenizer,
  check_logits.
The report is JSON lines on stdout (the runtime's own prints go to stderr):
  {"stage"}, {"loaded": seconds}, {"run": {...}}, {"done": {...}} or {"error": {...}}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

# Busy share of others, in processors, above which a run is repeated (as often as max_repeats lets).
QUIET_OTHERS_CPUS = 0.25


def main() -> int:
    """Read the job, do it, report; exit code 1 where the runtime raised."""
    report = _open_report()
    job = json.loads(sys.stdin.read())
    stage = ["import"]

    def tell(**event: Any) -> None:
        stage[0] = event.get("stage", stage[0])
        report.write(json.dumps(event) + "\n")
        report.flush()

    try:
        _do(job, tell)
    except Exception as exc:  # noqa: BLE001 - the process boundary: everything goes to the parent
        kind = type(exc).__name__
        tell(error={"stage": stage[0], "type": kind, "message": str(exc), "rss": _peak_rss()})
        return 1
    return 0


def _open_report() -> Any:
    """Keep stdout for the report alone: what native code prints there goes to stderr instead."""
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return report


def _do(job: dict[str, Any], tell: Any) -> None:
    tell(stage="import")
    import onnxruntime_genai as og

    tell(stage="config")
    config = og.Config(job["folder"])
    if job.get("session_options"):
        overlay = {"model": {"decoder": {"session_options": job["session_options"]}}}
        config.overlay(json.dumps(overlay))
    tell(stage="load")
    started = time.perf_counter()
    model = og.Model(config)
    tell(loaded=time.perf_counter() - started)
    if job.get("with_tokenizer"):
        tell(stage="tokenizer")
        og.Tokenizer(model)
    tell(stage="generate")
    token_ids: list[int] = []
    num_runs = num_quiet = 0
    while num_quiet < job["repeats"] and num_runs < job["max_repeats"]:
        run, token_ids = _run(og, model, job)
        num_runs += 1
        num_quiet += run["others_cpus"] is None or run["others_cpus"] <= QUIET_OTHERS_CPUS
        tell(run=run)
    tell(stage="exit", done={"token_ids": token_ids, "rss": _peak_rss()})


def _run(og: Any, model: Any, job: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Prefill and decode once; times in seconds, others_cpus in processors."""
    import numpy as np

    prompt_ids = job.get("prompt_ids") or _make_prompt(job["prompt_tokens"], job["vocab_size"])
    total = len(prompt_ids) + job["new_tokens"]
    params = og.GeneratorParams(model)
    min_length = 0 if job.get("stop_at_eos") else total
    params.set_search_options(do_sample=False, max_length=total, min_length=min_length)
    generator = og.Generator(model, params)
    busy, own, started = _busy_seconds(), time.process_time(), time.perf_counter()
    generator.append_tokens(np.asarray(prompt_ids, dtype=np.int32))
    if job.get("check_logits") and not np.isfinite(generator.get_logits()).all():
        raise ArithmeticError("the logits hold NaN or infinity")
    generator.generate_next_token()
    first = time.perf_counter()
    while not generator.is_done():
        generator.generate_next_token()
    ended = time.perf_counter()
    others = None
    if busy is not None:
        spent = _busy_seconds() - busy - (time.process_time() - own)
        others = max(0.0, spent / (ended - started))
    token_ids = [int(token) for token in generator.get_sequence(0)[len(prompt_ids) :]]
    run = {"prefill_s": first - started, "decode_s": ended - first, "others_cpus": others}
    return {**run, "prompt_tokens": len(prompt_ids), "new_tokens": len(token_ids)}, token_ids


def _make_prompt(num_tokens: int, vocab_size: int) -> list[int]:
    """Spread over the vocabulary, the same on every run (Knuth's multiplicative hash)."""
    return [(position * 2654435761 + 97) % vocab_size for position in range(num_tokens)]


def _busy_seconds() -> Any:
    """Processor seconds that all processes of the machine have used; None off Linux."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    idle, iowait = fields[3], fields[4]
    return (sum(fields) - idle - iowait) / os.sysconf("SC_CLK_TCK")


def _peak_rss() -> int | None:
    """Peak resident set of this process in bytes.

    VmHWM and not ru_maxrss on Linux: the latter starts at the parent's size after vfork and exec.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own folder: its neighbours must not shadow anything
    sys.exit(main())
