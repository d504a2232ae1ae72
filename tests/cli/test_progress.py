"""Progress: plain lines on a pipe, a bar on a terminal, nothing when quiet; never on stdout."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.pipeline import export
from tests.conftest import Outcome

STAGES = ["plan", "write", "load once"]


def build_command(llama: Path, output: Path, *more: str) -> list[str]:
    """An int4 export as a command line."""
    command = [sys.executable, "-m", "assay", "export", "-m", str(llama), "-o", str(output)]
    return [*command, "-p", "int4", "--no-verify", *more]


def test_lines_on_a_pipe(llama: Path, room: Path, assay_command: Callable[..., Outcome]) -> None:
    """proves: B12. Control: --quiet has none."""
    call = ("export", "-m", llama, "-p", "int4", "--no-verify", "-o")
    loud = assay_command(*call, room / "loud")
    assert [line.split(" (")[0] for line in loud.err.splitlines()] == STAGES
    assert "\r" not in loud.err
    assert "\x1b" not in loud.err
    assert len(loud.out.splitlines()) == 1
    assert assay_command(*call, room / "quiet", "--quiet").err == ""


def run_on_terminal(command: list[str]) -> tuple[int, str, str]:
    """Run with stderr on a terminal; returns the code, stdout and what the terminal saw."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, text=True)
    os.close(side)
    seen = b""
    try:
        while piece := os.read(main, 4096):
            seen += piece
    except OSError:
        pass  # the other side is closed: Linux says EIO
    finally:
        os.close(main)
    out, _ = process.communicate()
    return process.returncode, out, seen.decode()


def test_a_bar_on_a_terminal(llama: Path, room: Path) -> None:
    """proves: B12. Control: --quiet has none."""
    code, out, seen = run_on_terminal(build_command(llama, room / "out", "--no-load"))
    assert code == 0
    assert "write:   0%|" in seen
    assert "\r" in seen.replace("\r\n", "")
    assert "write" not in out
    code, _, seen = run_on_terminal(build_command(llama, room / "quiet", "--no-load", "--quiet"))
    assert (code, seen) == (0, "")


@pytest.mark.parametrize("choices", [{}, {"precision": "int4"}, {"precision": "fp16"}], ids=str)
def test_the_bar_reaches_its_end(llama: Path, room: Path, choices: dict[str, str]) -> None:
    """What is reported adds up to the weights; alignment alone is missing. proves: B12

    Control: the stages come in order, each once.
    """

    class Listener:
        def __init__(self) -> None:
            self.stages: list[str] = []
            self.total = self.done = 0

        def start(self, stage: str, total_bytes: int = 0) -> None:
            self.stages.append(stage)
            self.total += total_bytes

        def advance(self, num_bytes: int) -> None:
            assert num_bytes > 0
            self.done += num_bytes

    listener = Listener()
    report = export(llama, room / "out", progress=listener, **choices)  # type: ignore[arg-type]
    assert listener.stages == STAGES
    assert listener.total == report.plan.weights_bytes
    padding = 4096 * len(report.plan.graph.initializers)
    assert listener.total - padding <= listener.done <= listener.total
