"""assay env, as the command and as `python -m assay`: what shadows is told, and ends with 1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environment.installing import put_module, put_namespace, put_package

COMMANDS = {
    "assay": [str(Path(sys.executable).with_name("assay"))],
    "python -m assay": [sys.executable, "-m", "assay"],
}


def run(command: str, folder: Path, **environment: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON object, and the text of a second run."""
    outcomes = [
        subprocess.run(
            [*COMMANDS[command], "env", *flags],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        for flags in (["--json"], [])
    ]
    assert outcomes[0].stderr == outcomes[1].stderr == ""
    assert outcomes[0].returncode == outcomes[1].returncode
    return outcomes[0].returncode, json.loads(outcomes[0].stdout), outcomes[1].stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_clean_folder(command: str, tmp_path: Path) -> None:
    """proves: B13. Control: the strays below."""
    code, told, text = run(command, tmp_path)
    assert told["problems"] == told["strays"] == []
    assert (code, told["is_sound"]) == (0, True)
    assert "CPUExecutionProvider" in told["providers"]["names"]
    assert told["packages"]["onnxruntime"]["imported_from"] in text
    assert "nothing is shadowed" in text


@pytest.mark.parametrize("put", [put_package, put_module], ids=["package", "module"])
def test_a_stray_package(put: Any, tmp_path: Path) -> None:
    """The same folder shadows under `python -m assay` and not under `assay`. proves: B13

    Each is the other's control.
    """
    path = str(put(tmp_path, "onnxruntime"))
    code, told, text = run("python -m assay", tmp_path)
    assert (code, told["is_sound"]) == (1, False)
    (stray,) = told["strays"]
    assert (stray["effect"], stray["path"]) == ("shadows", path)
    assert told["packages"]["onnxruntime"]["imported_from"].startswith(path.removesuffix(".py"))
    assert "site-packages" in told["packages"]["onnxruntime"]["installed_at"]
    assert told["providers"]["error"]  # the stray has no get_available_providers
    assert "SHADOWED" in text
    assert path in text

    code, told, text = run("assay", tmp_path)
    assert (code, told["is_sound"]) == (0, True)
    (stray,) = told["strays"]
    assert (stray["effect"], stray["path"]) == ("would_shadow", path)
    assert "site-packages" in told["packages"]["onnxruntime"]["imported_from"]
    assert told["providers"]["error"] == ""
    assert "python -m" in text
    assert "SHADOWED" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stray_folder_without_init(command: str, tmp_path: Path) -> None:
    """proves: B13. Control: with __init__.py, above."""
    path = str(put_namespace(tmp_path, "onnxruntime"))
    code, told, text = run(command, tmp_path)
    assert code == 0
    (stray,) = told["strays"]
    assert (stray["effect"], stray["path"]) == ("harmless", path)
    assert "site-packages" in told["packages"]["onnxruntime"]["imported_from"]
    assert "harmless" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stray_on_pythonpath(command: str, tmp_path: Path) -> None:
    """It shadows whichever way assay is started. proves: B13. Control: another variable doesn't."""
    (tmp_path / "here").mkdir()
    path = str(put_package(tmp_path / "other", "numpy_not").parent)
    code, told, _ = run(command, tmp_path / "here", PYTHONPATH=path)
    assert (code, told["strays"]) == (0, [])
    put_package(tmp_path / "other", "tokenizers")
    code, told, text = run(command, tmp_path / "here", PYTHONPATH=path)
    assert code == 1
    (stray,) = told["strays"]
    assert stray["effect"] == "shadows"
    assert "PYTHONPATH" in text
    code, told, _ = run(command, tmp_path / "here", NOPYTHONPATH=path)
    assert (code, told["strays"]) == (0, [])
