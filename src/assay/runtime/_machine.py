"""This machine: processors, memory, how busy others keep it, and the runtime's versions."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.version import __version__

__all__ = ["Machine", "describe_machine", "read_available_bytes", "wait_until_quiet"]

PACKAGES = ("onnxruntime-genai", "onnxruntime")
VARIANTS = ("onnxruntime-genai-cuda", "onnxruntime-genai-directml", "onnxruntime-gpu")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a measurement depends on, kept beside the numbers.

    num_cpus: processors this process may use (affinity and cgroup quota count).
    num_physical_cores: of the whole machine; equal to num_cpus where the system doesn't tell.
    """

    processor: str
    num_cpus: int
    num_physical_cores: int
    memory_bytes: int | None
    system: str
    python: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """One line."""
        memory = f", {self.memory_bytes / 2**30:.0f} GiB" if self.memory_bytes else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.processor}, {self.num_cpus} cpus{memory}, {self.system}; {versions}"


def describe_machine() -> Machine:
    """Read what the system says about itself; nothing is measured."""
    cpuinfo = _read("/proc/cpuinfo")
    num_cpus = _count_cpus()
    return Machine(
        processor=_processor_name(cpuinfo),
        num_cpus=num_cpus,
        num_physical_cores=min(_count_physical_cores(cpuinfo) or num_cpus, num_cpus),
        memory_bytes=_read_meminfo("MemTotal") or _sysconf_bytes("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        versions=_versions(),
    )


def read_available_bytes() -> int | None:
    """Memory that a new process could take now, in bytes; None where the system doesn't tell.

    MemAvailable of /proc/meminfo, lowered to what a cgroup v2 limit leaves (file pages that the
    kernel can drop count as free).
    """
    available = _read_meminfo("MemAvailable") or _sysconf_bytes("SC_AVPHYS_PAGES")
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit.strip().isdigit() and used.strip().isdigit():
        stat = dict(line.split() for line in _read("/sys/fs/cgroup/memory.stat").splitlines())
        left = max(0, int(limit) - int(used) + int(stat.get("inactive_file", 0)))
        return left if available is None else min(available, left)
    return available


def release_freed_memory() -> None:
    """Give freed heap back to the system, where the C library can (glibc's malloc_trim).

    glibc keeps what many arrays of a few megabytes leave behind: half a gigabyte after a wide
    vocabulary's weights were compared.
    """
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def wait_until_quiet(limit_s: float, *, others_cpus: float = 0.25) -> float:
    """Wait until others use fewer than others_cpus processors, at most limit_s; seconds waited.

    Off Linux nobody knows, and nobody waits.
    """
    started = time.monotonic()
    window_s = 0.2
    while time.monotonic() - started < limit_s:
        before = _busy_seconds()
        own = time.process_time()
        if before is None:
            break
        time.sleep(window_s)
        spent = (_busy_seconds() or before) - before - (time.process_time() - own)
        if spent / window_s < others_cpus:
            break
    return time.monotonic() - started


def _busy_seconds() -> float | None:
    """Processor seconds that all processes have used since the start (user to steal, no idle)."""
    fields = [int(field) for field in _read("/proc/stat").partition("\n")[0].split()[1:9]]
    if len(fields) < 8:
        return None
    return float(sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _count_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        count = min(count, max(1, int(quota[0]) // int(quota[1])))
    return count


def _count_physical_cores(cpuinfo: str) -> int:
    cores, package = set(), ""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "physical id":
            package = value.strip()
        elif key.strip() == "core id":
            cores.add((package, value.strip()))
    return len(cores)


def _processor_name(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def _read_meminfo(key: str) -> int | None:
    for line in _read("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _sysconf_bytes(name: str) -> int | None:
    if name not in getattr(os, "sysconf_names", {}):
        return None
    return int(os.sysconf(name)) * int(os.sysconf("SC_PAGE_SIZE"))


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text(errors="replace") if os.access(file, os.R_OK) else ""


def _versions() -> dict[str, str]:
    installed = {"assay": __version__}
    for name in (*PACKAGES, *VARIANTS):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in PACKAGES:
                installed[name] = "not installed"
    return installed
