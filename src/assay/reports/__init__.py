"""A verdict or a diagnosis as one HTML page. Nothing is judged here, numbers are laid out.

docs/report.md tells what a report holds and how a section is added.
"""

from assay.reports.page import render_diagnosis, render_html
from assay.reports.write import write_report

__all__ = ["render_diagnosis", "render_html", "write_report"]
