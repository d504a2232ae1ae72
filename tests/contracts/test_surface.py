"""The command line and the public names are pinned: a change is made on purpose or not at all."""

from __future__ import annotations

import difflib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from tests.contracts.goldens import FOLDER, GOLDENS

REPOSITORY = Path(__file__).resolve().parents[2]
REFRESH = "python -m tests.contracts.goldens"


def compare(pinned: str, found: str) -> str:
    """The difference, or "" where there is none."""
    lines = difflib.unified_diff(
        pinned.splitlines(), found.splitlines(), "pinned", "found", lineterm=""
    )
    return "\n".join(lines)


@pytest.mark.parametrize("name", GOLDENS)
def test_the_surface_is_as_pinned(name: str) -> None:
    """proves: B12. Control: test_a_change_shows."""
    pinned = (FOLDER / name).read_text(encoding="utf-8")
    difference = compare(pinned, GOLDENS[name]())
    assert not difference, (
        f"{difference}\n\nIf this is meant, run {REFRESH}, and tell CHANGELOG.md."
    )


def test_a_change_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag or a name that comes or goes is seen. proves: B12"""
    main = importlib.import_module("assay.cli.main")  # `assay.cli.main` is the function
    pinned = GOLDENS["command_line.txt"]()
    with monkeypatch.context() as patch:
        patch.setattr(main, "VERBS", main.VERBS[:-1])
        assert "-assay models list" in compare(pinned, GOLDENS["command_line.txt"]())
    inner = main.build_parser

    def with_flag() -> object:
        parser = inner()
        parser.add_argument("--frobnicate", action="store_true")
        return parser

    with monkeypatch.context() as patch:
        patch.setattr(main, "build_parser", with_flag)
        assert "+  --frobnicate" in compare(pinned, GOLDENS["command_line.txt"]())
    names = GOLDENS["public_names.txt"]()
    monkeypatch.setattr("assay.runtime.__all__", ["bench"])
    assert "-  load_once" in compare(names, GOLDENS["public_names.txt"]())


def test_one_command_refreshes_the_goldens(tmp_path: Path) -> None:
    """What it writes is what is pinned. proves: B12. Control: it writes into the folder given."""
    program = (
        "import runpy, sys; from pathlib import Path; import tests.contracts.goldens as g;"
        "text = Path(g.__file__).read_text().replace('Path(__file__).parent / \"goldens\"',"
        "'Path(sys.argv[1])').replace('import argparse', 'import argparse, sys', 1);"
        "exec(compile(text, 'goldens.py', 'exec'), {'__name__': '__main__'})"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=REPOSITORY, check=True)
    for name in GOLDENS:
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()


def test_public_names_exist_and_are_told() -> None:
    """Each name resolves, and dir() shows it. proves: B12. Control: no other name resolves."""
    for name in assay.__all__:
        assert getattr(assay, name) is not None
    assert dir(assay) == sorted(assay.__all__)
    with pytest.raises(AttributeError, match="frobnicate"):
        assay.frobnicate  # noqa: B018


def test_the_readme_names_every_verb() -> None:
    """proves: B12. Control: a verb that isn't there isn't found."""
    from assay.cli.main import VERBS

    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    verbs = [verb.__name__.rsplit(".", 1)[1] for verb in VERBS]
    assert len(verbs) == 9
    assert [verb for verb in verbs if f"assay {verb}" not in readme] == []
    assert "assay frobnicate" not in readme
