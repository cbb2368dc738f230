"""What a study found, in words that follow from the numbers alone."""

from collections.abc import Sequence

from lightleak.report.estimate import Estimate
from lightleak.report.headline import Headline, Tile
from lightleak.report.tuning.result import HeldOut, Objective, Trial
from lightleak.report.tuning.study import TuningRun, account
from lightleak.report.tuning.verdict import verdict_of
from lightleak.report.tuning.wording import (
    change_of,
    counted,
    direction_word,
    interval_of,
    objective_title,
    value_of,
)
from lightleak.report.wording import duration

LIMITS = (
    "A score on validation data is not what the proposed settings will reach. They were picked because they scored "
    "best there, and part of being the best of many is luck. Only the held-out comparison counts.",
    "It holds for this table, network and budget. What wins here may lose elsewhere, and a larger budget may want "
    "other settings.",
    "That nothing better was found does not mean that there is nothing better: a few dozen trials leave most of a "
    "space unseen.",
    "Importance says which settings moved the score within the ranges that were searched, not which matter in general. "
    "From few trials it is rough, and two settings that act together share it arbitrarily.",
)
OF_HELD_OUT = (
    "The interval of the held-out comparison describes other draws of the same table with the same network, not other "
    "tables."
)
OF_SEVERAL = (
    "The front is drawn from single validation scores: trials that lie close together on it could change places if "
    "they were run again."
)


def headline(runs: Sequence[TuningRun]) -> Headline:
    """Say what was found and whether held-out data bear it out, for one study or for each of several."""
    if len(runs) == 1:
        run = runs[0]
        return Headline(
            sentence=_conclusion(run),
            verdict=tuple(line for line in (_searched(run), _on_validation(run), _time(run)) if line),
            tiles=_tiles(run),
            limits=limits(runs),
        )
    return Headline(
        sentence=_of_several(runs),
        verdict=tuple(f"{run.folder.name}: {_conclusion(run)}" for run in runs),
        limits=limits(runs),
    )


def limits(runs: Sequence[TuningRun]) -> tuple[str, ...]:
    """What the numbers do not show."""
    held_out = [OF_HELD_OUT] if any(run.study.held_out is not None for run in runs) else []
    several = [OF_SEVERAL] if any(run.front for run in runs) else []
    return (LIMITS[0], *held_out, *LIMITS[1:], *several)


def _conclusion(run: TuningRun) -> str:
    """The one sentence to remember."""
    held_out = run.study.held_out
    if held_out is not None and (run.default is None or run.chosen is not run.default):
        return _borne_out(run, held_out)
    if run.chosen is None:
        ended = sum(one.state in ("pruned", "failed") for one in run.trials)
        if run.measured:
            return "Trials have finished, but no knee of their front is named yet, so there is nothing to propose."
        seen = f"{counted(ended, 'trial')} ended early" if ended else "no trial has ended"
        return f"Nothing can be said yet: no trial is complete ({seen})."
    if run.default is None:
        return (
            f"The {_proposed(run)} so far reaches {_values(run, run.chosen)} on validation data. The defaults have not "
            "been measured yet."
        )
    if run.chosen is run.default:
        return (
            f"On validation data the {_proposed(run)} is the trial of the defaults itself, with "
            f"{_values(run, run.default)}: there is nothing to change."
        )
    return (
        f"On validation data the {_proposed(run)} reaches {_values(run, run.chosen)}, the defaults "
        f"{_values(run, run.default)}. This may be luck: there is no comparison on held-out data yet."
    )


def _proposed(run: TuningRun) -> str:
    return "best trial" if run.is_single else "knee of the front"


def _borne_out(run: TuningRun, held_out: HeldOut) -> str:
    objective = run.study.objective(held_out.metric)
    title = objective_title(objective).lower()
    default, best = (value_of(objective, one.mean) for one in (held_out.default, held_out.best))
    within = "" if run.is_single else f" in {title}"
    said = {
        "better": f"the tuned settings are truly better than the defaults{within}",
        "worse": f"the tuned settings are worse than the defaults{within}",
        "not distinguishable": f"the tuned settings cannot be told from the defaults{within}",
        "no interval": f"it cannot be told whether the tuned settings are better{within}, as there is no interval",
    }[verdict_of(objective, held_out.difference)]
    return (
        f"On held-out data, which no trial was scored on, {said}: {title} {best} against {default}, a difference of "
        f"{_difference(objective, held_out)}."
    )


def _difference(objective: Objective, held_out: HeldOut) -> str:
    change = change_of(objective, held_out.difference.mean)
    if not held_out.difference.has_interval:
        return f"{change} without an interval"
    return f"{change} (95% interval {interval_of(objective, held_out.difference, True)})"


def _of_several(runs: Sequence[TuningRun]) -> str:
    compared = [
        verdict_of(run.study.objective(held_out.metric), held_out.difference)
        for run in runs
        if (held_out := run.study.held_out) is not None
    ]
    if not compared:
        return f"Of {len(runs)} studies none has been compared with the defaults on held-out data yet."
    found = f"of {len(compared)} that were compared on held-out data, {compared.count('better')} found settings that"
    words = [f"{found} are truly better than the defaults"]
    words += [f"{compared.count('worse')} found worse ones"] if "worse" in compared else []
    return f"{len(runs)} studies: {' and '.join(words)}."


def _searched(run: TuningRun) -> str:
    """What was searched, and for what."""
    study = run.study
    aims = " and ".join(f"the {direction_word(one)} {one.words}" for one in study.objectives)
    what = counted(len(study.parameters), "setting")
    done = account(run.trials, study.asked)
    counts = [f"{len(found)} {state}" for state, found in done.counted.items() if found]
    of = f" of {study.asked} asked for" if study.asked is not None and study.asked != done.trials else ""
    ended = f" ({', '.join(counts)})" if counts else ""
    return f"Searched: {what}, for {aims}, in {counted(done.trials, 'trial')}{of}{ended}."


def _on_validation(run: TuningRun) -> str:
    """What the search itself saw, where the sentence is of held-out data, and the front of several objectives."""
    parts = []
    if not run.is_single and run.front:
        parts.append(
            f"{counted(len(run.front), 'trial is', 'trials are')} on the front: no other was as good in every "
            "objective and better in one."
        )
        if run.default is not None:
            where = "are on it too" if run.default.on_front else "are not: some trial beats them"
            parts.append(f"The defaults {where}.")
    if run.study.held_out is not None and run.chosen is not None:
        default = "" if run.default is None else f", the defaults {_values(run, run.default)}"
        parts.append(
            f"On validation data, which the search has used, the {_proposed(run)} ({run.chosen.number}) reached "
            f"{_values(run, run.chosen)}{default}; being picked for it flatters it."
        )
    return " ".join(parts)


def _time(run: TuningRun) -> str:
    """Whether the comparison was at equal time."""
    held_out = run.study.held_out
    if held_out is None or not held_out.default_seconds or held_out.best_seconds is None:
        return ""
    ratio = held_out.best_seconds / held_out.default_seconds
    return (
        f"The tuned settings took {duration(held_out.best_seconds)} where the defaults took "
        f"{duration(held_out.default_seconds)} ({ratio:.2f} times as long)."
    )


def _values(run: TuningRun, trial: Trial) -> str:
    """The values of a trial, with their names where there are several."""
    if run.is_single:
        return value_of(run.study.objectives[0], trial.values[run.study.objectives[0].name])
    return " and ".join(
        f"{objective_title(one).lower()} {value_of(one, trial.values[one.name])}" for one in run.study.objectives
    )


def _tiles(run: TuningRun) -> tuple[Tile, ...]:
    held_out = run.study.held_out
    if held_out is not None:
        objective = run.study.objective(held_out.metric)
        title = objective_title(objective).lower()
        amount, _, unit = change_of(objective, held_out.difference.mean).partition(" ")
        change = Tile(
            amount, f"{unit or 'difference'}, tuned against defaults", _detail(objective, held_out.difference, True)
        )
        return (
            Tile(value_of(objective, held_out.best.mean), f"{title}, tuned", _detail(objective, held_out.best)),
            Tile(
                value_of(objective, held_out.default.mean), f"{title}, defaults", _detail(objective, held_out.default)
            ),
            change,
        )
    if run.chosen is None:
        return ()
    found = [(f"{'best' if run.is_single else 'knee'}, trial {run.chosen.number}", run.chosen)]
    if run.default is not None and run.default is not run.chosen:
        found.append((f"defaults, trial {run.default.number}", run.default))
    return tuple(
        Tile(value_of(one, trial.values[one.name]), objective_title(one).lower(), f"{who}, validation data")
        for who, trial in found
        for one in run.study.objectives
    )


def _detail(objective: Objective, value: Estimate, is_change: bool = False) -> str:
    if not value.has_interval:
        return "held-out data, no interval"
    return f"held-out data, 95% interval {interval_of(objective, value, is_change)}"
