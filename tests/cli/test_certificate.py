"""assay verify and its certificate: kept, re-checked, left out, and what it says of strays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.pipeline import export
from tests.cli.test_env import COMMANDS
from tests.cli.test_errors import parse_strictly
from tests.conftest import Outcome
from tests.environment.installing import put_module, put_namespace, put_package
from tests.pipeline.tiny import make_config, make_tensors, write_llama

Command = Callable[..., Outcome]
SHORT = ("-n", 12, "--no-genai", "--quiet")


@pytest.fixture(scope="module")
def exported(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder; leave it as it is."""
    return export(llama, tmp_path_factory.mktemp("kept") / "out", check_loading=False).folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy to write to."""
    return Path(shutil.copytree(exported, tmp_path / "out"))


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file's bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_certificate_is_kept_and_checked(
    llama: Path, folder: Path, assay_command: Command
) -> None:
    """proves: P10. Control: a byte changed ends with 1, no certificate with 2."""
    assert assay_command("verify", "--certificate", folder).code == 2
    done = assay_command("verify", folder, "-r", llama, *SHORT)
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"certificate: {folder / 'parity.json'}"
    content = json.loads((folder / "parity.json").read_text())
    assert content["verdict"]["verdict"] == "pass"
    assert [len(prompt["sha256"]) for prompt in content["prompts"]] == [64]

    check = assay_command("verify", "--certificate", folder)
    assert (check.code, check.out.split()[0]) == (0, "HOLDS")
    told = parse_strictly(assay_command("verify", "--certificate", folder, "--json").out)
    assert (told["holds"], told["verdict"], told["exit_code"]) == (True, "pass", 0)

    weights = folder / "model.onnx.data"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\7")
    check = assay_command("verify", "--certificate", folder)
    assert (check.code, check.out.split()[0]) == (1, "VOID")
    assert "model.onnx.data" in check.out
    told = parse_strictly(assay_command("verify", "--certificate", folder, "--json").out)
    assert (told["holds"], told["changed"], told["exit_code"]) == (False, ["model.onnx.data"], 1)


def test_a_verdict_of_fail_is_kept_too(
    folder: Path, tmp_path: Path, assay_command: Command
) -> None:
    """The files are those that failed. proves: P10. Control: above, those that passed."""
    tensors = make_tensors(make_config(), seed=12)
    other = write_llama(tmp_path / "other", tensors=tensors)
    assert assay_command("verify", folder, "-r", other, *SHORT).code == 1
    check = assay_command("verify", "--certificate", folder)
    assert (check.code, check.out.split()[0]) == (1, "HOLDS")
    assert "FAIL" in check.out


def test_no_certificate_leaves_the_folder(
    llama: Path, folder: Path, assay_command: Command
) -> None:
    """proves: P10, B12. Control: without the flag one file comes."""
    before = read_folder(folder)
    done = assay_command("verify", folder, "-r", llama, *SHORT, "--no-certificate", "--json")
    assert done.code == 0
    assert parse_strictly(done.out)["certificate"] is None
    assert read_folder(folder) == before
    done = assay_command("verify", folder, "-r", llama, *SHORT, "--json")
    told = parse_strictly(done.out)
    assert told["verdict"] == "pass"
    assert told["certificate"]["path"] == str(folder / "parity.json")
    assert set(told["certificate"]["files"]) == set(before)
    assert set(read_folder(folder)) - set(before) == {"parity.json"}


def test_a_folder_that_can_not_be_written(
    llama: Path, folder: Path, assay_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning; the verdict stands. proves: P10, B12. Control: above, it is written."""

    def refuse(**_: Any) -> Any:
        raise OSError(30, "Read-only file system")

    before = read_folder(folder)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", refuse)
        done = assay_command("verify", folder, "-r", llama, *SHORT)
    assert done.code == 0
    assert done.err.count("assay: warning: no certificate was written") == 1
    assert "Read-only" in done.err
    assert "Traceback" not in done.err
    assert "certificate:" not in done.out
    assert read_folder(folder) == before
    (folder / "parity.json").mkdir()  # no file can take its place, not even root's
    done = assay_command("verify", folder, "-r", llama, *SHORT)
    assert (done.code, done.err.count("no certificate was written")) == (0, 1)


def test_a_graph_s_certificate_lies_in_its_folder(
    llama: Path, folder: Path, assay_command: Command
) -> None:
    """proves: P9, P10. Control: the folder's own name finds it."""
    assert assay_command("verify", folder / "model.onnx", "-r", llama, *SHORT).code == 0
    for path in (folder, folder / "model.onnx"):
        assert assay_command("verify", "--certificate", path).code == 0


BAD_CALLS = {
    "no reference": ([], "-r/--reference"),
    "a reference too many": (["--certificate", "-r", "x"], "--reference"),
    "a report of nothing": (["--certificate", "--report", "x.html"], "--report"),
    "both": (["--certificate", "--no-certificate"], "--no-certificate"),
    "a report without a folder": (["-r", "x", "--report", "/nowhere/x.html"], "/nowhere"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_calls_that_make_no_sense(case: str, folder: Path, assay_command: Command) -> None:
    """proves: B12. Control: each half alone is understood, above."""
    flags, word = BAD_CALLS[case]
    done = assay_command("verify", folder, *flags)
    assert done.code == 2
    assert word in done.err
    assert "Traceback" not in done.err
    assert parse_strictly(assay_command("verify", folder, *flags, "--json").out)["next_step"]


def test_a_report_is_written(
    llama: Path, folder: Path, tmp_path: Path, assay_command: Command
) -> None:
    """proves: P10, B12. Control: one that can't be written ends with 2, after the verdict."""
    call = ("verify", folder, "-r", llama, *SHORT, "--report")
    assert assay_command(*call, tmp_path / "report.html").code == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    content = json.loads((folder / "parity.json").read_text())
    assert content["files"]["model.onnx.data"]["sha256"][:12] in text
    done = assay_command(*call, tmp_path)
    assert done.code == 2
    assert done.out.startswith("PASS")
    assert "isn't a file" in done.err


RECHECK = """
import sys
from assay.cli import main
code = main(["verify", "--certificate", sys.argv[1], "--quiet"])
print(sorted({"torch", "transformers", "onnxruntime"} & set(sys.modules)))
sys.exit(code)
"""


def test_checking_needs_no_reference_and_no_time(
    llama: Path, folder: Path, assay_command: Command
) -> None:
    """A second or two, without PyTorch. proves: P10. Control: judging does load it."""
    assert assay_command("verify", folder, "-r", llama, *SHORT).code == 0
    assert "torch" in sys.modules
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", RECHECK, str(folder)], capture_output=True, text=True
    )
    assert time.perf_counter() - start < 5  # 0.3 s here; the machine may be busy
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


STRAYS = {
    "assay, a package": ("assay", put_package, "onnxruntime", "would_shadow"),
    "python -m, a bare folder": ("python -m assay", put_namespace, "onnxruntime", "harmless"),
    "python -m, a file": ("python -m assay", put_module, "numba", "shadows"),
    "assay, nothing": ("assay", None, "onnxruntime", ""),
}


@pytest.mark.parametrize("case", STRAYS)
def test_a_stray_folder_stands_in_the_certificate(
    case: str, llama: Path, folder: Path, tmp_path: Path
) -> None:
    """What was imported from where, when it was judged. proves: B13, P10

    Control: in an empty folder there is none, and what doesn't shadow isn't warned of.
    """
    command, put, package, effect = STRAYS[case]
    here = tmp_path / "here"
    here.mkdir()
    path = str(put(here, package)) if put else ""
    done = subprocess.run(
        [*COMMANDS[command], "verify", str(folder), "-r", str(llama), *map(str, SHORT)],
        cwd=here,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads((folder / "parity.json").read_text())
    told = [(stray["effect"], stray["path"]) for stray in content["environment"]["strays"]]
    assert told == ([(effect, path)] if effect else [])
    origin = content["environment"]["packages"][package]["imported_from"]
    assert origin.startswith(str(here)) == (effect == "shadows")
    assert ("warning" in done.stderr) == (effect == "shadows")
