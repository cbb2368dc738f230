"""From a run folder to one self-contained HTML file that a data-protection officer can read.

`build_report` reads ``results.json`` (and what else the run left), sets every attack beside the baseline that never
sees the update, and writes ``report.html``: plain-language headline, tables, inline SVG charts, and one batch of true
and reconstructed rows side by side.
"""

from lightleak.report.page import build_report

__all__ = ["build_report"]
