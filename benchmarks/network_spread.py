"""How far an attack's mean moves with the network that clients share: every network with every batch.

    python benchmarks/network_spread.py --dataset adult --rows 16 --attack tableak --output spread.jsonl
    python benchmarks/network_spread.py --table spread.jsonl

TabLeak's code draws one untrained network (two hidden layers of 100) for all 50 batches of a cell, so that its printed
deviation holds the spread between batches alone; a reproduction that draws a network for each batch has another mean.
Network i and batch j have the seeds --seed + i and --seed + j; labels are given. Two-way analysis of variance without
repetition: the deviation between networks, with the chance of one at least as large if networks did not matter. Every
finished attack is one line of --output; a rerun skips those.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from exact import setting
from exact_table import Row, read_lines
from scipy.stats import f as fisher

from lightleak.attacks import ATTACKS
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.grouping import by_key
from lightleak.core.seeds import derive_seed
from lightleak.experiments.environment import project_state
from lightleak.metrics.score import score
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import build_network

SEED = 81_000
KEY = ("dataset", "rows", "attack")


def measure(dataset: str, rows: int, attack: str, network: int, batch: int) -> Row:
    """Cells that one attack recovers of one batch from the gradient of one network."""
    experiment, people = setting(dataset, (100, 100))
    chosen = people.draw(batch, rows, 0, 0)
    x, y = people.inputs[chosen], people.labels[chosen]
    built = build_network(experiment.spec, derive_seed(network, "network"))
    update, _ = client_update(
        built, experiment.spec, people.encoder, x, y, share_labels=True, marginals=people.marginals
    )
    began = time.process_time()
    found = ATTACKS.get(attack)().run(update, derive_seed(network, "attack", batch))
    cells = score(found, GroundTruth(x, y), people.encoder)["cell_accuracy"]
    row: Row = {"dataset": dataset, "rows": rows, "attack": attack, "network": network, "batch": batch, "cells": cells}
    return row | {"cpu_seconds": time.process_time() - began, "project": project_state(), "torch": torch.__version__}


def between_networks(cells: np.ndarray) -> tuple[float, float]:
    """The deviation between networks beside what batches leave, and the chance of one as large if there were none.

    Args:
        cells: of every network (a row) on every batch (a column).
    """
    k, m = cells.shape
    of_networks, of_batches = cells.mean(1, keepdims=True), cells.mean(0)
    rest = np.square(cells - of_networks - of_batches + cells.mean()).sum() / ((k - 1) * (m - 1))
    between = m * of_networks.var(ddof=1)
    return math.sqrt(max(0.0, (between - rest) / m)), float(fisher.sf(between / rest, k - 1, (k - 1) * (m - 1)))


def print_table(lines: Sequence[Row]) -> None:
    """A line for every setting, of the batches that all of its networks have."""
    print("| table | rows | attack | networks x batches | mean of each network, % | deviation between networks | p |")
    print("|" + " --- |" * 7)
    for key, of_setting in by_key(lines, itemgetter(*KEY)).items():
        networks = by_key(of_setting, itemgetter("network")).values()
        found = [{line["batch"]: 100 * line["cells"] for line in own} for own in networks]
        shared = sorted(set.intersection(*map(set, found)))
        if len(found) < 2 or len(shared) < 2:
            continue
        cells = np.array([[of_batch[batch] for batch in shared] for of_batch in found])
        deviation, chance = between_networks(cells)
        means, size = ", ".join(f"{mean:.1f}" for mean in cells.mean(1)), f"{len(found)} x {len(shared)}"
        print(f"| {' | '.join(map(str, key))} | {size} | {means} | {deviation:.1f} | {chance:.2g} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=["adult", "german"], default="adult")
    parser.add_argument("--rows", type=int, default=16, help="of a batch")
    parser.add_argument("--attack", default="tableak", help="with its usual settings")
    parser.add_argument("--networks", type=int, default=6)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--seed", type=int, default=SEED, help="of the first network and the first batch")
    parser.add_argument("--output", type=Path, help="lines of JSON; what it holds is not measured again")
    parser.add_argument("--table", type=Path, help="print the table of such a file, measure nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    done = read_lines(options.table or options.output)
    held = {(*(line[name] for name in KEY), line["network"], line["batch"]) for line in done}
    # Batch by batch, so that a run that is cut has networks with the same batches.
    for j, i in () if options.table else product(range(options.batches), range(options.networks)):
        what = options.dataset, options.rows, options.attack, options.seed + i, options.seed + j
        if what in held:
            continue
        done.append(measure(*what))
        if options.output is not None:
            with options.output.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    print_table(done)


if __name__ == "__main__":
    main()
