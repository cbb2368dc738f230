"""Errors of a vertical reproduction or audit as a Markdown table: ``python benchmarks/vertical_table.py DIR...``.

Reads every ``results.json`` below the folders; a cell is the mean absolute error over seeds with its 95% interval
(Student's t), in hundredths, as ProVFL's tables read.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from lightleak.core.summary import summarize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--by", default="label", help="field that becomes columns (default: label)")
    parser.add_argument("--epoch", type=int, help="only this attacked epoch")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for folder in chosen.folders:
        rows += json.loads((folder / "results.json").read_text())["rows"]
    rows = [row for row in rows if row.get("absolute_error") is not None and chosen.epoch in (None, row["epoch"])]
    columns = list(dict.fromkeys(str(row[chosen.by]) for row in rows))
    lines = list(dict.fromkeys((row["dataset"], row["property"], row["adversary"], row["defense"]) for row in rows))
    print("| dataset | property | adversary | defense | n | AUC | " + " | ".join(columns) + " |")
    print("|" + " --- |" * (6 + len(columns)))
    for line in sorted(lines, key=lambda line: (line[0], line[3] != "none", line[3], line[2])):
        mine = [row for row in rows if (row["dataset"], row["property"], row["adversary"], row["defense"]) == line]
        cells = []
        for column in columns:
            found = summarize(row["absolute_error"] for row in mine if str(row[chosen.by]) == column)
            covered = [row["covered"] for row in mine if str(row[chosen.by]) == column]
            told = f" ({sum(covered)}/{len(covered)})" if covered else ""
            half = "" if found.n < 2 else f" ± {found.high - found.mean:.3f}"
            cells.append(f"{found.mean:.3f}{half}{told}" if found.n else "")
        passive = [row["auc"] for row in mine if row["attack"] != "provfl_m"] or [row["auc"] for row in mine]
        n = len({row["seed"] for row in mine})
        print("| " + " | ".join([*line, str(n), f"{sum(passive) / len(passive):.4f}", *cells]) + " |")


if __name__ == "__main__":
    main()
