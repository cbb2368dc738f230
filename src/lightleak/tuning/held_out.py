"""Compare the best trial, which was partly chosen by luck, with the defaults on held-out data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.stored import read_json
from lightleak.core.summary import summarize
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.load import parse_config
from lightleak.experiments.progress import silent
from lightleak.experiments.run import run_audit
from lightleak.experiments.settings import plain
from lightleak.experiments.training import TRAINING_FILE
from lightleak.tuning.objective import VALIDATION, ObjectiveConfig

HELD_OUT = "held_out"
HELD_OUT_SEED = 1_000_000
"""First of the seeds of held-out audits; a study whose own seeds are as large would see them."""

REPETITION = ("seed", "source", "batch_index")
"""Keys that number the independent observations of an audit: seeds, or clients and captured updates."""


def held_out_tree(tree: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return a trial's audit on data that no trial was scored on.

    Other seeds make other networks, trainings and starts of the attacks. An audit of updates and a frontier keep the
    split of the table: their test rows stay test rows. Other kinds split the rows anew for every seed.

    Args:
        tree: the trial's audit.
        n: fresh clients, of the held-out rows, or, of a kind of audit that has none, seeds; 0 keeps the trial's number.
    """
    changed: dict[str, Any] = plain(tree)
    seed = int(changed.get("seed", 0))
    if changed.get("kind", "updates") in ("updates", "defense-frontier"):
        changed["data"] = {"split_seed": seed, **(changed.get("data") or {})}
        changed["seed"] = HELD_OUT_SEED + seed
    if changed.get("kind", "updates") == "updates":
        changed["initial"] = {**(changed.get("initial") or {}), "rows": "held_out"}
        if n and changed["initial"].get("batches", 1):
            changed["initial"]["batches"] = n
    elif changed.get("kind") != "defense-frontier":
        seeds = changed.get("seeds", [changed.pop("seed", 0)])
        changed["seeds"] = [HELD_OUT_SEED + i for i in range(n or len(seeds))]
    return changed


def compare(
    objective: ObjectiveConfig, pair: Mapping[int, Mapping[str, Any]], n: int, folder: Path, workers: int
) -> dict[str, Any] | str:
    """Run the default and the best once more and return the ``held_out`` entry of results.json, or why there is none.

    Pairs share client, network and starting points (or, for a training, seed and test rows). Several results of one
    seed or client are no independent observations: their mean counts. Clients of different sizes are others, unless
    the sizes are what was searched: then the two sides are paired by the clients' numbers.

    Args:
        objective: what is compared.
        pair: audits by number of their trial, the default's first.
        n: clients, trainings or seeds.
        folder: where they run.
        workers: packs at once.
    """
    entries, by_name, rows_of = {}, dict[str, dict[str, float]](), dict[str, list[dict[str, Any]]]()
    for name, (number, tree) in zip(("default", "best"), pair.items(), strict=True):
        place = folder / f"trial-{number}"
        if objective.is_of_training:
            by_name[name], seconds = _of_trainings(objective, tree, n, place, workers), None
        else:
            rows = rows_of[name] = _judged(_run(held_out_tree(tree, n), place, workers), tree)
            by_name[name] = objective.by_observation(rows)
            seconds = summarize(row.get("seconds") for row in rows if row["unit"] in by_name[name]).mean
        entries[name] = {"seconds": seconds}
    found = _by_repetition(by_name, rows_of) if rows_of else by_name
    shared = [one for one in found["default"] if one in found["best"]]
    if len(shared) < 2:
        return (
            f"of {len(found['default'])} seeds or clients with the defaults and {len(found['best'])} with the best "
            f"trial {len(shared)} can be paired, and a comparison needs 2"
        )
    means = {name: [values[one] for one in shared] for name, values in found.items()}
    return {
        "words": _words(objective, next(iter(pair.values())), len(shared)),
        "metric": objective.metric,
        "n": len(shared),
        **{name: _interval(means[name]) | entries[name] for name in entries},
        "difference": _interval([own - other for own, other in zip(means["best"], means["default"], strict=True)]),
    }


def _by_repetition(
    values: Mapping[str, Mapping[str, float]], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, dict[Any, float]]:
    """Mean value of each independent observation, by side; a unit's name may contain the very setting searched."""
    counted = {name: [row for row in rows[name] if row["unit"] in values[name]] for name in rows}
    default, best = ({row.get("batch_size") for row in of_side} for of_side in counted.values())
    keys = (*REPETITION, "batch_size") if default == best else REPETITION
    found: dict[str, dict[Any, float]] = {}
    for name, of_side in counted.items():
        known = {row["unit"]: tuple(row.get(key) for key in keys) for row in of_side}
        found[name] = {
            one: fmean(values[name][unit] for unit in units) for one, units in by_key(known, known.__getitem__).items()
        }
    return found


def _words(objective: ObjectiveConfig, tree: Mapping[str, Any], n: int) -> str:
    if objective.is_of_training:
        return f"{n} trainings from seeds that no trial had, judged on the test rows"
    if tree.get("kind") == "defense-frontier":
        return f"{n} clients drawn anew from the same training rows, with networks and starts that no trial had"
    if tree.get("kind", "updates") != "updates":
        return f"{n} seeds, and so splits and trainings, that no trial had"
    if (tree.get("initial") or {}).get("batches", 1):
        return f"{n} updates of clients whose rows no trial saw"
    return f"{n} updates captured in a training with a seed that no trial had"


def _of_trainings(
    objective: ObjectiveConfig, tree: Mapping[str, Any], n: int, folder: Path, workers: int
) -> dict[str, float]:
    """Values on the test rows by seed, without those of trainings that diverged; only the best config is attacked."""
    found = {}
    for i in range(n):
        place = folder / f"seed-{i:03d}"
        one = held_out_tree(tree, 0)
        one["seed"] += i
        one["initial"] = {**(one.get("initial") or {}), "batches": 0}
        one["attacks"] = {"random": {}}
        _run(one, place, workers)
        tested = read_json(place / TRAINING_FILE)["test"]
        value = tested[f"test/{objective.metric.removeprefix(VALIDATION)}"]
        if value is not None:
            found[str(i)] = float(value)
    return found


def _judged(rows: list[dict[str, Any]], tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As `judged_units`: where an audit of updates has fresh clients, their rows alone."""
    fresh = tree.get("kind", "updates") == "updates" and (tree.get("initial") or {}).get("batches", 1)
    return [row for row in rows if not fresh or row.get("source", "initial") == "initial"]


def _run(tree: Mapping[str, Any], folder: Path, workers: int) -> list[dict[str, Any]]:
    return run_audit(parse_config({**tree, "workers": workers}), folder, (), silent())["rows"]


def _interval(values: Sequence[float]) -> dict[str, Any]:
    found = summarize(values).to_dict()
    return {name: found[name] for name in ("mean", "low", "high")}


def words_of(config: Any, experiment: Experiment | None) -> dict[str, str]:
    """What a study's report says of the setting and of what settings are chosen on.

    Args:
        config: the default trial's.
        experiment: what an audit of updates is made of.
    """
    if experiment is None:
        return {"setting": config.title, "validation": "the audit itself, at its own seeds"}
    sizes = " and ".join(str(size) for size in config.initial.batch_sizes)
    rows = len(experiment.population.inputs)
    attacked = (
        f"{config.initial.batches} clients of {sizes} rows, drawn from a fifth of the training rows ({rows:,})"
        if config.initial.batches
        else "the validation rows of the training and updates captured in it"
    )
    return {"setting": f"{experiment.table.card.name}, {target_name(experiment.spec)}", "validation": attacked}
