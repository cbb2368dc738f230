"""Guessing games against DP-SGD: how often the best attack on one release wins, next to what the guarantee allows.

Every set has candidates and a network of its own. The batch's other rows are known to the attacker, so that their
number does not matter. Games: which of k rows was in the batch; the whole row among `WHOLE` candidates, where a row
with all categories and the label right and all numbers within TabLeak's tolerance counts; and the value of each
categorical column of a row that is otherwise known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.core.grouping import by_key
from lightleak.core.guarantee import success_bound
from lightleak.core.seeds import derive_seed, generator
from lightleak.core.stored import write_json
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.defenses.horizontal.per_sample import clip_factors, per_sample_gradients
from lightleak.experiments.campaign import rows_of
from lightleak.experiments.clients import Population
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.kinds.frontier.config import FrontierConfig, Point
from lightleak.experiments.pack import Pack, Place, Task
from lightleak.experiments.training import private_batches
from lightleak.metrics.cells import Cells, agreement
from lightleak.metrics.dp_game import best_prior, coordinates, exceeds, play
from lightleak.report.intervals import bounded
from lightleak.report.sections.bound_gap import FILE_NAME, SCHEMA_VERSION, Game
from lightleak.targets.spec import build_network

CANDIDATES = (2, 10, 100)
WHOLE = 500
MOST_NUMBERS = 20_000_000
"""Elements of candidates' gradients at once: what a wide network leaves of `WHOLE`."""

COST = 1e6
"""Progress of one set, relative to a row of an attack in one restart and step."""


@dataclass(frozen=True)
class Candidates:
    """What one game is about.

    Attributes:
        game: its name.
        inputs: encoded rows ``[k, d]``.
        labels: LongTensor ``[k]``.
        prior: their probabilities ``[k]``.
        hits: see `lightleak.metrics.dp_game.guess`.
    """

    game: str
    inputs: Tensor
    labels: Tensor
    prior: Tensor
    hits: Tensor | None = None


def candidates(people: Population, draws: torch.Generator, most: int = WHOLE) -> Iterator[Candidates]:
    """Yield the candidates of every game of one set.

    Args:
        people: the rows.
        draws: a CPU generator.
        most: candidates of the whole row.
    """
    order = torch.randperm(len(people.inputs), generator=draws)
    codes, numbers = people.encoder.project(people.inputs)
    for k in (k for k in CANDIDATES if k <= len(order)):
        rows = order[:k]
        yield Candidates(
            f"which of {k} rows", people.inputs[rows], people.labels[rows], torch.full((k,), 1 / k).double()
        )
    rows = order[:most]
    cells, labels, k = Cells(codes[rows], numbers[rows]), people.labels[rows], len(rows)
    near = agreement(people.encoder, Cells(cells.codes[:, None], cells.numbers[:, None]), cells).all(-1)
    hits = near & (labels[:, None] == labels)
    yield Candidates(f"whole row of {k}", people.inputs[rows], labels, torch.full((k,), 1 / k).double(), hits)
    for at, block in enumerate(people.encoder.layout.categorical):
        row, values = order[0], block.width
        known = codes[row].repeat(values, 1)
        known[:, at] = torch.arange(values)
        inputs = people.encoder.assemble(known, numbers[row].repeat(values, 1))
        prior = torch.bincount(codes[:, at], minlength=values) / len(codes)
        yield Candidates(f"{block.name} of a known row", inputs, people.labels[row].repeat(values), prior.double())


def clipped(network: nn.Module, inputs: Tensor, labels: Tensor, max_norm: float) -> Tensor:
    """Return each row's clipped gradient in clipping norms, float64 ``[n, p]``."""
    gradients = per_sample_gradients(network, dict(network.named_parameters()), {}, inputs, labels)
    rows = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1).double()
    return (rows * (clip_factors(gradients, max_norm) / max_norm)[:, None]).detach()


def play_set(
    people: Population, network: nn.Module, seed: int, index: int, settings: Sequence[tuple[float, float]], trials: int
) -> list[dict[str, Any]]:
    """Play every game of one set at every setting.

    Args:
        people: the rows.
        network: of this set.
        seed: root seed.
        index: number of the set.
        settings: noise multipliers and clipping norms.
        trials: releases at each setting.

    Returns:
        Of every game and setting the share of trials won, how often guessing without a release wins (``prior``), and
        how far the candidates' gradients are from their mean (``reach``).
    """
    size = sum(parameter.numel() for parameter in network.parameters())
    most = max(min(WHOLE, MOST_NUMBERS // size), 2)
    found = []
    for one in candidates(people, generator(seed, "candidates", index), most):
        points = {norm: coordinates(clipped(network, one.inputs, one.labels, norm)) for _, norm in settings}
        for noise, norm in settings:
            at = points[norm]
            draws = generator(seed, "game", index, one.game, str(noise))
            won = play(at, noise, one.prior, trials, draws, one.hits)
            found.append(
                {
                    "game": one.game,
                    "noise": noise,
                    "max_norm": norm,
                    "won": int(won.sum()),
                    "prior": best_prior(one.prior, one.hits),
                    "reach": float((at - at.mean(0)).norm(dim=1).max()),
                }
            )
    return found


def summarize_games(
    played: Sequence[dict[str, Any]], trials: int, granted: Callable[[float, float], Mapping[str, float]]
) -> list[Game]:
    """Return each game at each setting over all sets.

    Args:
        played: what `play_set` returned, for all sets.
        trials: releases of each set.
        granted: epsilons by noise multiplier and clipping norm, as fields of `Game`.
    """
    found = []
    for (game, noise, max_norm), sets in by_key(played, itemgetter("game", "noise", "max_norm")).items():
        share = bounded([one["won"] / trials for one in sets])
        assert share is not None  # of at least one set
        bounds = [success_bound(noise, one["prior"]) for one in sets]
        nearer = [success_bound(noise, one["prior"], min(one["reach"], 1.0)) for one in sets]
        mean_bound = sum(bounds) / len(sets)
        found.append(
            Game(
                game=game,
                noise=noise,
                max_norm=max_norm,
                sets=len(sets),
                trials=len(sets) * trials,
                prior=sum(one["prior"] for one in sets) / len(sets),
                won=share.mean,
                low=share.low,
                high=share.high,
                bound=mean_bound,
                nearer_bound=sum(nearer) / len(sets),
                exceeds_bound=exceeds(sum(one["won"] for one in sets), len(sets) * trials, max(bounds)),
                **granted(noise, max_norm),
            )
        )
    return found


def game_packs(config: FrontierConfig, experiment: Experiment) -> list[Pack]:
    """Return the sets of a frontier; none where no DP-SGD is measured or the config plays none."""
    sets = config.games.sets if protected(config, experiment) else 0
    return [Task([f"game-{index:03d}"], partial(_play, config, experiment, index), COST) for index in range(sets)]


def _play(config: FrontierConfig, experiment: Experiment, index: int, at: Place) -> list[list[dict[str, Any]]]:
    """Play one set with a network of its own in all games against every DP-SGD point, on the CPU."""
    network = build_network(experiment.spec, derive_seed(config.seed, "network", index)).eval()
    settings = list(protected(config, experiment))
    played = play_set(experiment.population, network, config.seed, index, settings, config.games.trials)
    at.report(COST)
    return [played]


def protected(config: FrontierConfig, experiment: Experiment) -> dict[tuple[float, float], DPSGD]:
    """DP-SGD at every point of a config, by noise multiplier and clipping norm."""
    rate, steps = sampling(config, experiment)
    made = [defense_of(point.config) for point in config.points if point.name == DPSGD.name]
    known = [one.resolved(rate, steps) for one in made if isinstance(one, DPSGD)]
    return {(one.noise(), one.max_grad_norm): one for one in known if one.noise()}


def sampling(config: FrontierConfig, experiment: Experiment) -> tuple[float, int]:
    """Sampling rate and steps of a training under DP-SGD."""
    batches = private_batches(config.audit_at(Point()), experiment)
    return batches.sample_rate, config.training.epochs * len(batches)


def write_games(config: FrontierConfig, experiment: Experiment, folder: Path) -> None:
    """Write the file with the results of all finished sets; none where there are none."""
    played = rows_of([pack.ids[0] for pack in game_packs(config, experiment)], folder)
    if not played:
        return
    known, (rate, steps) = protected(config, experiment), sampling(config, experiment)

    def granted(noise: float, max_norm: float) -> Mapping[str, float]:
        return epsilons(known[noise, max_norm], rate, steps)

    entries = [asdict(game) for game in summarize_games(played, config.games.trials, granted)]
    write_json(folder / FILE_NAME, {"schema_version": SCHEMA_VERSION, "entries": entries}, indent=1)


def epsilons(defense: DPSGD, rate: float, steps: int) -> dict[str, float]:
    """Return epsilon of one release whose batch is known, and of the training by both accountants, as `Game` has them.

    Args:
        defense: its noise is known.
        rate: probability of a row to enter a batch.
        steps: of the training.
    """
    spent = {f"epsilon_{name}": replace(defense, accountant=name).epsilon(rate, steps) for name in ("rdp", "prv")}
    return {"delta": defense.delta, "release_epsilon": defense.release_epsilon(), **spent}
