"""Cells that guesses without any update recover, by how strongly they favor likely values (see `RandomConfig`).

    python benchmarks/guessing.py --tables adult german lawschool bank diabetes130 --sizes 1 2 4 8 16 32 64 128 --n 50

One line per table and batch size: TabLeak's Random as published (one number per column for the whole batch), the same
with a number per row, the modal row, and the default, which chooses between them by marginals and batch size alone.
Clients are those of ``lightleak audit`` with the same seed.
"""

import argparse

from lightleak.attacks import ATTACKS
from lightleak.attacks.random_baseline import AS_PUBLISHED
from lightleak.core.seeds import derive_seed
from lightleak.core.summary import Summary, summarize
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import AuditConfig, DataConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.metrics.score import score

GUESSES = {
    "published": AS_PUBLISHED,
    "drawn": {"sharpness": 1},
    "modal row": {"sharpness": "modal"},
    "best": {},
}


def measured(clients: FreshClients, size: int, n: int) -> tuple[dict[str, Summary], object]:
    """Percent of cells of each guess on the same clients, and the sharpness that the default chose."""
    found: dict[str, list[float]] = {name: [] for name in GUESSES}
    found["gain"] = []
    for i in range(n):
        update, truth = clients.observe(size, i)
        for name, options in GUESSES.items():
            guess = ATTACKS.get("random")(**options).run(update, derive_seed(clients.seed, "random", size, i))
            found[name].append(100 * score(guess, truth, clients.population.encoder)["cell_accuracy"])
        found["gain"].append(found["best"][-1] - found["drawn"][-1])
    return {name: summarize(values) for name, values in found.items()}, guess.settings["sharpness"]


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["adult", "german", "lawschool"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--n", type=int, default=50, help="clients for each line")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| table | rows | " + " | ".join(GUESSES) + " | sharpness | best over drawn |")
    print("| --- " * (len(GUESSES) + 4) + "|")
    for table in arguments.tables:
        experiment = prepare_experiment(AuditConfig(data=DataConfig(name=table), seed=arguments.seed))
        clients = FreshClients(experiment.population, experiment.spec, arguments.seed, share_labels=True)
        for size in arguments.sizes:
            found, sharpness = measured(clients, size, arguments.n)
            cells = [f"{one.mean:.1f} [{one.low:.1f}, {one.high:.1f}]" for one in found.values()]
            gain = cells.pop()
            print(f"| {table} | {size} | {' | '.join(cells)} | {sharpness} | {gain} |", flush=True)


if __name__ == "__main__":
    main()
