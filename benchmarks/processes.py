"""Run a command and measure it from outside: wall time, peak resident set, processor time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a command.

    wall_s: from start to exit. peak_rss_bytes: of that process alone, its children apart.
    cpu_s: user and system time, children included. others_cpus: processors that the rest of the
    machine kept busy meanwhile (None off Linux). stdout: what it printed.
    """

    wall_s: float
    peak_rss_bytes: int
    cpu_s: float
    others_cpus: float | None
    stdout: str


def measure_command(command: Sequence[str], *, env: dict[str, str], log: Path) -> Measured:
    """Run to the end; SystemExit with the end of its stderr where it fails.

    On Linux the peak is VmHWM of the process, read every 5 ms while it runs: what wait4 reports
    would take in the largest child. Elsewhere it is wait4's, children included.
    """
    busy, started = _busy_seconds(), time.perf_counter()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=env, encoding="utf-8"
        )
        peak = _PeakReader(process.pid)
        peak.start()
        assert process.stdout is not None
        stdout = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, busy_after = time.perf_counter() - started, _busy_seconds()
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
    if process.returncode:
        tail = log.read_text(errors="replace")[-3000:]
        raise SystemExit(f"{' '.join(command)}\nexit code {process.returncode}\n{tail}")
    unit = 1 if sys.platform == "darwin" else 1024
    cpu_s = usage.ru_utime + usage.ru_stime
    others = None
    if busy is not None and busy_after is not None:
        others = max(0.0, (busy_after - busy - cpu_s) / wall_s)
    return Measured(
        wall_s=wall_s,
        peak_rss_bytes=peak.stop() or usage.ru_maxrss * unit,
        cpu_s=cpu_s,
        others_cpus=others,
        stdout=stdout,
    )


class _PeakReader(threading.Thread):
    """Reads VmHWM of a process until it is gone; it only rises, so the last one is the peak."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._file = f"/proc/{pid}/status"
        self._peak_bytes = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                text = Path(self._file).read_text()
            except OSError:
                return
            for line in text.splitlines():
                if line.startswith("VmHWM:"):
                    self._peak_bytes = int(line.split()[1]) * 1024

    def stop(self) -> int:
        """The peak in bytes; 0 where the system has no /proc."""
        self._over.set()
        self.join()
        return self._peak_bytes


def _busy_seconds() -> float | None:
    """Processor seconds of all processes since the start; None where there is no /proc/stat."""
    file = Path("/proc/stat")
    if not file.is_file():
        return None
    fields = [int(field) for field in file.read_text().partition("\n")[0].split()[1:9]]
    return float(sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def name_load() -> dict[str, Any]:
    """The load average, for the record: how busy the machine was with other things."""
    return {"load_average": list(os.getloadavg())}
