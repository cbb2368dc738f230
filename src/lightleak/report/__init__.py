"""From a run folder to one self-contained HTML file that a data-protection officer can read.

`build_report` reads ``results.json`` (and what else the run left), sets every attack beside the baseline that never
sees the update, and writes ``report.html``: a summary in plain language, tables, inline SVG charts, one batch of true
and reconstructed rows side by side, and of several runs what changed between them. `print_pdf` prints it.
"""

from lightleak.report.page import build_report
from lightleak.report.pdf import find_browser, print_pdf

__all__ = ["build_report", "find_browser", "print_pdf"]
