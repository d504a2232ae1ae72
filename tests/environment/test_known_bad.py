"""Combinations that don't work are found in metadata, and good ones aren't."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.environment.known_bad import KNOWN_BAD, Problem, find_problems
from assay.environment.packages import index_installed, read_packages
from tests.environment.installing import install

Wanted = tuple[str, str, tuple[str, ...]]

GENAI = ("onnxruntime-genai", "0.18.0", ("numpy>=1.21", "onnxruntime>=1.31.0"))
NUMPY = ("numpy", "2.4.6", ())
NUMBA = ("numba", "0.68.1", ("numpy<2.6,>=1.22",))
TRANSFORMERS = (
    "transformers", "5.24.0",
    ("tokenizers<0.24.0,>=0.23.1", 'torch>=2.6; extra == "torch"', 'nltk; extra == "testing"'),
)  # fmt: skip
ASSAY = (
    "assay", "0.1.0",
    ("numpy>=1.26", 'transformers>=4.57; extra == "verify"', 'assay[genai]; extra == "verify"',
     'mypy==2.4.1; extra == "dev"'),
)  # fmt: skip

# name: what is installed, a word of what is found, a word of what goes wrong; then what mends it.
CASES: dict[str, tuple[list[Wanted], str, str, list[Wanted]]] = {
    "genai is newer": (
        [NUMPY, GENAI, ("onnxruntime", "1.30.0", ())], "needs onnxruntime>=1.31.0", "API version",
        [NUMPY, GENAI, ("onnxruntime", "1.31.0", ())],
    ),
    "onnxruntime is missing": (
        [NUMPY, GENAI], "no onnxruntime is installed", "API version",
        [NUMPY, GENAI, ("onnxruntime-gpu", "1.32.0", ())],
    ),
    "onnxruntime is too old for opset 23": (
        [("onnxruntime", "1.22.1", ())], "onnxruntime 1.22.1", "opset 23",
        [("onnxruntime", "1.23.0", ())],
    ),
    "numpy is too new for numba": (
        [("numpy", "2.6.0", ()), NUMBA], "numba 0.68.1 needs numpy<2.6", "ImportError",
        [NUMPY, NUMBA],
    ),
    "tokenizers are too new": (
        [TRANSFORMERS, ("tokenizers", "0.24.0", ())], "tokenizers 0.24.0", "ImportError",
        [TRANSFORMERS, ("tokenizers", "0.23.3", ())],
    ),
    "torch is too old": (
        [TRANSFORMERS, ("tokenizers", "0.23.3", ()), ("torch", "2.5.1+cpu", ())], "torch>=2.6",
        "switches PyTorch off",
        [TRANSFORMERS, ("tokenizers", "0.23.3", ()), ("torch", "2.13.0+cpu", ())],
    ),
    "transformers is too old": (
        [ASSAY, NUMPY, ("transformers", "4.56.2", ())], "transformers>=4.57", "assay[verify]",
        [ASSAY, NUMPY, ("transformers", "4.57.0", ())],
    ),
    "assay lacks numpy": (
        [ASSAY], "no numpy is installed", "isn't met", [ASSAY, NUMPY],
    ),
}  # fmt: skip


def look(site: Path, installs: list[Wanted]) -> tuple[Problem, ...]:
    """The problems of a site-packages that holds these."""
    for name, version, requires in installs:
        package = "onnxruntime" if name == "onnxruntime-gpu" else ""
        install(site, name, version, package=package, requires=requires)
    installed = index_installed([str(site)])
    return find_problems(read_packages(installed), installed)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_combination_is_found(case: str, tmp_path: Path) -> None:
    """proves: B13. Control: the version that mends it leaves no problem."""
    bad, found, wrong, good = CASES[case]
    (problem,) = look(tmp_path / "bad", bad)
    assert found in problem.found
    assert wrong in problem.goes_wrong
    assert problem.next_step
    assert problem.source
    assert found in problem.to_text()
    assert look(tmp_path / "good", good) == ()


def test_two_onnxruntimes_share_a_folder(tmp_path: Path) -> None:
    """proves: B13. Control: each alone is fine, and a plugin of that name isn't one."""
    both = [("onnxruntime", "1.32.0", ()), ("onnxruntime-gpu", "1.31.0", ())]
    (problem,) = look(tmp_path / "both", list(both))
    assert "onnxruntime 1.32.0 and onnxruntime-gpu 1.31.0" in problem.found
    assert "overwrite" in problem.goes_wrong
    for index, one in enumerate(both):
        assert look(tmp_path / str(index), [one]) == ()
    assert look(tmp_path / "plugin", [both[0], ("onnxruntime-ep-example", "0.1", ())]) == ()


def test_an_extra_that_nobody_installed_is_no_problem(tmp_path: Path) -> None:
    """proves: B13. Control: the same requirement without the extra is one."""
    assert look(tmp_path / "extra", [ASSAY, NUMPY]) == ()
    plain = ("assay", "0.1.0", ("numpy>=1.26", "transformers>=4.57"))
    assert len(look(tmp_path / "plain", [plain, NUMPY])) == 1


def test_peers_are_not_held_to_anything(tmp_path: Path) -> None:
    """assay doesn't run them. proves: B13. Control: a package that it runs is."""
    needs = ("transformers<4.50",)
    old = [("transformers", "5.24.0", ()), ("optimum", "1.0", needs)]
    assert look(tmp_path / "peer", old) == ()
    used = [("transformers", "5.24.0", ()), ("accelerate", "1.0", needs)]
    assert len(look(tmp_path / "used", used)) == 1


def test_every_row_says_how_it_is_known() -> None:
    """proves: B13. Control: no two rows have one condition."""
    for row in KNOWN_BAD:
        assert row.goes_wrong
        assert row.next_step
        assert row.source
    assert len({row.condition for row in KNOWN_BAD}) == len(KNOWN_BAD)
