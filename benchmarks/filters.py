"""What the filters that frameworks ship leave of a client's rows, four networks, against attacks that know the filter.

    python benchmarks/filters.py --output filters.jsonl
    python benchmarks/filters.py --networks relu --attacks exact_joint exact_pruned --n 5 --output filters.jsonl
    python benchmarks/filters.py --points float16 gaussian_noise-0.0001 --rows 16 --seed 60000 --output weak.jsonl
    python benchmarks/filters.py --table filters.jsonl

Adult, two hidden layers of 100 units, labels unknown, one FedSGD gradient of one client, ReLU or GELU, untrained or
after one epoch of Adam. Client i has seed --seed + i, and with it rows and a network of its own. Every update is
attacked by `exact`, TabLeak of a small budget, guessing, and the attack that knows the filter, where there is one and
it serves the network. Every finished attack is one line of --output; a rerun skips those. Needs nvflare and flwr.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from exact import setting
from exact_anynet import Case, observe
from exact_table import Row, mean, read_lines

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.core.summary import summarize
from lightleak.defenses.horizontal import TrainingDefense
from lightleak.experiments.environment import project_state
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.kinds.frontier.config import Curve, Point
from lightleak.metrics.certificate import certificate_facts, certified_accuracy
from lightleak.metrics.score import score

SEED = 52_000
ROWS = 32
STEP = 0.05
"""Scale of an update that is the change of one step at this learning rate; NVFlare's bounds are in weights."""

CURVES = (
    Curve("nvflare_percentile", (10, 50, 90, 99)),
    Curve("nvflare_percentile", (10, 50, 90), {"scale": STEP}, label="nvflare_percentile_step"),
    Curve("nvflare_svt", (0.1, 1, 10)),
    Curve("nvflare_exclude", (), {"exclude": "bias"}),
    Curve("flower_clipping", (0.1, 1, 10)),
    Curve("flower_local_dp", (1, 10, 1000)),
    *(Curve("transport", (), {"format": sent}, label=sent) for sent in ("float16", "bfloat16", "int8")),
)
POINTS = (Point(), *(point for curve in CURVES for point in curve.points()))
OTHERS = (*Curve("gaussian_noise", (1e-5, 1e-4, 1e-3)).points(), *Curve("sign").points())
"""No filters; only where --points names them."""
NETWORKS = {
    name: Case("filters", "mlp", ROWS, options={"activation": name.split()[0]}, epochs=int(name.endswith("trained")))
    for name in ("relu", "relu trained", "gelu", "gelu trained")
}
TABLEAK = {"steps": 500, "restarts": 8, "labels": "geng"}
USUAL = {"exact": {}, "tableak": TABLEAK, "random": {}}
KNOWING = ("exact_joint", "exact_pruned", "exact_signs")


@lru_cache(maxsize=64)
def undefended(network: str, rows: int, seed: int) -> tuple[ClientUpdate, GroundTruth]:
    """The update before any filter, and the truth behind it."""
    return observe(replace(NETWORKS[network], rows=rows), seed)


def measure(network: str, rows: int, point: Point, attack: str, seed: int) -> Row:
    """One attack on one update; why it does not serve the update, where it refuses."""
    update, truth = undefended(network, rows, seed)
    defense = defense_of(point.config)
    assert not isinstance(defense, TrainingDefense)
    if defense is not None:
        sent = defense.apply(update.update, generator(seed, "defense"))
        update = replace(update, update=sent, state="noised", facts=replace(update.facts, defense=point.words))
    settings = USUAL[attack] if attack in USUAL else point.known_to[attack]
    row: Row = {"network": network, "rows": rows, "point": point.id, "attack": attack, "seed": seed}
    row |= {"project": project_state(), "torch": torch.__version__}
    began = time.process_time()
    try:
        found = ATTACKS.get(attack)(**settings).run(update, seed)
    except UsageError as error:
        return row | {"refused": str(error)}
    encoder = setting("adult", (100, 100))[0].encoder
    return row | {
        "cpu_seconds": time.process_time() - began,
        "cells": score(found, truth, encoder)["cell_accuracy"],
        **{name: certificate_facts(found.certificate)[name] for name in ("certified_rows", "certified_digits_share")},
        "certified_wrong": certified_accuracy(found, truth, encoder)["certified_wrong"],
    }


def key(row: Row) -> tuple[str, int, str, str, int]:
    """What is measured once."""
    return row["network"], row.get("rows", ROWS), row["point"], row["attack"], row["seed"]


def cell(rows: Sequence[Row]) -> str:
    """Rows proven, and cells of the best attack, of one filter and network; guessing is one that anybody has."""
    by_attack: dict[str, list[Row]] = {}
    for row in rows:
        if "refused" not in row:
            by_attack.setdefault(row["attack"], []).append(row)
    guesses = {row["seed"]: row["cells"] for row in by_attack.pop("random", [])}
    if not by_attack:
        return "-"
    best = max(by_attack, key=lambda name: mean(r["cells"] for r in by_attack[name]))
    of_best_first = [by_attack[best], *by_attack.values()]
    proven = [one for one in of_best_first if one[0]["certified_rows"] is not None]
    most = max(proven, key=lambda one: mean(r["certified_rows"] for r in one))
    counts = sum(r["certified_rows"] for r in most), sum(r.get("rows", ROWS) for r in most)
    wrong = sum(r["certified_wrong"] or 0 for r in most)
    found, said = [r["cells"] for r in by_attack[best]], best
    guessed = [guesses[r["seed"]] for r in by_attack[best] if r["seed"] in guesses]
    if guessed and mean(guessed) >= mean(found):
        found, said = guessed, f"random; {100 * mean(found):.1f} by {best}"
    whole = summarize(found)
    interval = f" [{100 * whole.low:.1f}, {100 * whole.high:.1f}]" if len(found) > 1 else ""
    marked = f", {wrong} wrong" if wrong else ""
    return f"{counts[0]} of {counts[1]}{marked}; {100 * whole.mean:.1f}{interval} ({said}, n = {len(found)})"


def print_table(done: Sequence[Row], points: Sequence[Point]) -> None:
    """Markdown: a line for every filter, a column for every network."""
    print("| filter | " + " | ".join(NETWORKS) + " |\n|" + " --- |" * (1 + len(NETWORKS)))
    for point in points:
        of_point = [row for row in done if row["point"] == point.id]
        cells = [cell([row for row in of_point if row["network"] == network]) for network in NETWORKS]
        step = f", one step at {STEP:g}" if point.settings.get("scale") == STEP else ""
        print(f"| {point.words}{step} | {' | '.join(cells)} |")
    for network in NETWORKS:
        of_network = [row for row in done if row["network"] == network and "refused" not in row]
        guessed = [r["cells"] for r in of_network if r["attack"] == "random" and r["point"] == Point().id]
        if not guessed:
            continue
        guesses = summarize(guessed)
        print(f"\nguessing, {network}: {100 * guesses.mean:.1f}% [{100 * guesses.low:.1f}, {100 * guesses.high:.1f}]")
    wrong = sum(row.get("certified_wrong") or 0 for row in done)
    print(f"\ncertified: {sum(row.get('certified_rows') or 0 for row in done)} rows, {wrong} wrong")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--attacks", nargs="+", choices=[*USUAL, *KNOWING], default=[*USUAL, *KNOWING])
    parser.add_argument("--points", nargs="+", choices=[p.id for p in (*POINTS, *OTHERS)], help="only these filters")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a client")
    parser.add_argument("--n", type=int, default=20, help="clients")
    parser.add_argument("--seed", type=int, default=SEED, help="of the first client")
    parser.add_argument("--output", type=Path, help="lines of JSON; what it holds is not measured again")
    parser.add_argument("--table", type=Path, help="print the table of such a file, measure nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    points = [p for p in (*POINTS, *OTHERS) if p.id in options.points] if options.points else POINTS
    done = [row for row in read_lines(options.table or options.output) if row.get("rows", ROWS) == options.rows]
    held = {key(row) for row in done}
    for network in () if options.table else options.networks:
        for seed in range(options.seed, options.seed + options.n):
            for point in points:
                for attack in options.attacks:
                    is_meant = attack in USUAL or attack in point.known_to
                    if not is_meant or (network, options.rows, point.id, attack, seed) in held:
                        continue
                    done.append(measure(network, options.rows, point, attack, seed))
                    if options.output is not None:
                        with options.output.open("a") as file:
                            file.write(json.dumps(done[-1]) + "\n")
    print_table(done, points)


if __name__ == "__main__":
    main()
