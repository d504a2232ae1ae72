"""Run a job in a child process and read what it reports, whatever becomes of the child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

__all__ = ["ChildResult", "Run", "has_genai", "run_child"]

_SCRIPT = Path(__file__).with_name("_child.py")
_NUM_STDERR_LINES = 8


@dataclass(frozen=True, kw_only=True)
class Run:
    """One prefill and decode in the child.

    ttft_s: from handing over the prompt to having the first new token.
    decode_s: the remaining new_tokens - 1 tokens.
    others_cpus: processors that other processes kept busy meanwhile; None where unknown.
    """

    prompt_tokens: int
    new_tokens: int
    ttft_s: float
    decode_s: float
    others_cpus: float | None

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens over the time to the first new one."""
        return self.prompt_tokens / self.ttft_s

    @property
    def decode_tokens_per_s(self) -> float:
        """New tokens after the first over their time."""
        return (self.new_tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ChildResult:
    """What a child reported and how it ended.

    outcome: "ok"; "error" when the runtime raised; "crash" on a signal or a silent exit; "timeout".
    stage: the last stage it entered ("start", "import", "config", "load", "tokenizer", "generate").
    message: the runtime's own words, or how the process ended with its last stderr lines.
    """

    outcome: Literal["ok", "error", "crash", "timeout"]
    stage: str
    message: str
    seconds: float
    load_s: float | None
    runs: tuple[Run, ...]
    token_ids: tuple[int, ...]
    peak_rss_bytes: int | None


def has_genai() -> bool:
    """Is onnxruntime-genai installed for this interpreter? Nothing is imported."""
    return find_spec("onnxruntime_genai") is not None


def run_child(job: dict[str, Any], *, timeout_s: float) -> ChildResult:
    """Start the child script on a job, wait at most timeout_s seconds, and gather its report.

    job: see `_child`. The child is killed at the time-out and when the caller is interrupted.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(_SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    timed_out = False
    try:
        out, err = process.communicate(json.dumps(job), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        timed_out = True
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    seconds = time.perf_counter() - started
    return _gather(out, err, process.returncode, timeout_s if timed_out else None, seconds)


def _gather(
    out: str, err: str, returncode: int, timeout_s: float | None, seconds: float
) -> ChildResult:
    report: dict[str, Any] = {"stage": "start"}
    runs = []
    for event in _events(out):
        report.update(event)
        if "run" in event:
            runs.append(_read_run(event["run"]))
    error, done = report.get("error", {}), report.get("done", {})
    tail = "\n".join(err.strip().splitlines()[-_NUM_STDERR_LINES:])
    outcome: Literal["ok", "error", "crash", "timeout"]
    if timeout_s is not None:
        outcome, message = "timeout", f"no answer after {timeout_s:g} s\n{tail}".rstrip()
    elif error:
        outcome, message = "error", str(error["message"]).strip()
    elif done and returncode == 0:
        outcome, message = "ok", ""
    else:
        outcome, message = "crash", f"{_name_exit(returncode)}\n{tail}".rstrip()
    return ChildResult(
        outcome=outcome,
        stage=str(error.get("stage", report["stage"])),
        message=message,
        seconds=seconds,
        load_s=report.get("loaded"),
        runs=tuple(runs),
        token_ids=tuple(done.get("token_ids", ())),
        peak_rss_bytes=done.get("rss", error.get("rss")),
    )


def _events(out: str) -> list[dict[str, Any]]:
    """The complete JSON lines; a crash can cut the last one short."""
    events = []
    for line in out.splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return events


def _read_run(run: dict[str, Any]) -> Run:
    return Run(
        prompt_tokens=run["prompt_tokens"],
        new_tokens=run["new_tokens"],
        ttft_s=run["prefill_s"],
        decode_s=run["decode_s"],
        others_cpus=run["others_cpus"],
    )


def _name_exit(returncode: int) -> str:
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        hint = " (often: out of memory)" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{hint}"
    return f"the process ended with exit code {returncode} and no report"
