"""The report: what stands in it, and how a browser shows it. proves: P10"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from assay.errors import OutputError
from assay.reports import render_html, write_report
from tests.reports.browser import Page

NAMES = ("healthy", "faulty", "int4", "unjudged")
VIEWS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 320, "height": 700}}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_browser_shows_it_without_a_complaint(
    name: str,
    view: str,
    verdicts: dict[str, dict[str, Any]],
    page: Page,
    screenshots: Path,
    tmp_path: Path,
) -> None:
    """No console message, no request but for the file, no page wider than the screen."""
    file = tmp_path / "report.html"
    write_report(file, verdicts[name])
    page.show(**VIEWS[view])  # type: ignore[arg-type]
    page.load(file.as_uri())
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("data:")] == [file.as_uri()]
    assert page.ask(OVERFLOW) <= 0
    assert page.ask("document.querySelectorAll('script').length") == 0
    page.photograph(screenshots / f"{name}-{view}.png")


def test_the_browser_would_tell(page: Page, tmp_path: Path) -> None:
    """Control: a page with a script that complains, a request, and something too wide."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><script>console.error('no')</script><img src='http://127.0.0.1:9/x.png'>"
        "<div style='width:2000px'>wide</div>"
    )
    page.show(width=320, height=700)
    page.load(file.as_uri())
    assert page.complaints
    assert len(page.requests) == 2
    assert page.ask(OVERFLOW) > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("healthy", "Pass"), ("faulty", "Fail"), ("int4", "Pass"), ("unjudged", "judge")],
)
def test_the_verdict_stands_on_top(
    name: str, said: str, verdicts: dict[str, dict[str, Any]]
) -> None:
    """Before anything else; the control is that the faulty one's page doesn't say pass."""
    html = render_html(verdicts[name])
    top = html[html.index("<main") : html.index("<nav")]
    assert said in top
    if name == "faulty":
        assert "Pass" not in top


def test_plots_and_ranking_are_there(verdicts: dict[str, dict[str, Any]]) -> None:
    """Positions and layers as SVG, weights by rank; what is absent leaves its section out."""
    int4, unjudged = render_html(verdicts["int4"]), render_html(verdicts["unjudged"])
    assert int4.count("<svg") >= 3
    assert "down_proj" in int4.replace("<wbr>", "")
    assert "model.layers.3" in int4.replace("<wbr>", "")
    assert "model.layers.3" not in unjudged.replace("<wbr>", "")


def test_it_is_the_same_twice(verdicts: dict[str, dict[str, Any]]) -> None:
    """Control: another number is another page."""
    first = render_html(verdicts["healthy"])
    assert render_html(copy.deepcopy(verdicts["healthy"])) == first
    changed = copy.deepcopy(verdicts["healthy"])
    changed["positions"]["rel_l2"][3] = 0.5
    assert render_html(changed) != first


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def test_names_never_become_markup(
    verdicts: dict[str, dict[str, Any]], page: Page, tmp_path: Path
) -> None:
    """Whatever a folder, a tensor or an error is called."""

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) else value

    verdict = poison(verdicts["int4"]) | {"verdict": "fail"}
    html = render_html(verdict)
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)" in html
    write_report(tmp_path / "report.html", verdict)
    page.show(width=320, height=700)
    page.load((tmp_path / "report.html").as_uri())
    assert page.complaints == []
    assert page.ask("document.querySelectorAll('script, img').length") == 0


def test_a_place_that_is_not_there(verdicts: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """One clear error, and nothing half-written; an existing report is replaced."""
    with pytest.raises(OutputError):
        write_report(tmp_path / "nowhere" / "report.html", verdicts["healthy"])
    with pytest.raises(OutputError):
        write_report(tmp_path, verdicts["healthy"])
    assert list(tmp_path.iterdir()) == []
    for name in ("healthy", "faulty"):
        write_report(tmp_path / "report.html", verdicts[name])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == render_html(verdicts["faulty"])
