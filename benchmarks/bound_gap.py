"""How often the best attack on a DP-SGD release wins, and how often the guarantee lets any attack win.

    python benchmarks/bound_gap.py --sets 100 --trials 200

Games of `lightleak.metrics.dp_game` on Adult and an untrained MLP 100-100: which of k rows was in the batch, and which
value a secret column of a known row has. The batch's other rows are known, so that their number does not matter. Every
set has candidates and a network of its own. The exit status is 1 if any game is won more often than its bound explains.
"""

import argparse
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lightleak.core.seeds import derive_seed, generator
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.defenses.horizontal.per_sample import clipped_mean, per_sample_gradients
from lightleak.experiments.clients import Population
from lightleak.experiments.config import AuditConfig, DataConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.metrics.dp_game import exceeds, play, success_bound
from lightleak.report.intervals import bounded
from lightleak.targets.spec import build_network

SIGMAS = (0.5, 1.0, 2.0, 4.0, 8.0)
CANDIDATES = (2, 10, 100)
COLUMNS = ("sex", "race", "relationship", "education", "occupation")
DELTA = 1e-5
BATCH = 32


def clipped(network: nn.Module, inputs: Tensor, labels: Tensor, max_norm: float) -> tuple[Tensor, float]:
    """Return each row's clipped gradient in clipping norms ``[n, p]``, and the share of rows that clipping shortens."""
    gradients = per_sample_gradients(network, dict(network.named_parameters()), {}, inputs, labels)
    each = [clipped_mean({name: g[i : i + 1] for name, g in gradients.items()}, max_norm) for i in range(len(inputs))]
    rows = torch.stack([torch.cat([part.flatten() for part in row.values()]) for row in each]).double() / max_norm
    return rows.detach(), float((rows.norm(dim=1) > 1 - 1e-3).double().mean())


def games(people: Population, index: int, seed: int) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Yield name, inputs and labels of the candidates, and their prior, of every game of one set."""
    draws = generator(seed, "candidates", index)
    order = torch.randperm(len(people.inputs), generator=draws)
    for k in CANDIDATES:
        rows = order[:k]
        yield f"which of {k} rows", people.inputs[rows], people.labels[rows], torch.full((k,), 1 / k).double()
    codes, numbers = people.encoder.project(people.inputs)
    for at, block in enumerate(people.encoder.layout.categorical):
        if block.name in COLUMNS:
            values, row = block.width, order[0]
            known = codes[row].repeat(values, 1)
            known[:, at] = torch.arange(values)
            inputs = people.encoder.assemble(known, numbers[row].repeat(values, 1))
            prior = torch.bincount(codes[:, at], minlength=values) / len(codes)
            yield f"{block.name} of a known row", inputs, people.labels[row].repeat(values), prior.double()


def main() -> int:
    """Print Markdown tables; return 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100, help="sets of candidates, each with a network of its own")
    parser.add_argument("--trials", type=int, default=200, help="releases for each set and sigma")
    parser.add_argument("--max-norm", type=float, default=1.0, help="clipping norm")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    experiment = prepare_experiment(AuditConfig(data=DataConfig(name="adult"), seed=arguments.seed))
    people, seed, trials = experiment.population(), arguments.seed, arguments.trials
    shares: dict[tuple[str, float], list[float]] = {}
    reaches: dict[str, list[float]] = {}
    priors: dict[str, Tensor] = {}
    shortened: list[float] = []
    for index in range(arguments.sets):
        network = build_network(experiment.spec, derive_seed(seed, "network", index))
        for name, inputs, labels, prior in games(people, index, seed):
            candidates, share = clipped(network, inputs, labels, arguments.max_norm)
            shortened += [share] if name.startswith("which") else []
            priors[name] = prior
            reaches.setdefault(name, []).append(float((candidates - candidates.mean(0)).norm(dim=1).max()))
            for noise in SIGMAS:
                draws = generator(seed, "game", index, name, str(noise))
                won = play(candidates, noise, prior, trials, draws)
                shares.setdefault((name, noise), []).append(float(won.double().mean()))
    n = arguments.sets * trials
    print("cells, %: won by the best attack [95% interval over sets]; bound for these gradients; for any gradients")
    print(f"{n} trials of each game and sigma; {100 * sum(shortened) / len(shortened):.0f}% of rows clipped\n")
    print("| game | prior | " + " | ".join(f"sigma {noise:g}" for noise in SIGMAS) + " |")
    print("| --- " * (len(SIGMAS) + 2) + "|")
    failed = []
    for name, prior in priors.items():
        cells = []
        for noise in SIGMAS:
            found, bound = bounded(shares[name, noise]), success_bound(noise, prior)
            own = sum(success_bound(noise, prior, min(reach, 1.0)) for reach in reaches[name]) / arguments.sets
            assert found is not None
            ends = (
                "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
            )
            cells.append(f"{100 * found.mean:.1f}{ends}; {100 * own:.1f}; {100 * bound:.1f}")
            if exceeds(round(found.mean * n), n, bound):
                failed.append(f"{name} at sigma {noise:g}: won {100 * found.mean:.2f}%, bound {100 * bound:.2f}%")
        print(f"| {name} | {100 * float(prior.max()):.1f} | {' | '.join(cells)} |")
    print("\n| sigma | epsilon of the release | of one epoch, RDP | of one epoch, PRV |\n| --- | --- | --- | --- |")
    rows = len(people.inputs)
    for noise in SIGMAS:
        rdp, prv = (
            DPSGD(noise_multiplier=noise, delta=DELTA, accountant=accountant).epsilon(BATCH / rows, rows // BATCH)
            for accountant in ("rdp", "prv")
        )
        release = DPSGD(noise_multiplier=noise, delta=DELTA).release_epsilon()
        print(f"| {noise:g} | {release:.2f} | {rdp:.3f} | {prv:.3f} |")
    print("\n".join(["", *failed] if failed else ["", "no bound is exceeded"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
