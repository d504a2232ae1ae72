"""Which file or folder of a package's name is imported, and which is only there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay.environment.origins import Origin, find_origin, find_origins_on_path
from assay.environment.packages import PACKAGES, Package, index_installed
from assay.environment.strays import Stray, find_strays, list_pythonpath
from tests.environment.installing import install, put_module, put_namespace, put_package

ONNXRUNTIME = next(name for name in PACKAGES if name.imported_as == "onnxruntime")
KINDS = {"package": put_package, "module": put_module, "namespace": put_namespace}


def look(
    path: list[Path], here: Path, *, pythonpath: tuple[str, ...] = (), site: Path | None = None
) -> tuple[Stray, ...]:
    """What is found with this path and this working directory; importing follows the path."""
    entries = [str(entry) for entry in path]
    found = index_installed([str(site)] if site else entries).get("onnxruntime", [])
    origins = find_origins_on_path("onnxruntime", entries)
    regular = [origin for origin in origins if origin.kind != "namespace"]
    origin = (regular or origins or [None])[0]
    package = Package(ONNXRUNTIME, tuple(found[:1]), origin, tuple(found[1:]))
    return find_strays(package, entries, working_directory=str(here), pythonpath=pythonpath)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages with onnxruntime in it."""
    return install(tmp_path / "site", "onnxruntime", "1.30.0")


@pytest.mark.parametrize("kind", ["package", "module"])
def test_what_comes_first_shadows(kind: str, site: Path, tmp_path: Path) -> None:
    """As under `python -m`. proves: B13. Control: the other order shadows nothing."""
    here = tmp_path / "here"
    put = KINDS[kind](here, "onnxruntime")
    (stray,) = look([here, site], here)
    assert (stray.effect, stray.path) == ("shadows", str(put))
    assert "1.30.0" in stray.found
    assert "python -m" in stray.found
    assert look([site, here], here) == ()


@pytest.mark.parametrize("kind", ["package", "module"])
def test_what_lies_in_the_folder_would_shadow(kind: str, site: Path, tmp_path: Path) -> None:
    """As under the command `assay`. proves: B13. Control: an empty folder has no stray."""
    here = tmp_path / "here"
    KINDS[kind](here, "onnxruntime")
    (stray,) = look([site], here)
    assert stray.effect == "would_shadow"
    assert "isn't imported now" in stray.found
    (tmp_path / "empty").mkdir()
    assert look([site], tmp_path / "empty") == ()


@pytest.mark.parametrize("is_first", [True, False], ids=["python -m", "assay"])
def test_a_folder_without_init_is_harmless(is_first: bool, site: Path, tmp_path: Path) -> None:
    """Python prefers the installed one. proves: B13. Control: with __init__.py it isn't."""
    here = tmp_path / "here"
    put = put_namespace(here, "onnxruntime")
    path = [here, site] if is_first else [site]
    (stray,) = look(path, here)
    assert (stray.effect, stray.path) == ("harmless", str(put))
    assert look([site, here], tmp_path) == ()  # after the installed one there's nothing to tell
    (put / "__init__.py").touch()
    (stray,) = look(path, here)
    assert stray.effect == ("shadows" if is_first else "would_shadow")


def test_a_folder_without_init_poses_as_what_is_not_installed(tmp_path: Path) -> None:
    """`import` succeeds, with nothing in it. proves: B13. Control: a source tree is no stray."""
    here, empty = tmp_path / "here", tmp_path / "empty"
    empty.mkdir()
    put = put_namespace(here, "onnxruntime")
    (stray,) = look([here, empty], here)
    assert stray.effect == "shadows"
    assert "isn't installed" in stray.found
    (stray,) = look([empty], here)
    assert stray.effect == "would_shadow"
    (put / "__init__.py").touch()
    assert look([here, empty], here) == ()


def test_pythonpath_is_named(site: Path, tmp_path: Path) -> None:
    """proves: B13. Control: without it another reason is given."""
    other = tmp_path / "other"
    put_package(other, "onnxruntime")
    (stray,) = look([other, site], tmp_path, pythonpath=(str(other),))
    assert "PYTHONPATH puts" in stray.found
    assert "PYTHONPATH" in stray.next_step
    (stray,) = look([other, site], tmp_path)
    assert "PYTHONPATH" not in stray.found


def test_a_second_install_is_told_of(site: Path, tmp_path: Path) -> None:
    """`pip install --target` on PYTHONPATH. proves: B13. Control: two site-packages are normal."""
    other = install(tmp_path / "other", "onnxruntime", "1.22.1")
    (stray,) = look([other, site], tmp_path, pythonpath=(str(other),))
    assert stray.effect == "shadows"
    assert "1.22.1" in stray.found
    assert "1.30.0" in stray.found
    assert look([other, site], tmp_path) == ()


def test_an_editable_install_is_at_home_in_its_project(tmp_path: Path) -> None:
    """proves: B13. Control: another tree before it is a stray, and a bare folder too."""
    project = tmp_path / "project"
    put_package(project / "src", "onnxruntime")
    site = install(tmp_path / "site", "onnxruntime", "1.30.0", project=project)
    assert look([project / "src", site], tmp_path) == ()
    here = tmp_path / "here"
    put_package(here, "onnxruntime")
    (stray,) = look([here, project / "src", site], tmp_path)
    assert stray.effect == "shadows"
    # Where a finder of its own brings the project in, sys.path is asked first.
    bare = tmp_path / "bare"
    put_namespace(bare, "onnxruntime")
    (stray,) = look([bare, site], bare)
    assert stray.effect == "shadows"


def test_a_link_to_the_same_place_is_no_stray(site: Path, tmp_path: Path) -> None:
    """lib64 beside lib. proves: B13. Control: a copy is one."""
    (tmp_path / "link").symlink_to(site)
    assert look([tmp_path / "link", site], tmp_path, site=site) == ()
    put_package(tmp_path / "copy", "onnxruntime")
    assert look([tmp_path / "copy", site], tmp_path, site=site) != ()


def test_find_origin_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """proves: B13. Control: importing the same package does raise."""
    put_package(tmp_path, "assay_explosive", "raise RuntimeError('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    origin = find_origin("assay_explosive")
    assert origin is not None
    assert (origin.kind, origin.folder) == ("package", str(tmp_path / "assay_explosive"))
    assert "assay_explosive" not in sys.modules
    with pytest.raises(RuntimeError, match="it ran"):
        __import__("assay_explosive")
    assert find_origin("assay_absent") is None


def test_a_module_that_is_loaded_tells_where_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a spec. proves: B13. Control: None in its place is absence."""
    import types

    module = types.ModuleType("assay_odd")
    module.__file__ = "/somewhere/assay_odd/__init__.py"
    monkeypatch.setitem(sys.modules, "assay_odd", module)
    assert find_origin("assay_odd") == Origin("/somewhere/assay_odd/__init__.py", "package")
    monkeypatch.setitem(sys.modules, "assay_odd", None)
    assert find_origin("assay_odd") is None


def test_parts_of_pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty part is the working directory. proves: B13. Control: unset, there is none."""
    assert list_pythonpath({"PYTHONPATH": "/a::/b"}) == ["/a", ".", "/b"]
    assert list_pythonpath({}) == list_pythonpath({"PYTHONPATH": ""}) == []


def test_a_name_of_two_distributions_has_one_home(tmp_path: Path) -> None:
    """proves: B13. Control: a distribution that owns nothing of it doesn't provide it."""
    site = install(tmp_path / "site", "onnxruntime-gpu", "1.30.0", package="onnxruntime")
    install(site, "onnxruntime-tools", "1.7", package="onnxruntime_tools")
    from assay.environment.packages import read_packages

    found = {p.name.imported_as: p for p in read_packages(index_installed([str(site)]))}
    names = [one.name for one in found["onnxruntime"].candidates]
    assert names == ["onnxruntime-gpu"]
    assert replace(found["onnxruntime"], origin=None).home == str(site / "onnxruntime")
