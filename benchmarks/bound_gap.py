"""How often the best attack on a DP-SGD release wins, and how often the guarantee lets any attack win.

    python benchmarks/bound_gap.py --sets 100 --trials 200 --page bound-gap.html

The games of `lightleak.experiments.kinds.frontier.games` on Adult and an untrained MLP 100-100; every set has
candidates and a network of its own. The exit status is 1 if any game is won more often than its bound explains.
"""

import argparse
import sys
from pathlib import Path

from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.experiments.config import AuditConfig, DataConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.frontier.games import epsilons, play_set, summarize_games
from lightleak.report.compare import by_key
from lightleak.report.sections.bound_gap import Game, gap_page
from lightleak.targets.spec import build_network

SIGMAS = (0.5, 1.0, 2.0, 4.0, 8.0)
BATCH = 32


def main() -> int:
    """Print Markdown tables; return 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100, help="sets of candidates, each with a network of its own")
    parser.add_argument("--trials", type=int, default=200, help="releases for each set and sigma")
    parser.add_argument("--max-norm", type=float, default=1.0, help="clipping norm")
    parser.add_argument("--data", default="adult", help="name of the table")
    parser.add_argument("--page", type=Path, help="draw the gap to this HTML file")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    experiment = prepare_experiment(AuditConfig(data=DataConfig(name=arguments.data), seed=arguments.seed))
    people, seed, trials = experiment.population, arguments.seed, arguments.trials
    settings = [(noise, arguments.max_norm) for noise in SIGMAS]
    played = []
    for index in range(arguments.sets):
        network = build_network(experiment.spec, derive_seed(seed, "network", index)).eval()
        played += play_set(people, network, seed, index, settings, trials)
    rate, steps = BATCH / len(people.inputs), -(-len(people.inputs) // BATCH)
    games = summarize_games(
        played, trials, lambda noise, norm: epsilons(DPSGD(noise_multiplier=noise, max_grad_norm=norm), rate, steps)
    )
    print("cells, %: won by the best attack [95% interval over sets]; bound for these gradients; for any gradients")
    print(f"{arguments.sets * trials} trials of each game and sigma\n")
    print("| game | prior | " + " | ".join(f"sigma {noise:g}" for noise in SIGMAS) + " |")
    print("| --- " * (len(SIGMAS) + 2) + "|")
    for name, same in by_key(games, lambda game: game.game).items():
        print(f"| {name} | {100 * same[0].prior:.1f} | {' | '.join(map(cell, same))} |")
    print("\n| sigma | epsilon of the release | of one epoch, RDP | of one epoch, PRV |\n| --- | --- | --- | --- |")
    for one in games[: len(SIGMAS)]:
        print(f"| {one.noise:g} | {one.release_epsilon:.2f} | {one.epsilon_rdp:.3f} | {one.epsilon_prv:.3f} |")
    if arguments.page:
        arguments.page.write_text(gap_page(games), encoding="utf-8")
    failed = [f"{one.game} at sigma {one.noise:g}: {cell(one)}" for one in games if one.exceeds_bound]
    print("\n".join(["", *failed] if failed else ["", "no bound is exceeded"]))
    return 1 if failed else 0


def cell(game: Game) -> str:
    """What was won, and both bounds."""
    ends = "" if game.low is None or game.high is None else f" [{100 * game.low:.1f}, {100 * game.high:.1f}]"
    return f"{100 * game.won:.1f}{ends}; {100 * game.nearer_bound:.1f}; {100 * game.bound:.1f}"


if __name__ == "__main__":
    sys.exit(main())
