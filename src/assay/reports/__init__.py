"""A verdict as one HTML page. Nothing is judged here: numbers come in and are laid out.

docs/report.md tells what a report holds and how a section is added.
"""

from assay.reports.page import render_html
from assay.reports.write import write_report

__all__ = ["render_html", "write_report"]
