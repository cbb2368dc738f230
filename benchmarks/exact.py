"""Exact inversion against the targets it was built for, beside TabLeak: one thread, fresh seeds, labels unknown.

    python benchmarks/exact.py --part sizes limit tables --output exact.jsonl
    python benchmarks/exact.py --table exact.jsonl --figure cost.svg

Parts: sizes and limit (batch sizes up to the rank limit), tables (other tables and networks), fedavg, beyond (larger
batches), noise, inexact (gradients whose error is known in size), releases (noised gradients of one batch in several
rounds), pruned (half of the elements), trained (trained networks), prior (what is known of columns), protection (what
protects), tableak (the same updates as sizes), cost (seconds over batch size, from what the file holds). Client i has
seed --seed + i, and with it rows and an untrained network of its own. Every finished batch is one line of --output; a
rerun skips those.

A row is right when every cell (within TabLeak's tolerance) and its label are: rows are paired for most right cells and,
among equals, for most right labels.
"""

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from exact_table import Row, cost_figure, costs, described, is_partner, print_bars, print_table, read_lines, table_line
from torch import nn
from torch.nn.functional import cross_entropy

import lightleak
from lightleak.attacks import ATTACKS
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.matching import match_rows
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.column import MISSING_CATEGORY, Column
from lightleak.data.datasets import load_dataset
from lightleak.data.datasets.diabetes130 import DIAGNOSES, ICD9_GROUPS, icd9_group
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.table import Table
from lightleak.defenses.horizontal import UPDATE_DEFENSES, UpdateDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients, Population
from lightleak.experiments.environment import project_state
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.metrics.cells import Cells, agreement, checked_pair
from lightleak.metrics.certificate import certificate_facts, certified_accuracy
from lightleak.metrics.score import score
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

RESTORED = {"labels": "geng"}
TWENTY_DIAGNOSES = "diabetes130-20"
LEARNING_RATE, TRAINING_BATCH = 0.05, 32
"""Of the networks of `trained`: plain SGD on all training rows in a new order every epoch. `releases` have the rate."""
CALIBRATION = (8, 200)
"""Restarts and steps that tell what a restart of TabLeak costs."""


@dataclass(frozen=True, eq=False)
class Case:
    """What is attacked, by what, how often.

    Attributes:
        part: of the benchmark.
        rows: of a client.
        n: batches.
        attack: name in the registry.
        options: of the attack.
        dataset: of the registry, or `TWENTY_DIAGNOSES`.
        hidden: widths of the hidden layers.
        local: epochs and batches of a FedAvg client.
        trained: epochs that the network was trained.
        noise: deviation of Gaussian noise on every element of the gradient.
        releases: gradients of the same rows, noised anew each, with a step of `LEARNING_RATE` by the server in between.
        clients: averaged into one update.
        defense: name of a defense of updates and its options, beside the noise.
        labels: the update carries them.
        within: attack whose time on the same batch sets the restarts.
        goals: what is to be reached, see `exact_table.reached`.
    """

    part: str
    rows: int
    n: int
    attack: str = "exact"
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = "adult"
    hidden: tuple[int, ...] = (100, 100)
    local: tuple[int, int] | None = None
    trained: int = 0
    noise: float = 0.0
    releases: int = 1
    clients: int = 1
    defense: tuple[str, Mapping[str, Any]] | None = None
    labels: bool = False
    within: str | None = None
    goals: Mapping[str, float] = field(default_factory=dict)

    @property
    def facts(self) -> Row:
        """All but ``n`` and ``goals``, as a line of the file holds it."""
        told = json.loads(json.dumps(asdict(self)))
        left_out = ("n", "goals", *(["releases"] if self.releases == 1 else []))  # older files have no releases
        return {name: value for name, value in told.items() if name not in left_out}


def same_batches(case: Case, **changed: Any) -> tuple[Case, Case]:
    """TabLeak on one setting, labels restored and given."""
    tableak = partial(replace, case, attack="tableak", goals={}, **changed)
    return tableak(options=RESTORED), tableak(options={}, labels=True)


MOST, TABLES = {"all right": 29 / 30}, {"cells right": 27 / 30}
SECONDS = {32: {"seconds": 1.0}, 88: {"seconds": 3.0}}
FEDAVG = partial(Case, "fedavg", 32, 20, "exact_fedavg", goals={"mean": 0.98, "worst": 0.9})
JOINT = partial(Case, attack="exact_joint")
CHANGES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("clipping", {"max_norm": 0.1}),
    ("gradient_compression", {"keep": 0.5}),
    ("random_pruning", {"probability": 0.5}),
)
SHORT = ("float16", "bfloat16", "int8")
PRIORS = ("marginals", "statistics", "schema")
CASES: tuple[Case, ...] = (
    *(Case("sizes", rows, 30, goals=MOST | SECONDS.get(rows, {})) for rows in (8, 16, 32, 48, 64, 80, 88)),
    Case("limit", 96, 10, goals={"all right": 0.9}),
    Case("limit", 98, 5),
    Case("tables", 32, 30, dataset="german", goals=TABLES),
    Case("tables", 32, 30, dataset="bank", goals=TABLES),
    Case("tables", 64, 30, hidden=(200, 200, 200), goals=TABLES),
    Case("tables", 64, 30, hidden=(400, 400, 400), goals=TABLES),
    Case("tables", 32, 30, dataset=TWENTY_DIAGNOSES, goals={"cells right": 25 / 30}),
    *(FEDAVG(local=local) for local in product((1, 5, 10), (1, 2, 4))),
    JOINT("beyond", 128, 10, goals={"mean": 0.995, "worst": 0.98, "seconds": 60.0}),
    JOINT("beyond", 192, 5, goals={"mean": 0.97}),
    *(JOINT("noise", rows, 10, noise=1e-3, goals={"ahead": 0.06}) for rows in (32, 96)),
    JOINT("noise", 32, 10, noise=1e-4, goals={"mean": 0.95}),
    *(
        Case("noise", rows, 10, "tableak", RESTORED, noise=noise, within="exact_joint")
        for rows, noise in ((32, 1e-3), (96, 1e-3), (32, 1e-4))
    ),
    *(JOINT("releases", 32, 5, noise=1e-3, releases=releases) for releases in (1, 4, 16)),
    *(JOINT("releases", 32, 5, noise=1e-3 / releases**0.5) for releases in (4, 16)),
    JOINT("inexact", 16, 20, noise=1e-4, goals={"certified": 0.9}),
    *(JOINT("inexact", 16, 20, defense=("transport", {"format": sent}), goals={"certified": 0.9}) for sent in SHORT),
    JOINT("inexact", 32, 20, noise=1e-3, goals={"mean": 0.97}),
    Case("pruned", 32, 20, "exact_pruned", defense=("gradient_compression", {"keep": 0.5}), goals={"mean": 0.9}),
    JOINT("pruned", 32, 5, defense=("gradient_compression", {"keep": 0.5})),
    Case("pruned", 32, 5, "exact_pruned", {"left_out": "any"}, defense=("random_pruning", {"probability": 0.5})),
    *(Case("trained", rows, 5, trained=epochs) for epochs in (1, 10) for rows in (16, 32, 64)),
    *(Case("prior", rows, 10, options={"prior": prior}) for rows in (32, 88) for prior in PRIORS),
    *(JOINT("prior", 128, 3, options={"prior": prior}) for prior in PRIORS),
    *(
        Case("protection", round(share * width), 3, hidden=(width, width))
        for width in (50, 100, 200, 400)
        for share in (0.25, 0.5, 0.8, 0.92, 1.0)
    ),
    *(Case("protection", 32, 5, "audit_max", noise=noise) for noise in (0.0, 1e-5, 1e-4, 1e-3, 1e-2)),
    *(Case("protection", 32, 5, "audit_max", clients=clients) for clients in (2, 4)),
    *(Case("protection", 32, 5, "audit_max", defense=defense) for defense in CHANGES),
    *chain.from_iterable(same_batches(Case("tableak", rows, 10)) for rows in (8, 32, 64)),
    *same_batches(Case("tableak", 128, 5)),
)
PARTS = (*dict.fromkeys(case.part for case in CASES), "cost")


@cache
def setting(dataset: str, hidden: tuple[int, ...]) -> tuple[Experiment, Population]:
    """The table, what the server knows of it, the network, and the rows that clients draw from."""
    table = twenty_diagnoses() if dataset == TWENTY_DIAGNOSES else load_dataset(dataset)
    encoder = TableEncoder(table.schema).fit(table.train)
    spec = NetworkSpec("mlp", table.schema.n_classes, encoder.layout, {"hidden": list(hidden)})
    experiment = Experiment(table, encoder, Marginals.of(table.schema, table.test), spec)
    return experiment, experiment.population


def twenty_diagnoses() -> Table:
    """Diabetes-130 with the 20 most common first diagnoses (ICD-9 codes) as classes, further ones in groups."""
    table = load_dataset("diabetes130", label="diagnosis", diagnoses="codes")
    counts = sum(part["diagnosis"].astype(str).value_counts() for part in (table.train, table.test))
    common = sorted(counts.nlargest(20).index)
    groups = [*ICD9_GROUPS, "other", MISSING_CATEGORY]

    def grouped(code: str) -> str:
        return code if code == MISSING_CATEGORY else icd9_group(code)

    parts = []
    for part in (table.train, table.test):
        part = part[part["diagnosis"].isin(common)].reset_index(drop=True)
        parts.append(part.assign(**{name: part[name].astype(str).map(grouped) for name in DIAGNOSES[1:]}))
    columns = tuple(
        Column.categorical(column.name, groups, missing="category") if column.name in DIAGNOSES else column
        for column in table.schema.columns
    )
    schema = replace(table.schema, columns=columns, label=Column.categorical("diagnosis", common))
    return Table(table.card, schema, *parts)


@lru_cache(maxsize=32)
def network_after(dataset: str, hidden: tuple[int, ...], epochs: int, seed: int) -> nn.Module:
    """A network of its own for every seed, trained for some epochs."""
    experiment, people = setting(dataset, hidden)
    network = build_network(experiment.spec, derive_seed(seed, "network"))
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE)
    for epoch in range(epochs):
        order = torch.randperm(len(people.inputs), generator=generator(seed, "order", epoch))
        for rows in order.split(TRAINING_BATCH):
            optimizer.zero_grad()
            cross_entropy(network(people.inputs[rows]), people.labels[rows]).backward()
            optimizer.step()
    return network


def observe(case: Case, seed: int) -> tuple[ClientUpdate, GroundTruth]:
    """One update, and the truth behind it."""
    experiment, people = setting(case.dataset, case.hidden)
    if case.local is not None:
        epochs, batches = case.local
        protocol = ProtocolConfig("fedavg", local_epochs=epochs, local_batches=batches, learning_rate=0.01)
        return FreshFedAvgClients(people, experiment.spec, seed, protocol, share_labels="none").observe(case.rows, 0)
    if case.trained or case.clients > 1:
        network = network_after(case.dataset, case.hidden, case.trained, seed)
        drawn = [people.draw(seed, case.rows, 0, client) for client in range(case.clients)]
        sent = [
            client_update(
                network,
                experiment.spec,
                people.encoder,
                people.inputs[rows],
                people.labels[rows],
                share_labels=case.labels,
                marginals=people.marginals,
            )[0]
            for rows in drawn
        ]
        update = sent[0] if case.clients == 1 else aggregate_updates(sent)
        return update, GroundTruth(people.inputs[torch.cat(drawn)], people.labels[torch.cat(drawn)])
    defense: UpdateDefense | None = GaussianNoise(case.noise) if case.noise else None
    if case.defense is not None:
        name, options = case.defense
        defense = UPDATE_DEFENSES.get(name)(**options)
    rounds = {"releases": case.releases, "server_rate": LEARNING_RATE}
    return FreshClients(people, experiment.spec, seed, case.labels, defense=defense, **rounds).observe(case.rows, 0)


def row_facts(found: Reconstruction, truth: GroundTruth, encoder: TableEncoder) -> Row:
    """Rows with their labels: what is right of a batch."""
    true, guess = checked_pair(encoder, encoder.project(truth.inputs, clamp=False), found.rows)
    n, one_by_one = len(true.codes), Cells(true.codes[:, None], true.numbers[:, None])
    cells = agreement(encoder, one_by_one, guess)
    label = truth.labels[:, None] == found.labels
    order = match_rows(cells.sum(-1) + label.double() / (2 * n))  # all labels together never outweigh a cell
    paired = torch.arange(n), order
    return {
        "cells_right": bool(cells[paired].all()),
        "all_right": bool(cells[paired].all() and label[paired].all()),
        "label_accuracy": label[paired].double().mean().item(),
    }


@cache
def restart_cost(case: Case, seed: int) -> tuple[float, float]:
    """CPU seconds of TabLeak without any restart, and of each restart, from short runs on one batch."""
    update, _ = observe(case, seed)
    restarts, steps = CALIBRATION

    def cost(restarts: int, steps: int) -> float:
        attack = ATTACKS.get(case.attack)(**case.options, restarts=restarts, steps=steps)
        began = time.process_time()
        attack.run(update, seed)
        return time.process_time() - began

    cost(1, 2)  # what the first call loads
    start = cost(1, 2)
    times = ATTACKS.get(case.attack)(**case.options).options()["steps"] / steps
    one, many = (times * (cost(count, steps) - start) for count in (1, restarts))
    each = (many - one) / (restarts - 1)
    return start + one - each, each


def settings_of(case: Case, seed: int, first: int, done: Iterable[Row]) -> Row:
    """Options of the attack; restarts as many as fit the CPU time that ``within`` took on this batch, at least one.

    On one thread these are the seconds of an idle machine's clock; the clock itself also counts what else is running.

    Raises:
        UsageError: that attack has not been run on this batch.
    """
    if case.within is None:
        return dict(case.options)
    taken = [r["cpu_seconds"] for r in done if is_partner(r, case.facts, case.within) and r["seed"] == seed]
    if not taken:
        raise UsageError(f"{case.within} has not attacked the batch of seed {seed}, so its time is not known")
    start, each = restart_cost(case, first)
    return {**case.options, "restarts": max(1, int((taken[0] - start) / each))}


def measure(case: Case, seed: int, settings: Row) -> Row:
    """Attack one batch; every number about it."""
    update, truth = observe(case, seed)
    attack = ATTACKS.get(case.attack)(**settings)
    wall, cpu = time.perf_counter(), time.process_time()
    found = attack.run(update, seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    encoder = setting(case.dataset, case.hidden)[0].encoder
    numbers = {**score(found, truth, encoder), **row_facts(found, truth, encoder), "loss": found.loss}
    return {
        "case": case.facts,
        "seed": seed,
        "seconds": wall,
        "cpu_seconds": cpu,
        **{name: None if isinstance(value, float) and math.isnan(value) else value for name, value in numbers.items()},
        **certificate_facts(found.certificate),
        **certified_accuracy(found, truth, encoder),
        "settings": attack.options(),
        "made": {
            "lightleak": lightleak.__version__,
            "project": project_state(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "machine": f"{platform.system()} {platform.machine()}",
        },
    }


def run_cases(cases: Sequence[Case], n: int | None, seed: int, output: Path | None, done: list[Row]) -> None:
    """Measure what ``done`` lacks and add it there and to the file; prints a line after every case."""
    for case in cases:
        seeds = range(seed, seed + (n or case.n))
        held = {row["seed"] for row in done if row["case"] == case.facts}
        try:
            for one in seeds:
                if one not in held:
                    done.append(measure(case, one, settings_of(case, one, seed, done)))
                    if output is not None:
                        with output.open("a") as file:
                            file.write(json.dumps(done[-1]) + "\n")
        except LightLeakError as error:
            print(f"{case.part}: {described(case.facts)}: {case.attack} not measured: {error}", flush=True)
        if rows := [row for row in done if row["case"] == case.facts]:
            print(" | ".join(table_line(rows, done, case.goals)), flush=True)


def goals_of(facts: Row) -> Mapping[str, float]:
    """What a case of a file is to reach today."""
    return next((case.goals for case in CASES if case.facts == facts), {})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["sizes", "limit", "tables"])
    parser.add_argument("--n", type=int, help="batches of every case, in place of its own number")
    parser.add_argument("--seed", type=int, default=5000, help="of the first client")
    parser.add_argument("--output", type=Path, help="lines of JSON; what it holds is not measured again")
    parser.add_argument("--table", type=Path, help="print the table and the costs of such a file, measure nothing")
    parser.add_argument("--figure", type=Path, help="draw the costs into this SVG file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    done, interrupted = read_lines(options.table or options.output), False
    try:
        if options.table is None:
            cases = [case for case in CASES if case.part in options.part]
            run_cases(cases, options.n, options.seed, options.output, done)
    except KeyboardInterrupt:
        interrupted = True
    print_table(done, goals_of)
    found = costs(done)
    if options.table is not None or "cost" in options.part:
        print_bars(found)
    if options.figure is not None and found:
        options.figure.write_text(cost_figure(found))
    if interrupted:
        sys.exit(130)


if __name__ == "__main__":
    main()
