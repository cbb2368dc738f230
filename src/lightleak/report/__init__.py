"""From a run folder to one self-contained HTML file that a data-protection officer can read.

How a report is made: `read.load_runs` gives typed rows (`core.results`), `compare` groups them, ``sections/`` and one
module of ``kinds/`` make a `blocks.Page` of them, and `page.render` draws it with the one template.

How to add a kind of run, ``kinds/NAME.py``, listed in `kinds.MODULES`:

1. Declare its row in `core.results` (a subclass of `Row`); read other files of the run by `Run.entries(file, Record)`.
2. Define ``page(runs, redact) -> Page`` by `sections.subject_and_run.audit_page`. It lists sections, in their order;
   one that has nothing to show is None.
3. Group rows by `compare.group_rows(rows, key)`; ``key`` is a function of a row, and a `Group` gives ``first`` (a row,
   for what all have in common: there is no class for settings), ``mean(name)``, ``by(key, name)``, ``values(name)``.
   A name is a field or a score; a function of a row does as well. Against a reference: `Group.baseline`; without
   baselines: `attacks(groups)`; what differs: `differing(rows, names)`.
4. Make each table from columns: ``table_of(label, [Column("Attack", lambda group: group.title), ...], groups)``, where
   ``groups`` are pairs of a heading (or "") and things, one line each. An optional column disappears where it has
   nothing but dashes. A cell is text or a `Cell` with smaller lines. `cells_table` takes lines whose cells are ready.
5. Write prose as macros of ``templates/NAME.html.j2``, sentences with their conditions, and draw them with
   ``page.fill("NAME", "macro", facts...)``; the functions of `format` are filters there. A plain string is a paragraph.
   Begin with a section ``summary`` (threat model and limits), continue with `subject_section` (what was attacked,
   assumptions, attacks left out), and end with `run_section`, both of `sections.subject_and_run`. Further sections: its
   `warnings_section`, `charts.pairs_by_name` (two marks on a line by name), and those of updates (`training`, `rows`,
   `certificates`).
   Charts of shares are `charts.bar_figure`, `line_figure`, `estimate_figure`; anything else is a `plot.chart.Plot`.
6. Take numbers and names in words from `format` alone, intervals from `intervals`, drawings from ``plot``. Say each
   fact once. Every value is escaped.
7. A fact about the attacker comes from ``row.threat`` (`sections.means`), never from a sentence; older
   files have none, and their sentence is shown unchanged.

Tests build a run folder with made-up rows, and assert facts: numbers, names, rows of tables.
"""

from lightleak.report.build import build_report
from lightleak.report.pdf import find_browser, print_pdf

__all__ = ["build_report", "find_browser", "print_pdf"]
