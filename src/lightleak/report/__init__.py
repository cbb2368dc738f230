"""From a run folder to one self-contained HTML file that a data-protection officer can read."""

from lightleak.report.build import build_report
from lightleak.report.pdf import find_browser, print_pdf

__all__ = ["build_report", "find_browser", "print_pdf"]
