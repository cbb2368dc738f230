"""Writes the tables of the papers into RESULTS.md and docs/reproduction-status.md, from benchmarks/status.json.

make status                       # both pages, from the status file that is kept here
python benchmarks/status.py DIR   # first take over the tables of DIR/status.json (`lightleak reproduce --all`), and of
                                  # tables that are here the cells that were measured more often there
"""

import sys
from pathlib import Path

from lightleak.reproductions.paper.values import load_paper_table, paper_tables
from lightleak.reproductions.status import STATUS_FILE, Status, judged_again, merged, status_markdown

HERE = Path(__file__).parent
KEPT = HERE / STATUS_FILE
RESULTS, PAGE = HERE / "RESULTS.md", HERE.parent / "docs" / "reproduction-status.md"
BEGIN, END = "<!-- made by make status from benchmarks/status.json -->", "<!-- end of what make status makes -->"
HEAD = """# Where the papers' numbers stand

Every table and figure of the four papers that was run here: how many of its cells agree with ours
under one rule that was stated before they were run; its last clause was added on 2026-11-27, as five
values that are all 100% had been taken for exact. Since the same day cells of Lawschool and Census-Income
are not judged, as only a part of their rows is at hand (117 of 158 and 6 of 10 had agreed in TabLeak's and
ProVFL's tables, 6 of 10 of Lawschool in ProVFL's). `lightleak reproduce --all` makes this list
([how](reproduce.md#every-table)); every cell with both values, n, interval, difference and verdict is in
`benchmarks/status.json`.

"""


def pages(status: Status) -> dict[Path, str]:
    """Return the text of every page that shows a status."""
    run = {table.name for table in status.tables if not table.is_published}
    left = [load_paper_table(name) for name in paper_tables() if name not in run]
    text, results = status_markdown(status, left), RESULTS.read_text(encoding="utf-8")
    before, _, rest = results.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {RESULTS: f"{before}{BEGIN}\n\n{text}\n{END}{after}", PAGE: HEAD + text.rstrip() + "\n"}


if __name__ == "__main__":
    status = Status.load(KEPT)
    for folder in sys.argv[1:]:
        status = merged(status, Status.load(Path(folder) / STATUS_FILE))
    status = Status(tuple(judged_again(table) for table in status.tables))
    status.save(KEPT)
    for file, text in pages(status).items():
        file.write_text(text, encoding="utf-8")
