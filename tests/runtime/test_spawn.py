"""The child process: whatever becomes of it, the parent knows, and its memory is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.runtime import _spawn
from assay.runtime._spawn import run_child

REPORT = """
import json, os, sys, time
def tell(**event):
    print(json.dumps(event), flush=True)
job = json.loads(sys.stdin.read())
tell(stage="load")
"""
ENDINGS = {
    "ok": 'tell(stage="exit", done={"token_ids": [4, 2], "rss": 77})',
    "segfault": 'sys.stderr.write("one\\ntwo\\n"); sys.stderr.flush(); os.kill(os.getpid(), 11)',
    "killed": "os.kill(os.getpid(), 9)",
    "silent": "sys.exit(3)",
    "raised": 'tell(error={"stage": "load", "message": "no luck", "rss": 5}); sys.exit(1)',
    "cut": 'sys.stdout.write("{\\"don"); sys.stdout.flush(); os.kill(os.getpid(), 11)',
    "hangs": "time.sleep(60)",
    "crash_after": 'tell(stage="exit", done={}); os.kill(os.getpid(), 6)',
}


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a scripted child that ends in a chosen way."""

    def run(ending: str, timeout_s: float = 30.0) -> _spawn.ChildResult:
        script = tmp_path / "child.py"
        script.write_text(REPORT + ENDINGS[ending])
        monkeypatch.setattr(_spawn, "_SCRIPT", script)
        return run_child({"folder": "x"}, timeout_s=timeout_s)

    return run


def test_reads_the_report_of_a_child_that_ends_well(child) -> None:  # proves: B11
    result = child("ok")
    assert (result.outcome, result.stage, result.message) == ("ok", "exit", "")
    assert (result.token_ids, result.peak_rss_bytes) == ((4, 2), 77)


def test_a_crash_keeps_the_last_words(child) -> None:  # proves: B11
    result = child("segfault")
    assert (result.outcome, result.stage) == ("crash", "load")
    assert "SIGSEGV" in result.message
    assert result.message.endswith("one\ntwo")


def test_a_kill_names_memory(child) -> None:  # proves: B11
    assert "out of memory" in child("killed").message


def test_a_silent_exit_is_a_crash(child) -> None:  # proves: B11
    result = child("silent")
    assert result.outcome == "crash"
    assert "exit code 3" in result.message


def test_the_runtimes_own_error_comes_through(child) -> None:  # proves: B11
    result = child("raised")
    assert (result.outcome, result.message, result.peak_rss_bytes) == ("error", "no luck", 5)


def test_half_a_line_is_no_report(child) -> None:  # proves: B11
    assert child("cut").outcome == "crash"


def test_a_crash_after_the_work_is_still_a_crash(child) -> None:  # proves: B11
    result = child("crash_after")
    assert (result.outcome, result.stage) == ("crash", "exit")


def test_a_hanging_child_is_ended(child) -> None:  # proves: B11
    result = child("hangs", timeout_s=1.0)
    assert (result.outcome, result.stage) == ("timeout", "load")
    assert result.seconds < 30


def test_the_childs_memory_is_its_own(exported: Path) -> None:  # proves: B11
    job = {"folder": str(exported), "prompt_ids": [1, 5], "new_tokens": 2}
    ballast = bytearray(b"x") * (400 << 20)
    result = run_child({**job, "repeats": 1, "max_repeats": 1}, timeout_s=120)
    assert len(ballast) > 0
    assert result.outcome == "ok", result.message
    assert result.peak_rss_bytes is not None
    assert 10 << 20 < result.peak_rss_bytes < 300 << 20
