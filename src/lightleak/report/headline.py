"""What the numbers say, in words that follow from the numbers alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.budget import fewer
from lightleak.report.comparison import Group, at_start, strongest_first
from lightleak.report.estimate import Estimate
from lightleak.report.intervals import bounded
from lightleak.report.wording import (
    behind_update,
    defense_phrase,
    interval,
    labels_phrase,
    local_phrase,
    percent,
    points,
    setting_parts,
    source_phrase,
    time_unit,
    varying,
)

LIMITS = (
    "It does not say that a named person can be found again: that depends on who else has the same values.",
    "It does not say that the server knows which cells are right: it has no truth to compare with, only its own "
    "confidence, which is measured separately.",
    "It holds for the data, network, batch size and assumptions listed here, not for another training.",
    "It is a lower bound: another attack may recover more, so a low number is no proof of safety.",
)
BESIDE_PROVEN = (
    LIMITS[0],
    "Of rows that are not certified it does not say that the server knows which cells are right: there it has only its "
    "own confidence. Of certified rows it does know.",
    *LIMITS[2:],
)
"""The same where the attack proved rows."""


@dataclass(frozen=True)
class Tile:
    """One large number with what it means and how sure it is."""

    value: str
    label: str
    detail: str


@dataclass(frozen=True)
class Headline:
    """The opening of a report.

    Attributes:
        group: the strongest attack and its setting; None where there is no accuracy to report.
        sentence: what was recovered.
        verdict: what that means beside the baseline.
        tiles: the three numbers of the sentence.
        selection: how this setting was chosen among those measured.
        limits: what the number does not show.
    """

    group: Group | None
    sentence: str
    verdict: str = ""
    tiles: tuple[Tile, ...] = ()
    selection: str = ""
    limits: tuple[str, ...] = ()


def headline(groups: Sequence[Group]) -> Headline:
    """Choose the setting with the most leakage before training, and say what was found there."""
    candidates = strongest_first(at_start(groups))
    if not candidates:
        return Headline(None, _nothing_measured(groups))
    group, accuracy = candidates[0], candidates[0].accuracy
    assert accuracy is not None  # strongest_first keeps only groups with an accuracy
    return Headline(
        group=group,
        sentence=_sentence(group, accuracy),
        verdict=verdict(group),
        tiles=_tiles(group, accuracy),
        selection=_selection(group, candidates, groups),
        limits=BESIDE_PROVEN if group.proven_share else LIMITS,
    )


def _nothing_measured(groups: Sequence[Group]) -> str:
    if not groups:
        return "No attack has finished yet: this run holds no results."
    if all(group.is_baseline for group in groups):
        return "Only the guessing baseline has finished: no attack has been measured yet."
    unknown = (
        "The rows behind the attacked updates are not part of this run, so how much was recovered rightly is unknown. "
    )
    proven = max(groups, key=lambda group: group.proven_share)
    if not proven.proven_share:
        return f"{unknown}The attacker's own confidence and the time spent are still listed."
    return (
        f"Without any truth to compare with, {percent(proven.proven_share)} of the rows behind the updates that "
        f"{proven.title} attacked are certified: they pass tests against the update that wrong rows fail. How much of "
        "the rest was recovered rightly is unknown, as the rows are not part of this run."
    )


def _sentence(group: Group, accuracy: Estimate) -> str:
    batch = behind_update(group.setting, group.batch_size)
    found = f"An honest-but-curious server recovered {percent(accuracy.mean)} of all cells"
    if accuracy.has_interval:
        found += f" (95% interval {interval(accuracy)})"
    found += f" of {batch}"
    if group.baseline is not None and group.baseline.accuracy is not None:
        found += f"; guessing without the update gets {percent(group.baseline.accuracy.mean)}"
    exact = group.metrics.get("exact_match_rate")
    found += f"; {percent(exact.mean)} of whole rows are exact." if exact else "."
    if group.proven_share:
        found += f" It proved {percent(group.proven_share)} of the rows by the update alone."
    return found


def verdict(group: Group) -> str:
    """One sober line derived from the paired difference to guessing and the rate of whole rows."""
    leakage, accuracy = group.leakage, group.accuracy
    if leakage is None or accuracy is None or group.baseline is None or group.baseline.accuracy is None:
        return "Guessing without the update was not measured, so how much of this the update gave away is unknown."
    parts = []
    if not leakage.has_interval:
        side = "above" if leakage.mean > 0 else "not above"
        parts.append(
            f"This is {side} guessing ({points(leakage.mean)} points), but too few batches were measured to tell "
            "whether the difference is more than chance."
        )
    elif leakage.low is not None and leakage.low > 0:
        open_part = 1 - group.baseline.accuracy.mean
        closed = f", {leakage.mean / open_part:.0%} of the way from guessing to full recovery" if open_part else ""
        parts.append(
            f"The update gave away more than guessing does: {points(leakage.mean)} points of cells "
            f"(95% interval {interval(leakage, -1)}){closed}."
        )
    elif leakage.high is not None and leakage.high < 0:
        parts.append(f"The attack did worse than guessing ({points(leakage.mean)} points of cells).{_too_weak(group)}")
    else:
        parts.append(
            f"The attack was not measurably better than guessing: the difference of {points(leakage.mean)} points "
            f"(95% interval {interval(leakage, -1)}) may be chance.{_too_weak(group)}"
        )
    parts.append(_whole_rows(group))
    return " ".join(part for part in parts if part)


def _too_weak(group: Group) -> str:
    """Why nothing follows from what this attack did not find; empty where it had all of its published budget."""
    lacking = ", ".join(fewer(group.attack, group.results[0].options) if group.results else ())
    return f" It ran with {lacking}, less than published, so nothing follows from that." if lacking else ""


def _whole_rows(group: Group) -> str:
    exact, n = group.metrics.get("exact_match_rate"), group.batch_size
    if exact is None or n is None:
        return ""
    if exact.mean == 0:
        return "No row was recovered exactly."
    if exact.mean * n < 1:
        return f"About one row in {round(1 / exact.mean)} was recovered exactly."
    return f"On average {exact.mean * n:.1f} of {n} rows were recovered exactly."


def _tiles(group: Group, accuracy: Estimate) -> tuple[Tile, ...]:
    spread = f"95% interval {interval(accuracy)}" if accuracy.has_interval else "one batch, no interval"
    tiles = [Tile(percent(accuracy.mean), "of cells recovered", f"{group.title}, {spread}")]
    guessed = group.baseline.accuracy if group.baseline else None
    if guessed is not None:
        detail = f"95% interval {interval(guessed)}" if guessed.has_interval else "one batch, no interval"
        tiles.append(Tile(percent(guessed.mean), "by guessing, without the update", detail))
    exact = group.metrics.get("exact_match_rate")
    if exact is not None:
        base = group.baseline.metrics.get("exact_match_rate") if group.baseline else None
        detail = "every value equal" + (f"; guessing: {percent(base.mean)}" if base else "")
        tiles.append(Tile(percent(exact.mean), "of whole rows exact", detail))
    if group.proven_share:
        detail = "certified by the update itself, without the truth"
        tiles.append(Tile(percent(group.proven_share), "of rows proven", detail))
    return tuple(tiles)


def _selection(group: Group, candidates: Sequence[Group], groups: Sequence[Group]) -> str:
    n = group.accuracy.n if group.accuracy else 0
    batches = "1 batch" if n == 1 else f"{n} batches"
    if group.setting.protocol == "fedavg":
        batches = f"1 update after {local_phrase(group.setting)}" if n == 1 else f"{n} updates"
        batches += "" if n == 1 else f", each after {local_phrase(group.setting)}"
    text = (
        f"Measured on {batches}, {source_phrase(group.setting.source)}; labels {labels_phrase(group.setting.labels)}; "
        f"defence: {defense_phrase(group.setting)}"
    )
    said = (
        "source",
        "labels",
        "defense",
        "strength",
        "epsilon",
        "release_epsilon",
        "delta",
        "local_epochs",
        "local_batches",
    )
    differing = [name for name in varying(candidate.setting for candidate in candidates) if name not in said]
    if differing:
        text += f" ({', '.join(setting_parts(group.setting, differing))})"
    text += "."
    if len(candidates) > 1:
        text += f" This is the strongest of the {len(candidates)} combinations of attack and setting measured."
        text += _after_the_fact(group, len(candidates))
    return text + _higher_later(group, groups)


def _after_the_fact(group: Group, candidates: int) -> str:
    """The highest of several means is partly luck: what its interval is when it has to hold for all of them."""
    name = "cell_accuracy"
    values = [result.metrics[name] for result in group.results if name in result.metrics]
    wide = bounded(values, comparisons=candidates)
    if wide is None or not wide.has_interval:
        return " It is named after the fact, and the highest of several is partly luck."
    return (
        f" It is named after the fact, and the highest of several is partly luck: to allow for the choice, read "
        f"{interval(wide)} as the interval of its cells (Bonferroni, {candidates} comparisons)."
    )


def _higher_later(group: Group, groups: Sequence[Group]) -> str:
    """A headline from before training must not hide a higher number from later on."""
    later = [other for other in groups if other.setting.source == "training" and not other.is_baseline]
    measured = [(other.accuracy.mean, other) for other in later if other.accuracy is not None]
    if not measured or group.accuracy is None:
        return ""
    highest, best = max(measured, key=lambda pair: pair[0])
    if highest <= group.accuracy.mean:
        return ""
    on_fedavg = best.setting.protocol == "fedavg"
    size = (
        ""
        if best.batch_size is None
        else f" ({best.batch_size} rows)"
        if on_fedavg
        else f" (batch of {best.batch_size})"
    )
    when = "" if best.setting.epoch is None else f" in {time_unit(best.setting)} {best.setting.epoch}"
    return f" During training a higher value was measured: {percent(highest)} by {best.title}{when}{size}."
