"""Versions, requirements and markers, held against the packaging library."""

from __future__ import annotations

from importlib import metadata

import pytest
from packaging.requirements import Requirement as Oracle
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from assay.environment.markers import holds_marker
from assay.environment.requirements import meets, normalize, parse_requirement
from assay.environment.versions import holds

VERSIONS = (
    "1", "1.0", "1.0.0", "1.1", "1.0a1", "1.0b2", "1.0rc1", "1.0.dev1", "1.0a1.dev3", "1.0.post1",
    "1.0.post1.dev2", "1.0+cpu", "1.0.1", "2.13.0+cpu", "2!1.0", "0.9", "1.10", "1.9", "1.0-1",
    "v1.0", "1.0.0.0.1", "1.0.post2", "1.0+ab.1", "1.1.dev0", "2.0rc1", "1.0alpha", "1.0_rc_2",
)  # fmt: skip
BOUNDS = (
    "1", "1.0", "1.0.0", "1.0a1", "1.0rc1", "1.0.post1", "1.0.dev1", "1.0.post1.dev2", "1.1",
    "1.10", "1.0.1", "2.0", "1.*", "1.0.*", "1.1.*", "2.*", "1.0+cpu", "1.0+ab.1",
)  # fmt: skip


def list_cases() -> list[tuple[str, str, str, bool]]:
    """Every pair with every operator that allows it, and packaging's answer."""
    cases = []
    for operator in ("==", "!=", "<=", ">=", "<", ">", "~="):
        for bound in BOUNDS:
            try:
                specifier = SpecifierSet(operator + bound)
            except InvalidSpecifier:
                continue
            for version in VERSIONS:
                answer = specifier.contains(version, prereleases=True)
                cases.append((version, operator, bound, answer))
    return cases


def test_versions_compare_as_packaging_has_it() -> None:
    """proves: B13. Control: comparing texts gives other answers."""
    cases = list_cases()
    assert len(cases) > 2000
    assert [case for case in cases if holds(*case[:3]) != case[3]] == []
    less = [case for case in cases if case[1] == "<"]
    assert [case for case in less if (case[0] < case[2]) != case[3]] != []


def test_requirements_of_everything_installed_are_read() -> None:
    """Names, bounds and markers of real metadata. proves: B13. Control: another extra differs."""
    seen = differing = 0
    for distribution in metadata.distributions():
        for text in distribution.requires or ():
            oracle, ours = Oracle(text), parse_requirement(text)
            assert ours is not None, text
            assert ours.name == oracle.name
            for version in VERSIONS:
                wanted = oracle.specifier.contains(version, prereleases=True)
                assert meets(version, ours) == wanted, (text, version)
            applies = [
                oracle.marker is None or oracle.marker.evaluate({"extra": extra})
                for extra in ("", "torch", "dev")
            ]
            assert [ours.applies(extra) for extra in ("", "torch", "dev")] == applies, text
            differing += len(set(applies)) > 1
            seen += 1
    assert seen > 100
    assert differing > 10


MARKERS = {
    "python_version >= '3.10'": True,
    "python_version < '3.10'": False,
    "python_version < '3.9' or python_version >= '3.10' and os_name != 'x'": True,
    "(python_version < '3.9' or os_name == 'x') and python_version >= '3.10'": False,
    "sys_platform not in 'nowhere elsewhere'": True,
    "extra == 'x'": False,
    "": True,
    "no_such_name == '1'": False,
    "python_version >": False,
    "python_version >= '3.10' rest": False,
    "(python_version >= '3.10'": False,
    "python_version ! '3'": False,
}


@pytest.mark.parametrize("marker", MARKERS)
def test_markers(marker: str) -> None:
    """What can't be read applies to nobody. proves: B13. Control: one half holds."""
    assert holds_marker(marker) is MARKERS[marker]


@pytest.mark.parametrize("text", ["", "===", "a b", "numpy>>1", "numpy >=", "-x"])
def test_what_is_no_requirement(text: str) -> None:
    """proves: B13. Control: the forms that metadata has are read."""
    assert parse_requirement(text) is None
    for good in ("numpy", "numpy (>=1,<2)", "x[a,b]>=1; extra == 'y'", "x @ https://a/b.whl"):
        assert parse_requirement(good) is not None


def test_what_is_no_version_meets_everything() -> None:
    """A hand-made version is no reason to complain. proves: B13. Control: a version is held."""
    wanted = parse_requirement("x>=2")
    assert wanted is not None
    assert meets("git-main", wanted)
    assert not meets("1.0", wanted)
    assert normalize("ONNX_IR") == normalize("onnx.ir") == "onnx-ir"
