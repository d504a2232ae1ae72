"""The output folder appears whole or not at all, and what stood there before survives a failure."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError, OutputError, WeightError
from assay.pipeline import export
from assay.runtime import LoadReport
from tests.pipeline.tiny import write_llama

Change = Callable[[pytest.MonkeyPatch], None]


def export_quietly(checkpoint: Path, output: Path, **choices: Any) -> Path:
    """Export without loading."""
    return export(checkpoint, output, **{"check_loading": False, **choices}).folder


def take_snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def raise_at(call: int, error: Callable[[], BaseException], inner: Any) -> Any:
    """A function that does what `inner` does, but raises at its n-th call."""
    count = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == call:
            raise error()
        return inner(*arguments, **named)

    return wrapped


def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the data is written: the real signal, so Python's own handler raises."""

    def pwrite(*arguments: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the handler raises before this line")

    monkeypatch.setattr(os, "pwrite", pwrite)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk_while_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", raise_at(5, no_space, os.pwrite))


def fill_disk_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "truncate", raise_at(1, no_space, os.truncate))


def fill_disk_at_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "copyfile", raise_at(1, no_space, shutil.copyfile))


def exceed_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    def quota() -> OSError:
        return OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "pwrite", raise_at(2, quota, os.pwrite))


def leave_little_space(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=50_000))


DISK_FAULTS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "while writing": (fill_disk_while_writing, ("the disk is full", "Free some space")),
    "at once": (fill_disk_at_once, ("the disk is full", "Free some space")),
    "at the tokenizer": (fill_disk_at_the_tokenizer, ("No space left", "free space")),
    "quota": (exceed_quota, ("the disk is full", "Free some space")),
    "known before": (leave_little_space, ("0 MB are free", "at least", "Free some space")),
}


@pytest.mark.parametrize("fault", DISK_FAULTS)
def test_a_full_disk_is_one_clear_error(
    fault: str, llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: with the disk as it is, the export succeeds."""
    change, words = DISK_FAULTS[fault]
    with monkeypatch.context() as patch:
        change(patch)
        with pytest.raises(OutputError) as caught:
            export_quietly(llama, room / "out")
    for word in words:
        assert word in str(caught.value)
    assert "room" in caught.value.where
    assert list(room.iterdir()) == []
    assert export_quietly(llama, room / "out").is_dir()


def test_the_system_s_own_refusal_to_write(llama: Path, room: Path) -> None:
    """A limit on file sizes stops a real write, and the command leaves nothing. proves: B11"""
    command = [sys.executable, "-m", "assay", "export", "-m", llama, "-o", room / "out"]
    command += ["--no-load", "--no-verify", "--quiet"]

    def run(limit: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    failed = run(150_000)
    assert failed.returncode == 2, failed.stderr
    assert "File too large" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert list(room.iterdir()) == []
    assert run(10_000_000).returncode == 0  # control


UNWRITABLE: dict[str, Callable[[Path], Path]] = {
    "the parent is a file": lambda room: _touch(room / "file") / "out",
    "a grandparent is a file": lambda room: _touch(room / "file") / "a" / "out",
    "no folder can be made there": lambda room: Path("/proc/assay-test/out"),
    "the name is too long": lambda room: room / ("x" * 300),
}


def _touch(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("place", UNWRITABLE)
def test_a_place_that_can_not_be_written(place: str, llama: Path, room: Path) -> None:
    """proves: B11. Control: any other test here writes."""
    before = sorted(room.iterdir())
    output = UNWRITABLE[place](room)
    with pytest.raises(OutputError, match="it can't be written") as caught:
        export_quietly(llama, output)
    assert str(output) in caught.value.where
    assert "permissions" in caught.value.next_step
    assert {path.name for path in room.iterdir()} <= {"file", *(path.name for path in before)}


def test_a_parent_without_permission(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated, since root may write anywhere; made parents are taken back. proves: B11"""

    def refuse(*arguments: Any, **named: Any) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkdtemp", refuse)
        with pytest.raises(OutputError, match="Permission denied"):
            export_quietly(llama, room / "a" / "b" / "out")
    assert list(room.iterdir()) == []
    assert export_quietly(llama, room / "a" / "b" / "out").is_dir()  # control


def test_an_existing_output_is_kept(llama: Path, room: Path) -> None:
    """proves: B11. Control: with --overwrite it is replaced, an empty folder even without."""
    out = export_quietly(llama, room / "out")
    before = take_snapshot(out)
    with pytest.raises(OutputError, match="it exists already") as caught:
        export_quietly(llama, out, precision="int4")
    assert "--overwrite" in caught.value.next_step
    assert take_snapshot(out) == before
    export_quietly(llama, out, precision="int4", overwrite=True)
    assert take_snapshot(out)["model.onnx.data"] != before["model.onnx.data"]
    assert [path.name for path in room.iterdir()] == ["out"]
    (room / "empty").mkdir()
    assert len(take_snapshot(export_quietly(llama, room / "empty"))) == len(before)


def test_only_a_model_folder_is_overwritten(llama: Path, room: Path) -> None:
    """A slip such as `-o ~ --overwrite` must not cost a home. proves: B11"""
    home = room / "home"
    (home / "documents").mkdir(parents=True)
    (home / "documents" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="isn't a model folder") as caught:
        export_quietly(llama, home, overwrite=True)
    assert "documents" in caught.value.found
    assert take_snapshot(home) == {"documents/thesis.txt": b"years of work"}
    shutil.rmtree(home / "documents")
    (home / "genai_config.json").write_text("{}")
    export_quietly(llama, home, overwrite=True)  # control


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_checkpoint_is_never_the_output(tmp_path: Path, overwrite: bool) -> None:
    """Neither the checkpoint's folder nor one around it is replaced. proves: B11"""
    around = tmp_path / "around"
    checkpoint = write_llama(around / "checkpoint")
    for folder in (around, checkpoint):
        (folder / "genai_config.json").write_text("{}")
    link = tmp_path / "link"
    link.symlink_to(checkpoint)
    before = take_snapshot(around)
    for output in (checkpoint, around, link, checkpoint / "x" / ".."):
        with pytest.raises(OutputError, match="holds the checkpoint"):
            export_quietly(checkpoint, output, overwrite=overwrite)
    assert take_snapshot(around) == before
    assert export_quietly(checkpoint, checkpoint / "onnx").is_dir()  # control: inside it is fine


def test_a_file_or_a_link_is_never_replaced(llama: Path, room: Path) -> None:
    """proves: B11. Control: the folder that the link points to may be replaced by name."""
    file, link = room / "file", room / "link"
    file.write_text("kept")
    link.symlink_to(export_quietly(llama, room / "out"))
    for output in (file, link):
        with pytest.raises(OutputError):
            export_quietly(llama, output, overwrite=True)
    assert file.read_text() == "kept"
    assert link.is_symlink()
    export_quietly(llama, room / "out", overwrite=True)
    assert (link / "model.onnx").is_file()


@pytest.fixture
def old(llama: Path, room: Path) -> Iterator[Path]:
    """An int8 folder that a failing overwrite must leave as it was."""
    out = export_quietly(llama, room / "out", precision="int8")
    before = take_snapshot(out)
    yield out
    assert take_snapshot(out) == before
    assert [path.name for path in room.iterdir()] == ["out"], "something was left"


def fail_rename(call: int, error: Callable[[], BaseException]) -> Change:
    """The n-th rename raises; an overwrite has two."""
    return lambda patch: patch.setattr(Path, "rename", raise_at(call, error, Path.rename))


def interrupted_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right after the old folder was moved aside: the worst moment."""
    inner = Path.rename

    def rename(path: Path, target: Path) -> Path:
        result = inner(path, target)
        if target.parent.suffix == ".old":
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Path, "rename", rename)


FAILURES: dict[str, tuple[Change, type[BaseException]]] = {
    "disk full": (fill_disk_while_writing, OutputError),
    "disk too small": (leave_little_space, OutputError),
    "interrupted while writing": (interrupt, KeyboardInterrupt),
    "old one can't be moved": (fail_rename(1, no_space), OutputError),
    "new one can't be moved": (fail_rename(2, no_space), OutputError),
    "interrupted between the two": (interrupted_rename, KeyboardInterrupt),
    "interrupted before the last": (fail_rename(2, KeyboardInterrupt), KeyboardInterrupt),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_overwrite_keeps_the_old_folder(
    failure: str, llama: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: test_an_existing_output_is_kept replaces one."""
    change, error = FAILURES[failure]
    with monkeypatch.context() as patch:
        change(patch)
        with pytest.raises(error):
            export_quietly(llama, old, overwrite=True)


def test_a_bad_weight_keeps_the_old_folder(tmp_path: Path, old: Path) -> None:
    """The last tensor is bad, when all others are written. proves: B3, B11"""
    bad = write_llama(tmp_path / "bad", change=lambda t: t["lm_head.weight"].fill(float("nan")))
    with pytest.raises(WeightError, match=r"lm_head\.weight"):
        export_quietly(bad, old, overwrite=True)


def test_a_failing_load_keeps_the_old_folder(
    llama: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11"""
    failed = LoadReport(status="failed", reason="planted")
    monkeypatch.setattr("assay.pipeline.load_once", lambda folder: failed)
    with pytest.raises(AssayError, match="planted"):
        export(llama, old, overwrite=True)


def test_an_interrupt_leaves_nothing(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: not interrupted, the same call writes."""
    with monkeypatch.context() as patch:
        interrupt(patch)
        with pytest.raises(KeyboardInterrupt):
            export_quietly(llama, room / "a" / "out")
    assert list(room.iterdir()) == []
    assert export_quietly(llama, room / "a" / "out").is_dir()
