"""What `exact.py` beside it prints of its lines: a table with goals, and seconds over batch size, bars and drawing."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lightleak.core.summary import summarize
from lightleak.metrics.inversion.attack_accuracy import wilson_interval
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Style
from lightleak.report.plot.svg import draw, element

Row = dict[str, Any]
Goals = Callable[[Row], Mapping[str, float]]
"""From a case to what it is to reach: least shares and accuracies, or most seconds."""

SETTING = ("dataset", "hidden", "rows", "local", "trained", "noise", "clients", "defense")
"""Fields of a case that say what is attacked."""
HEAD = ("part", "attacked", "attack", "n", "cells % [95%]", "worst", "s mean / max (CPU)", "all cells")
HEAD += (
    "and labels [95%]",
    "exact rows %",
    "certified: cells %, digits %",
    "wrong: cells, digits, of rows",
    "TabLeak restored / true",
    "goal",
)
SHARES = ("certified_share", "certified_digits_share")
CLAIMS = ("certified_wrong", "certified_digits_wrong", "certified_rows")


def read_lines(file: Path | None) -> list[Row]:
    return [json.loads(one) for one in file.read_text().splitlines()] if file is not None and file.is_file() else []


def is_partner(row: Row, case: Row, attack: str) -> bool:
    """Whether a line is about another attack, with what it usually knows of columns, on the same setting."""
    other = row["case"]
    same = all(other[name] == case[name] for name in SETTING)
    same = same and other.get("releases") == case.get("releases")
    return same and other["attack"] == attack and "prior" not in other["options"]


def described(case: Row) -> str:
    """What is attacked, in words."""
    told = [f"{case['dataset']} {'-'.join(map(str, case['hidden']))}", f"{case['rows']} rows"]
    told += [f"{case['clients']} clients"] if case["clients"] > 1 else []
    told += ["{} epochs x {} batches".format(*case["local"])] if case["local"] else []
    told += [f"trained {case['trained']} epochs"] if case["trained"] else []
    told += [f"noise {case['noise']:g}"] if case["noise"] else []
    told += [f"{case['releases']} releases"] if case.get("releases", 1) > 1 else []
    told += [f"{case['defense'][0]} {', '.join(map(str, case['defense'][1].values()))}"] if case["defense"] else []
    return ", ".join(told)


def attacker(case: Row) -> str:
    """The attack, what it is told, and how it is limited."""
    told = [case["attack"]] + ([f"prior {case['options']['prior']}"] if "prior" in case["options"] else [])
    told += ["true labels"] if case["labels"] else []
    return ", ".join([*told, f"in the time of {case['within']}"] if case["within"] else told)


def mean(values: Iterable[float | None]) -> float:
    return summarize(values).mean


def reached(rows: Sequence[Row], done: Sequence[Row]) -> dict[str, float]:
    """What goals are about: shares of batches, cell accuracies, mean seconds, lead over TabLeak in equal time."""
    cells = [row["cell_accuracy"] for row in rows]
    others = [row for row in done if row["case"]["within"] and is_partner(row, rows[0]["case"], "tableak")]
    other = {row["seed"]: row["cell_accuracy"] for row in others}
    return {
        "cells right": mean(row["cells_right"] for row in rows),
        "all right": mean(row["all_right"] for row in rows),
        "mean": mean(cells),
        "worst": min(cells),
        "certified": mean(row["certified_share"] or 0.0 for row in rows),
        "seconds": mean(row["seconds"] for row in rows),
        "ahead": mean(row["cell_accuracy"] - other[row["seed"]] for row in rows if row["seed"] in other),
    }


def judged(rows: Sequence[Row], done: Sequence[Row], goals: Mapping[str, float]) -> str:
    """Every goal with its verdict, and the lead where that is one."""
    values, told = reached(rows, done), []
    for name, goal in goals.items():
        met = values[name] <= goal if name == "seconds" else values[name] >= goal
        asked = f"at most {goal:g}" if name == "seconds" else f"at least {100 * goal:.3g}%"
        lead = f", is {100 * values[name]:.1f}" if name == "ahead" and math.isfinite(values[name]) else ""
        told.append(f"{name} {asked}{lead}: {'yes' if met else 'NO'}")
    return "; ".join(told) or "-"


def table_line(rows: Sequence[Row], done: Sequence[Row], goals: Mapping[str, float]) -> list[str]:
    """A line of the table, as in `HEAD`: all batches of one case."""
    case, n = rows[0]["case"], len(rows)
    cells, right = summarize(row["cell_accuracy"] for row in rows), sum(row["all_right"] for row in rows)
    low, high = wilson_interval(torch.tensor(right), torch.tensor(n))
    knows = [row for row in rows if row["certified_rows"] is not None]
    wall, cpu = ([row[name] for row in rows] for name in ("seconds", "cpu_seconds"))
    return [
        case["part"],
        described(case),
        attacker(case),
        str(n),
        f"{100 * cells.mean:.2f}" + (f" [{100 * cells.low:.2f}, {100 * cells.high:.2f}]" if n > 1 else ""),
        f"{100 * min(row['cell_accuracy'] for row in rows):.1f}",
        f"{mean(wall):.2f} / {max(wall):.2f} ({mean(cpu):.2f})",
        f"{sum(row['cells_right'] for row in rows)}/{n}",
        f"{right}/{n} [{100 * low:.0f}, {100 * high:.0f}]",
        f"{100 * mean(row['exact_match_rate'] for row in rows):.1f}",
        ", ".join(f"{100 * mean(row[name] for row in knows):.1f}" for name in SHARES) if knows else "-",
        "{}, {} of {}".format(*(sum(row[name] or 0 for row in knows) for name in CLAIMS)) if knows else "-",
        " / ".join(_tableak(case, labels, done) for labels in (False, True)),
        judged(rows, done, goals),
    ]


def _tableak(case: Row, labels: bool, done: Sequence[Row]) -> str:
    """Cells and CPU seconds of TabLeak on the same setting."""
    name = "tableak" if case["local"] is None else "tableak_fedavg"
    rows = [row for row in done if is_partner(row, case, name) and row["case"]["labels"] == labels]
    return (
        f"{100 * mean(r['cell_accuracy'] for r in rows):.1f} ({mean(r['cpu_seconds'] for r in rows):.0f} s)"
        if rows
        else "-"
    )


def print_table(done: Sequence[Row], goals: Goals) -> None:
    """All cases in the order in which they stand in the file, as Markdown."""
    groups: dict[str, list[Row]] = {}
    for row in done:
        groups.setdefault(json.dumps(row["case"]), []).append(row)
    lines = [list(HEAD), *(table_line(rows, done, goals(rows[0]["case"])) for rows in groups.values())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    for cells in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |")


Costs = Mapping[str, Mapping[int, float]]
"""Mean CPU seconds by attack and rows: on one thread, what the clock of an idle machine shows."""


def costs(done: Sequence[Row]) -> Costs:
    """Costs of batches of untrained networks of two hidden layers of 100 units on Adult, without noise."""
    plain = {
        "dataset": "adult",
        "hidden": [100, 100],
        "local": None,
        "trained": 0,
        "noise": 0.0,
        "clients": 1,
        "defense": None,
    }
    seconds: dict[str, dict[int, list[float]]] = {}
    for row in done:
        case = row["case"]
        if all(case[name] == value for name, value in plain.items()) and "prior" not in case["options"]:
            seconds.setdefault(attacker(case), {}).setdefault(case["rows"], []).append(row["cpu_seconds"])
    return {name: {size: mean(sizes[size]) for size in sorted(sizes)} for name, sizes in seconds.items()}


def print_bars(found: Costs, width: int = 50) -> None:
    """Bars of text, all to one scale."""
    most = max((value for sizes in found.values() for value in sizes.values()), default=1.0)
    for name, sizes in found.items():
        for size, value in sizes.items():
            print(f"{name:>24} {size:>4} rows {value:>8.2f} s  {'#' * max(1, round(width * value / most))}")


COLORS = ("#0072b2", "#d55e00", "#009e73", "#b2558a", "#b87f00")
STYLE = "svg{overflow:visible}text{font:12px sans-serif;fill:#333}.grid,.axis-line{stroke:#ddd}.link{stroke-width:2}"
STYLE += "".join(f".s{i}{{stroke:{c};fill:{c}}}.s{i} .link{{fill:none}}" for i, c in enumerate(COLORS))
WIDTH, HEIGHT, MARGIN = 720, 420, 70
TITLE = "CPU seconds per batch over rows in the batch"


def cost_figure(found: Costs) -> str:
    """CPU seconds over rows, both on logarithmic scales, as a stand-alone drawing."""
    sizes = sorted({size for one in found.values() for size in one})
    x = Axis(sizes[0] / 1.1, sizes[-1] * 2, tuple((size, str(size)) for size in sizes), "log", TITLE)
    y = axis([value for one in found.values() for value in one.values()], "log", "round")
    layers: list[Line | Points] = []
    for index, (name, one) in enumerate(found.items()):
        style = Style(f"s{index % len(COLORS)}", "circle")
        *others, last = one.items()
        marks = [Mark(size, seconds, style, f"{name}: {seconds:.2f} s") for size, seconds in others]
        marks.append(Mark(*last, style, f"{name}: {last[1]:.2f} s", label=name))
        layers += [Line(list(one.items()), "link", style.css), Points(marks)]
    drawing = draw(Plot(TITLE, x, y, layers, height=HEIGHT - 80))
    plot = element("svg", drawing, x=MARGIN, width=WIDTH - 2 * MARGIN)
    return str(
        element("svg", element("style", STYLE), plot, xmlns="http://www.w3.org/2000/svg", width=WIDTH, height=HEIGHT)
    )
